// The chat box: a conversation, its questions and streamed answers.

import { KeyNeeded, chat } from "./api.js";
import { count, element, find, say, seconds } from "./dom.js";

const log = find("log");

export class Chat {
  #messages = [];
  #running = null;

  constructor(keyNeeded) {
    this.keyNeeded = keyNeeded;
    const question = find("question");
    find("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send(question);
    });
    question.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send(question);
    });
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.#running?.abort());
    find("stop").addEventListener("click", () => this.#running?.abort());
    find("clear").addEventListener("click", () => this.#clear(question));
  }

  #clear(question) {
    this.#running?.abort();
    this.#messages = [];
    log.replaceChildren();
    question.focus();
  }

  async #send(question) {
    const text = question.value.trim();
    if (!text || this.#running) return;
    question.value = "";
    find("welcome")?.remove();
    log.append(element("div", { class: "message user" }, element("div", { class: "text", text })));
    const messages = this.#messages;
    messages.push({ role: "user", content: text });
    const answer = new Answer();
    this.#running = new AbortController();
    this.#enable();
    try {
      await this.#read(answer, messages, this.#running.signal);
    } catch (error) {
      answer.fail(error);
      if (error instanceof KeyNeeded) this.keyNeeded(error.message);
    }
    // A question without an answer is not part of the conversation; the next one would follow it directly.
    if (answer.text) messages.push({ role: "assistant", content: answer.text });
    else messages.pop();
    this.#running = null;
    this.#enable();
    answer.end();
  }

  async #read(answer, messages, signal) {
    const system = find("system").value.trim();
    const body = { messages: system ? [{ role: "system", content: system }, ...messages] : messages };
    if (find("temperature").value !== "") body.temperature = Number(find("temperature").value);
    if (find("max-tokens").value !== "") body.max_tokens = Number(find("max-tokens").value);
    for await (const chunk of chat(body, signal)) answer.take(chunk);
  }

  #enable() {
    find("send").disabled = this.#running !== null;
    find("stop").disabled = this.#running === null;
  }
}

// One answer as it comes.
class Answer {
  text = "";
  #reasoning = "";
  #reason = "";
  #body = element("div", { class: "text" });
  #thought = element("div", { class: "text" });
  #thinking = element("details", {}, element("summary", { text: "Reasoning" }), this.#thought);
  #account = element("p", { class: "account" });
  #whole = element("div", { class: "message waiting" }, this.#thinking, this.#body, this.#account);
  #isDrawn = true;

  constructor() {
    this.#thinking.hidden = true;
    log.append(this.#whole);
    log.scrollTop = log.scrollHeight;
  }

  take(chunk) {
    for (const { delta, finish_reason: reason } of chunk.choices) {
      this.text += delta.content ?? "";
      this.#reasoning += delta.reasoning_content ?? "";
      if (reason) this.#reason = reason;
    }
    if (chunk.twostroke) say(this.#account, accountOf(chunk, this.#reason));
    if (this.#isDrawn) requestAnimationFrame(() => this.#draw());
    this.#isDrawn = false;
  }

  fail(error) {
    const isStopped = error.name === "AbortError";
    const fault = element("p", { class: isStopped ? "account" : "fault", text: isStopped ? "stopped" : error.message });
    this.#account.replaceWith(fault);
  }

  end() {
    this.#whole.classList.remove("waiting");
    this.#draw();
  }

  #draw() {
    this.#isDrawn = true;
    const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    this.#body.replaceChildren(...parts(this.text));
    this.#thinking.hidden = this.#reasoning === "";
    say(this.#thought, this.#reasoning.trim());
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }
}

// Text with its fenced code set apart; the rest stays as the model wrote it.
function parts(text) {
  return text.split(/^```/m).map((part, index) => {
    if (index % 2 === 0) return document.createTextNode(index ? part.replace(/^[ \t]*\n/, "") : part);
    const start = part.indexOf("\n") + 1;
    return element("pre", {}, element("code", { text: start ? part.slice(start).replace(/\n$/, "") : "" }));
  });
}

function accountOf({ usage, twostroke }, reason) {
  const cached = usage.prompt_tokens_details.cached_tokens;
  const prompt = `${count(usage.prompt_tokens)} tokens in${cached ? ` (${count(cached)} cached)` : ""}`;
  const answer = `${count(usage.completion_tokens)} out${reason === "length" ? ", cut there" : ""}`;
  const pace = twostroke.tpot_s === null ? "" : ` · TPOT ${seconds(twostroke.tpot_s)}`;
  return `${prompt} · ${answer} · TTFT ${seconds(twostroke.ttft_s)}${pace}`;
}
