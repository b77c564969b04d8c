// The sliders: reads a choice from the controls, evaluates it, writes figures. Owns no arithmetic of its own.
"use strict";

(function () {
  const data = JSON.parse(document.getElementById("what-if-data").textContent);
  const byId = (id) => document.getElementById(id);
  const contexts = [data.context];
  for (let size = 128; size < data.max_context; size *= 2) contexts.push(size);
  contexts.push(data.max_context);
  const sorted = [...new Set(contexts)].sort((a, b) => a - b);

  function scaled(value, step, units) {
    let index = 0;
    while (Math.round(value) >= step && index + 1 < units.length) { value /= step; index += 1; }
    return value.toFixed(index === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + units[index];
  }
  const bytes = (value) => scaled(value, 1024, [" B", " KiB", " MiB", " GiB", " TiB", " PiB"]);
  const count = (value) => value < 100 ? value.toPrecision(3) : scaled(value, 1000, ["", " k", " M", " G", " T", " P"]);
  const digits = (value) => value >= 100 ? value.toFixed(0) : Number(value.toPrecision(3)).toString();
  function time(seconds) {
    if (seconds >= 1) return digits(seconds) + " s";
    return seconds >= 1e-3 ? digits(seconds * 1e3) + " ms" : digits(seconds * 1e6) + " µs";
  }

  function fill(id, value) { byId(id).textContent = value; }
  const range = (stroke) => `${time(stroke.seconds)} (${time(stroke.low)} to ${time(stroke.high)})`;

  const initial = { machine: 0, width: 0, batch: data.batch, context: data.context };
  const first = evaluate(data, initial);

  function choice() {
    return {
      machine: Number(byId("machine").value), width: Number(byId("width").value),
      batch: Number(byId("batch").value), context: sorted[Number(byId("context").value)],
    };
  }

  function show() {
    const chosen = choice(), found = evaluate(data, chosen), decode = found.decode, memory = found.memory;
    const rate = chosen.batch / decode.seconds, width = data.widths[chosen.width];
    byId("width").setAttribute("aria-valuetext", width.label);
    byId("context").setAttribute("aria-valuetext", chosen.context + " tokens");
    fill("batch-out", chosen.batch);
    fill("width-out", width.label);
    fill("context-out", chosen.context.toLocaleString("en"));
    fill("tpot", range(decode));
    fill("ttft", found.prefill ? range(found.prefill) : "not known: no published FLOP/s");
    fill("rate", `${count(1 / decode.seconds)} tok/s each, ${count(rate)} tok/s in all`);
    fill("change", `${(rate * first.decode.seconds / initial.batch).toFixed(2)} times`);
    fill("bound", `${decode.bound}-bound, ${count(decode.intensity)} FLOPs per byte`);
    fill("moved", `${bytes(decode.weight_bytes)} of weights, ${bytes(decode.kv_bytes)} of KV cache`);
    fill("flops", `${count(decode.flops)}FLOP`.replace(/(\d)FLOP/, "$1 FLOP"));
    fill("needs", `${bytes(memory.weights)} + ${bytes(memory.cache)} + ${bytes(memory.rest)} = ${bytes(memory.total)}`);
    const fits = memory.fits === null ? "memory not known"
      : memory.fits ? `yes, of ${bytes(memory.capacity)}` : `no, there are ${bytes(memory.capacity)}`;
    fill("fits", fits);
    byId("fits").className = memory.fits === false ? "bad" : "";
    const parts = { weights: decode.memory - decode.cache, kv: decode.cache, compute: decode.compute, engine: decode.overhead };
    for (const [name, seconds] of Object.entries(parts)) {
      const percent = 100 * seconds / decode.seconds;
      byId("split-" + name).style.width = percent + "%";
      fill("share-" + name, Math.round(percent) + "%");
    }
    fill("engine", found.engine);
  }

  byId("context").max = sorted.length - 1;
  byId("context").value = sorted.indexOf(data.context);
  for (const id of ["machine", "width", "batch", "context"]) byId(id).addEventListener("input", show);
  byId("reset").addEventListener("click", () => {
    byId("machine").value = 0; byId("width").value = 0; byId("batch").value = data.batch;
    byId("context").value = sorted.indexOf(data.context);
    show();
  });
  byId("what-if-body").hidden = false;
  show();
})();
