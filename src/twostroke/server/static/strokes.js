// The two strokes: rate, and what of the machine's arithmetic and memory each reaches.

import { count, element, rates, say, seconds } from "./dom.js";

const IDLE = 2; // seconds without a step of the phase

export class Stroke {
  #card;
  #rate = element("p", { class: "rate" });
  #bound = element("p", { class: "legend" });
  #meters = [new Meter("arithmetic"), new Meter("memory")];

  constructor(card, name) {
    this.#card = card;
    const title = element("div", { class: "title" }, element("h2", { text: name }), this.#bound);
    const meters = element("div", { class: "meters" }, ...this.#meters.flatMap((meter) => meter.parts));
    card.append(title, this.#rate, meters);
    this.take(null, 0);
  }

  take(phase, now) {
    const isIdle = phase === null || now - phase.ended > IDLE;
    this.#card.classList.toggle("idle", isIdle);
    say(this.#bound, [phase?.bound && `${phase.bound}-bound`, isIdle && "idle"].filter(Boolean).join(" · "));
    if (phase === null) {
      this.#rate.replaceChildren("–", element("small", { text: " tok/s" }));
      for (const meter of this.#meters) meter.take(null);
      return;
    }
    const step = ` tok/s, ${seconds(phase.step_s)} a step`;
    this.#rate.replaceChildren(count(phase.tok_s), element("small", { text: step }));
    const [arithmetic, memory] = this.#meters;
    arithmetic.take(phase.achieved_flop_s, phase.roof_flop_s, "FLOP/s", phase.bound === "compute");
    memory.take(phase.achieved_byte_s, phase.roof_byte_s, "B/s", phase.bound === "memory");
  }
}

// One resource: achieved of its roof, as words and as a bar; without a known roof only the words.
class Meter {
  #words = element("span");
  #title;
  #fill = element("div");
  #bar = element("div", { class: "meter" }, this.#fill);

  constructor(name) {
    this.#title = element("p", { class: "meter-name" }, element("span", { text: name }), this.#words);
    this.parts = [this.#title, this.#bar];
  }

  take(achieved, roof = null, unit = "", limits = false) {
    const share = roof ? achieved / roof : 0;
    const percent = roof ? ` (${Math.round(share * 100)}%)` : "";
    say(this.#words, achieved === null ? "–" : `${rates(achieved, roof, unit)}${percent}`);
    this.#fill.style.width = `${Math.min(100, share * 100)}%`;
    this.#title.classList.toggle("limits", limits);
    this.#bar.classList.toggle("limits", limits);
    this.#bar.hidden = achieved !== null && !roof;
  }
}
