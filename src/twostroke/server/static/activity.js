// What the engine does now: asks the server several times a second while the page is seen, and shows what it says.

import { KeyNeeded, ask } from "./api.js";
import { count, element, find, say, seconds } from "./dom.js";
import { Pool } from "./pool.js";
import { Stroke } from "./strokes.js";
import { Timeline } from "./timeline.js";

const EVERY = 200; // milliseconds
const AFTER_FAULT = 2000;
const MAX_LANES = 8;
const MAX_ANSWERS = 8;

export class Activity {
  #timeline = new Timeline(find("timeline"));
  #pool = new Pool(find("pool"));
  #strokes = { prefill: new Stroke(find("prefill"), "Prefill"), decode: new Stroke(find("decode"), "Decode") };
  #timer = null;

  constructor(keyNeeded) {
    this.keyNeeded = keyNeeded;
    document.addEventListener("visibilitychange", () => this.start());
    this.start();
  }

  start() {
    clearTimeout(this.#timer);
    if (!document.hidden) this.#look();
  }

  async #look() {
    let wait = EVERY;
    try {
      const response = await ask(`/activity?since=${this.#timeline.since.toFixed(6)}`);
      this.#show(await response.json());
    } catch (error) {
      find("state").className = "fault";
      if (error instanceof KeyNeeded) {
        say(find("state"), "a key is needed");
        this.keyNeeded(error.message);
        return; // until there is one
      }
      say(find("state"), error instanceof TypeError ? "the server does not answer" : error.message);
      wait = AFTER_FAULT;
    }
    clearTimeout(this.#timer);
    if (!document.hidden) this.#timer = setTimeout(() => this.#look(), wait);
  }

  #show(activity) {
    find("state").className = "";
    const isBusy = activity.running + activity.waiting > 0;
    say(find("state"), isBusy ? `${count(activity.running)} running, ${count(activity.waiting)} waiting` : "idle");
    say(find("model"), `${activity.model} · ${count(activity.context)} tokens a request`);
    this.#timeline.take(activity);
    this.#pool.take(activity.kv);
    for (const [name, stroke] of Object.entries(this.#strokes)) stroke.take(activity.phases[name], activity.now);
    showLatest(this.#timeline.latest, activity.now);
    showQueue(activity);
    showAnswers(activity);
  }
}

function showLatest(step, now) {
  if (!step) return;
  const [start, length, prefill, decode] = step;
  const rows = [prefill && `${count(prefill)} prefill`, decode && `${count(decode)} decode`].filter(Boolean).join(" and ");
  const noun = prefill + decode === 1 ? "row" : "rows";
  say(find("last-step"), `latest step: ${rows} ${noun} in ${seconds(length)}, ${ago(now - start - length)}`);
}

const ago = (value) => (value < 1.5 ? "now" : value < 90 ? `${Math.round(value)} s ago` : `${count(value / 60)} min ago`);

function showQueue({ running, waiting, max_batch: most, requests }) {
  say(find("queue"), `${count(running)} of ${count(most)} running, ${count(waiting)} waiting`);
  const lanes = requests.slice(0, MAX_LANES).map(lane);
  const more = running - lanes.length;
  if (more > 0) lanes.push(element("li", { text: `and ${count(more)} more` }));
  if (!lanes.length) lanes.push(element("li", { text: "nothing runs" }));
  find("requests").replaceChildren(...lanes);
}

// A request's tokens end to end: found in the cache, computed, generated; what is left of its prompt is empty.
function lane(request) {
  const { prompt_tokens: prompt, computed_tokens: computed, cached_tokens: cached, completion_tokens: made } = request;
  const all = Math.max(prompt + made, 1);
  const bar = element("div", { class: "lane" });
  for (const [kind, tokens] of [["cached", cached], ["prefill", Math.max(0, computed - cached)], ["decode", made]]) {
    const part = element("div", { class: kind });
    part.style.width = `${(100 * tokens) / all}%`;
    bar.append(part);
  }
  const words = computed < prompt ? `${count(computed)} of ${count(prompt)} in` : `${count(prompt)} in, ${count(made)} out`;
  return element("li", {}, bar, element("span", { text: words }));
}

function showAnswers({ answers, now }) {
  if (!answers.length) return;
  const rows = answers.slice(-MAX_ANSWERS).reverse().map((answer) => {
    const end = answer.finish_reason === "cancelled" ? " (left)" : "";
    const cells = [
      count(answer.prompt_tokens),
      answer.cached_tokens ? count(answer.cached_tokens) : "–",
      `${count(answer.completion_tokens)}${end}`,
      seconds(answer.ttft_s),
      seconds(answer.tpot_s),
      ago(now - answer.ended).replace(" ago", ""),
    ];
    return element("tr", {}, ...cells.map((text) => element("td", { text })));
  });
  find("answers").replaceChildren(...rows);
}
