// Elements and figures. All text goes through textContent: nothing a model or a server says is ever markup.

export const find = (id) => document.getElementById(id);

export function element(tag, options = {}, ...children) {
  const made = document.createElement(tag);
  if (options.class) made.className = options.class;
  if (options.text !== undefined) made.textContent = options.text;
  made.append(...children);
  return made;
}

// Changes a text only where it differs, so that a screen reader and a selection are left alone.
export function say(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export const count = (number) => Math.round(number).toLocaleString("en");

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.01) return `${(value * 1e3).toFixed(2)} ms`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.1 ? 1 : 0)} ms`;
  return `${value.toFixed(value < 10 ? 2 : 0)} s`;
}

// Two rates in one unit: "238 of 472 GFLOP/s".
export function rates(achieved, roof, unit) {
  const top = roof ?? achieved;
  const [scale, prefix] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1, ""]].find(([size]) => top >= size) ?? [1, ""];
  const digits = (value) => (value / scale).toPrecision(3).replace(/e.*/, "");
  const shown = (value) => (value / scale >= 100 ? Math.round(value / scale).toString() : digits(value));
  return `${shown(achieved)}${roof === null ? "" : ` of ${shown(roof)}`} ${prefix}${unit}`;
}
