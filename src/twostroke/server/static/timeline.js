// The timeline of steps: a canvas that scrolls with the engine's clock. Prefill rows rise from the axis, decode rows
// hang below it, both on a logarithmic scale; a step is as wide as it took.

const WINDOW = 10; // seconds
const DELAY = 0.35; // behind the clock, so that steps have arrived before they are due
const SHARE = 0.6; // of the height that is prefill's
const FOOT = 16; // pixels for the seconds
const HEAD = 7; // and above the highest mark
const LEFT = 28; // and beside the marks
const MARKS = { prefill: [1, 8, 64, 512, 4096], decode: [1, 4, 16, 64, 256] };

export class Timeline {
  #canvas;
  #steps = [];
  #offset = null; // from the page's clock to the engine's
  #most = { prefill: 512, decode: 16 }; // rows at the full height of a lane
  #isStill = matchMedia("(prefers-reduced-motion: reduce)");
  #isDue = false;

  constructor(canvas) {
    this.#canvas = canvas;
  }

  get latest() {
    return this.#steps.at(-1);
  }

  // The end of the latest step known, on the engine's clock; 0 where there is none.
  get since() {
    return this.#steps.length ? this.latest[0] + this.latest[1] : 0;
  }

  take(activity) {
    const offset = activity.now - performance.now() / 1e3;
    const isFar = this.#offset === null || Math.abs(offset - this.#offset) > 1;
    if (isFar && this.#offset !== null && offset < this.#offset - 1) this.#steps = []; // another server
    this.#offset = isFar ? offset : this.#offset + 0.1 * (offset - this.#offset);
    this.#most.prefill = Math.max(64, activity.max_step_tokens);
    this.#most.decode = Math.max(16, activity.max_batch, this.#most.decode, ...activity.steps.map((step) => step[3]));
    const since = this.since;
    this.#steps.push(...activity.steps.filter(([start, length]) => start + length > since));
    const first = this.#steps.findIndex(([start, length]) => start + length > activity.now - WINDOW - 2);
    this.#steps.splice(0, first < 0 ? Math.max(0, this.#steps.length - 1) : first);
    this.#request();
  }

  #request() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      this.#draw();
      const isMoving = this.#steps.length && this.#now() - this.since < WINDOW + 1;
      if (isMoving && !this.#isStill.matches) this.#request();
    });
  }

  #now() {
    return performance.now() / 1e3 + this.#offset - DELAY;
  }

  #draw() {
    const ratio = devicePixelRatio;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (this.#canvas.width !== width * ratio || this.#canvas.height !== height * ratio) {
      this.#canvas.width = width * ratio;
      this.#canvas.height = height * ratio;
    }
    const pen = this.#canvas.getContext("2d");
    const style = getComputedStyle(this.#canvas);
    const colour = (name) => style.getPropertyValue(`--${name}`);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const axis = Math.round((height - FOOT) * SHARE);
    const lanes = [
      { tall: axis - HEAD, sign: -1, name: "prefill", most: this.#most.prefill },
      { tall: height - FOOT - axis - HEAD, sign: 1, name: "decode", most: this.#most.decode },
    ];
    drawMarks(pen, width, axis, lanes, colour);
    this.#drawSteps(pen, width, axis, lanes, colour);
    drawSeconds(pen, width, height, colour);
  }

  #drawSteps(pen, width, axis, lanes, colour) {
    const end = this.#now();
    const scale = (width - LEFT) / WINDOW;
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, 0, width - LEFT, axis * 2);
    pen.clip();
    lanes.forEach(({ tall, sign, name, most }, lane) => {
      pen.fillStyle = colour(name);
      for (const step of this.#steps) {
        const rows = step[2 + lane];
        const left = width - (end - step[0]) * scale;
        const right = left + step[1] * scale;
        if (!rows || right < LEFT || left > width) continue;
        const high = tall * heightOf(rows, most);
        pen.fillRect(left, sign < 0 ? axis - high : axis, Math.max(0.75, right - left - 0.4), high);
      }
    });
    pen.restore();
  }
}

const heightOf = (rows, most) => Math.min(1, Math.log2(1 + rows) / Math.log2(1 + most));

function drawMarks(pen, width, axis, lanes, colour) {
  pen.font = "10px system-ui, sans-serif";
  pen.textBaseline = "middle";
  pen.textAlign = "left";
  for (const { tall, sign, name, most } of lanes) {
    let last = axis;
    for (const rows of MARKS[name].filter((rows) => rows <= most)) {
      const y = Math.round(axis + sign * tall * heightOf(rows, most)) + 0.5;
      if (Math.abs(y - last) < 13) continue;
      last = y;
      drawLine(pen, LEFT, width, y, colour("line"));
      pen.fillStyle = colour("soft");
      pen.fillText(rows.toString(), 0, y);
    }
  }
  drawLine(pen, LEFT, width, axis + 0.5, colour("soft"));
}

function drawLine(pen, from, to, y, colour) {
  pen.strokeStyle = colour;
  pen.beginPath();
  pen.moveTo(from, y);
  pen.lineTo(to, y);
  pen.stroke();
}

function drawSeconds(pen, width, height, colour) {
  pen.fillStyle = colour("soft");
  pen.textBaseline = "bottom";
  for (const ago of [8, 6, 4, 2]) {
    pen.textAlign = "center";
    pen.fillText(`−${ago} s`, width - ((width - LEFT) * ago) / WINDOW, height);
  }
  pen.textAlign = "right";
  pen.fillText("now", width, height);
}
