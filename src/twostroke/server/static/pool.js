// The KV pool as blocks: each square is a block, or some neighbours together, filled from below by what they hold.

import { count, find, say } from "./dom.js";

const GAP = 2;
const KINDS = ["shared", "used", "kept"];

export class Pool {
  #canvas;
  #kv = null;

  constructor(canvas) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.#draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
  }

  take(kv) {
    this.#kv = kv;
    for (const kind of [...KINDS, "free"]) say(find(`pool-${kind}`), count(kv[kind]));
    const together = kv.blocks_a_cell > 1 ? `, ${kv.blocks_a_cell} a square` : "";
    say(find("pool-size"), `${count(kv.num_blocks)} blocks of ${kv.block_tokens} tokens${together}`);
    const label = `KV pool: ${kv.used} blocks used by one request, ${kv.shared} shared, ${kv.kept} kept, ${kv.free} free`;
    if (this.#canvas.ariaLabel !== label) this.#canvas.ariaLabel = label;
    this.#draw();
  }

  #draw() {
    if (!this.#kv) return;
    const { cells, num_blocks: numBlocks, blocks_a_cell: each } = this.#kv;
    const width = this.#canvas.clientWidth;
    const number = cells.used.length;
    const size = number > 240 ? 9 : 13;
    const columns = Math.max(1, Math.floor((width + GAP) / (size + GAP)));
    const height = Math.max(1, Math.ceil(number / columns)) * (size + GAP);
    const ratio = devicePixelRatio;
    this.#canvas.width = width * ratio;
    this.#canvas.height = height * ratio;
    this.#canvas.style.height = `${height}px`;
    const pen = this.#canvas.getContext("2d");
    const style = getComputedStyle(this.#canvas);
    const colours = Object.fromEntries([...KINDS, "free"].map((kind) => [kind, style.getPropertyValue(`--${kind}`)]));
    pen.scale(ratio, ratio);
    for (let index = 0; index < number; index += 1) {
      const x = (index % columns) * (size + GAP);
      const y = Math.floor(index / columns) * (size + GAP);
      pen.fillStyle = colours.free;
      pen.fillRect(x, y, size, size);
      const whole = Math.min(each, numBlocks - index * each);
      let bottom = y + size;
      for (const kind of KINDS) {
        const tall = (size * cells[kind][index]) / whole;
        pen.fillStyle = colours[kind];
        pen.fillRect(x, bottom - tall, size, tall);
        bottom -= tall;
      }
    }
  }
}
