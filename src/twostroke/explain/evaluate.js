// A plan evaluated from a program's cost terms and a machine's constants (`what_if.py` gives both). Owns no formula of
// any op: it counts a step's units (docs/cost.md), multiplies, and adds up seconds. Touches no page.
"use strict";

const WEIGHT_PARTS = ["weights", "experts"];

function rowsBefore(position, size) {
  const full = Math.floor(position / size), rest = position - full * size;
  return full * (size * (size + 1) / 2) + rest * (rest + 1) / 2;
}

const ON_CONTEXT = {
  row_context(chunk, window) {
    const end = chunk.start + chunk.length;
    if (window === null || end <= window) return (chunk.start + 1 + end) * chunk.length / 2;
    const growing = Math.max(0, window - chunk.start);
    return (2 * chunk.start + 1 + growing) * growing / 2 + (chunk.length - growing) * window;
  },
  chunk_context(chunk, window) {
    const end = chunk.start + chunk.length;
    return window === null ? end : Math.min(end, window + chunk.length - 1);
  },
  row_segment: (chunk, size) => rowsBefore(chunk.start + chunk.length, size) - rowsBefore(chunk.start, size),
  chunk_segment: (chunk, size) => chunk.start + chunk.length - Math.floor(chunk.start / size) * size,
};

// How many of a unit a step has. A chunk is {start, length, outputs, phase, count}: `count` requests with the same rows.
function measure(unit, scope, chunks) {
  const total = (of) => chunks.reduce((sum, chunk) => sum + chunk.count * of(chunk), 0);
  const phase = /^(prefill|decode)_(.+)$/.exec(unit);
  if (phase) return measure(phase[2], scope, chunks.filter((chunk) => chunk.phase === phase[1]));
  if (Array.isArray(scope)) {
    const [experts, chosen] = scope;
    return experts * (1 - Math.pow(1 - chosen / experts, total((chunk) => chunk.length)));
  }
  if (unit in ON_CONTEXT) return total((chunk) => ON_CONTEXT[unit](chunk, scope));
  switch (unit) {
    case "step": return chunks.length ? 1 : 0;
    case "output_step": return chunks.some((chunk) => chunk.outputs) ? 1 : 0;
    case "row": return total((chunk) => chunk.length);
    case "output": return total((chunk) => chunk.outputs);
    case "chunk": return total(() => 1);
    default: throw new Error("no unit " + unit);
  }
}

function coefficient(term, bits) {
  return bits === null || !WEIGHT_PARTS.includes(term.part) ? term.coefficient : term.fixed + term.per_bit * bits;
}

function sized(weights, bits) {
  return bits === null ? weights.bytes : weights.fixed + weights.per_bit * bits;
}

// The work of a step, its FLOPs by how they are computed: of generated rows, those beyond few_rows run as prompts do, and
// whole tiles of tile_rows together.
function work(data, bits, chunks, engine) {
  const prompts = chunks.filter((chunk) => chunk.phase === "prefill");
  const generated = chunks.filter((chunk) => chunk.phase === "decode");
  const found = nothing();
  for (const term of data.terms) {
    const each = coefficient(term, bits);
    if (term.part === "rows" || term.part === "attention") {
      const [ofPrompts, others] = term.part === "rows" ? ["prompt", "generated"] : ["prompt_attention", "attention"];
      found[ofPrompts] += each * measure(term.unit, term.scope, prompts);
      found[others] += each * measure(term.unit, term.scope, generated);
    } else {
      found[term.part] += each * measure(term.unit, term.scope, chunks);
    }
  }
  const rows = measure("row", null, generated);
  const few = rows ? Math.min(1, engine.few_rows / rows) : 1, tile = engine.tile_rows;
  const tiled = tile && rows ? few * Math.floor(rows / tile) * tile / rows : 0;
  found.requests = generated.reduce((sum, chunk) => sum + (chunk.count || 1), 0);
  found.prompt += (1 - few) * found.generated;
  found.tiled = tiled * found.generated;
  found.generated *= few - tiled;
  if (prompts.length) found.expanded = expanded(data, bits, prompts);
  return found;
}

// FLOPs of one row, had it chosen all experts that any row of these chose: what expanding weights is counted in.
function expanded(data, bits, prompts) {
  let oneRow = 0, everyStep = 0, byOne = 0, byAll = 0;
  for (const term of data.terms) {
    const each = coefficient(term, bits);
    if (term.part === "rows" && term.unit === "row") oneRow += each;
    if (term.part === "weights" && term.unit === "step") everyStep += each;
    if (term.part === "experts") {
      byOne += each * term.scope[1];
      byAll += each * measure(term.unit, term.scope, prompts);
    }
  }
  return oneRow * (everyStep + byAll) / (everyStep + byOne);
}

function nothing() {
  return {
    requests: 0, weights: 0, experts: 0, kv: 0, activations: 0,
    attention: 0, prompt_attention: 0, prompt: 0, expanded: 0, generated: 0, tiled: 0,
  };
}

// Of so many seconds of reading and of arithmetic, what is left where they go on together (step_time.py).
function together(memory, compute, overlap) {
  const longer = Math.max(memory, compute);
  if (!longer || overlap === 1) return 1;
  return longer * Math.pow(Math.pow(memory / longer, overlap) + Math.pow(compute / longer, overlap), 1 / overlap)
    / (memory + compute);
}

// Bytes per second at a working set: between points linear over its logarithm, flat beyond them.
function bandwidth(points, size) {
  const after = points.findIndex((point) => point[0] >= size);
  if (after === 0) return points[0][1];
  if (after < 0) return points[points.length - 1][1];
  const [low, below] = points[after - 1], [high, above] = points[after];
  return below + Math.log(size / low) / Math.log(high / low) * (above - below);
}

// Steps of the same kind: [{chunks, count}] to seconds by what they are spent on, with the range of 80% of runs, memory
// being as slow and as fast as it was seen.
function predict(data, machine, engine, bits, steps, band) {
  const total = { steps: 0, ...nothing() };
  for (const step of steps) {
    const found = work(data, bits, step.chunks, engine);
    total.steps += step.count;
    for (const part of Object.keys(found)) total[part] += step.count * found[part];
  }
  const read = total.weights + total.experts + total.kv;
  const flops = total.prompt + total.generated + total.tiled + total.attention + total.prompt_attention;
  const rate = bandwidth(machine.read_bandwidth, read / total.steps), [slow, fast] = machine.memory_span;
  const at = (factor) => spent(data, machine, engine, total, rate * factor);
  const { all, memory, compute, overhead, cache } = at(1);
  const floor = Math.max(read / (rate * fast), flops * machine.s_per_flop[engine.prompt_on]);
  return {
    seconds: all, low: Math.max(floor, band[0] * at(fast).all), high: band[1] * at(slow).all,
    memory, compute, overhead, cache, bound: compute > memory ? "compute" : "memory",
    flops, weight_bytes: total.weights + total.experts, kv_bytes: total.kv, intensity: flops / read,
  };
}

// Seconds of work at a rate of memory, by what they are spent on.
function spent(data, machine, engine, total, rate) {
  const perFlop = (kind) => machine.s_per_flop[engine[kind + "_on"]];
  const seconds = {
    step: total.steps, layer: total.steps * data.num_layers, request: total.requests,
    weights: total.weights / rate, experts: total.experts / rate, kv: total.kv / rate,
    generated: total.generated * perFlop("generated"), tiled: total.tiled * perFlop("generated"),
    prompt: total.prompt * perFlop("prompt"), expanded: total.expanded * perFlop("prompt"),
    attention: total.attention * perFlop("attention"),
    prompt_attention: total.prompt_attention * perFlop("attention"),
    activations: total.activations / machine.read_bandwidth[0][1],
  };
  for (const part of Object.keys(seconds)) seconds[part] *= engine.factors[part];
  const sum = (parts) => parts.reduce((found, part) => found + seconds[part], 0);
  const reading = ["weights", "experts"], computing = ["generated", "tiled", "prompt", "expanded"];
  for (const [moved, done] of [[reading, computing], [["kv"], ["attention", "prompt_attention"]]]) {
    const left = together(sum(moved), sum(done), engine.overlap);
    for (const part of [...moved, ...done]) seconds[part] *= left;
  }
  const memory = sum([...reading, "kv"]), overhead = sum(["step", "layer", "request"]);
  const compute = sum([...computing, "attention", "prompt_attention", "activations"]);
  return { all: memory + compute + overhead, memory, compute, overhead, cache: seconds.kv };
}

// The steps that take `batch` prompts: short ones share a step, long ones are cut into chunks.
function prefillSteps(prompt, batch, chunkTokens) {
  const chunk = (start, length, outputs, count) => ({ start, length, outputs, count, phase: "prefill" });
  const steps = [];
  if (prompt >= chunkTokens) {
    for (let at = 0; at < prompt; at += chunkTokens) {
      const length = Math.min(chunkTokens, prompt - at);
      steps.push({ chunks: [chunk(at, length, at + length === prompt ? 1 : 0, 1)], count: batch });
    }
    return steps;
  }
  const together = Math.max(1, Math.floor(chunkTokens / prompt)), whole = Math.floor(batch / together);
  if (whole) steps.push({ chunks: [chunk(0, prompt, 1, together)], count: whole });
  if (batch % together) steps.push({ chunks: [chunk(0, prompt, 1, batch % together)], count: 1 });
  return steps;
}

// Bytes that `batch` requests of `context` tokens keep: by blocks where the machine's engine has them.
function keptBytes(data, machine, batch, context) {
  if (machine.block_bytes !== null) return Math.ceil(batch * context / machine.block_tokens) * machine.block_bytes;
  return batch * data.caches.reduce((sum, cache) => {
    const tokens = Math.min(context, cache.window || context, cache.segment || context);
    return sum + tokens * cache.elements_per_token * data.bits.kv / 8 + cache.state_elements * data.bits.state / 8;
  }, 0);
}

// What a choice {machine, width, batch, context} gives: indices of both lists, requests, tokens of each prompt.
function evaluate(data, choice) {
  const machine = data.machines[choice.machine], width = data.widths[choice.width], bits = width.bits;
  const engine = data.engines[`${machine.engine}/${width[machine.by] ?? "own"}`];
  const { batch, context } = choice;
  const band = (phase) => engine.bands[phase][batch > 1 ? 1 : 0];
  const token = { start: context, length: 1, outputs: 1, count: batch, phase: "decode" };
  const decode = predict(data, machine, engine, bits, [{ chunks: [token], count: 1 }], band("decode"));
  const prompts = prefillSteps(context, batch, engine.chunk_tokens);
  const prefill = machine.knows_flops ? predict(data, machine, engine, bits, prompts, band("prefill")) : null;
  const onHost = machine.embeds_on_host ? sized(data.embedding, bits) : 0;
  const memory = {
    weights: sized(data.weights, bits) - onHost, cache: keptBytes(data, machine, batch, context + 1),
    rest: machine.rest_bytes + machine.rest_bytes_per_token * (context + 1), capacity: machine.capacity_bytes,
  };
  memory.total = memory.weights + memory.cache + memory.rest;
  memory.fits = memory.capacity === null ? null : memory.total <= memory.capacity;
  return { decode, prefill, memory, engine: engine.name };
}
