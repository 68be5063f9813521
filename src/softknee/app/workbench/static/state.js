// What the page shows, and the address that says it: ?f=srelu~delta=0.5&f=gelu&x=-3,3&in=normal,0,1&pick=1&run=...

import { plain } from "./dom.js";

export const MOST = 4;
const WIDEST = 1e6;
const NARROWEST = 1e-5;
const START = { text: "srelu", values: {}, real: [], hidden: false };

export const state = empty();
const watchers = [];

function empty() {
  return {
    functions: [],
    picked: 0,
    low: null,
    high: null,
    density: { kind: "normal", mean: 0, scale: 1 },
    run: null,
  };
}

// Whoever draws something is told what has changed: "all", "function", "view", "density", "picked", "run".
export function watch(callback) {
  watchers.push(callback);
}

export function changed(what, detail) {
  for (const callback of watchers) callback(what, detail);
}

export function picked() {
  return state.functions[state.picked] ?? state.functions[0];
}

// What the server is told of a function. (Its `last` is the parameter that was moved last, which a pull of the curve prefers.)
export function spec(one) {
  return { text: one.text, values: one.values, real: one.real };
}

export function address() {
  const query = new URLSearchParams();
  for (const one of state.functions) query.append("f", written(one));
  if (state.picked) query.set("pick", state.picked);
  if (state.low !== null) query.set("x", `${end(state.low)},${end(state.high)}`);
  const density = state.density;
  if (density.kind === "data") {
    query.set("in", "data");
    query.set("of", `${density.file}~${density.count}`);
    query.set("data", density.sketch);
  } else if (density.kind !== "normal" || density.mean !== 0 || density.scale !== 1) {
    query.set("in", `${density.kind},${plain(density.mean)},${plain(density.scale)}`);
  }
  if (state.run) query.set("run", state.run);
  return `/?${query}`;
}

// An end of the view, to a millionth of its width: a picture has fewer points.
function end(value) {
  return plain(Number(value.toFixed(Math.max(0, 6 - Math.floor(Math.log10(state.high - state.low))))));
}

// Whether a view can be drawn and asked for: far out or very narrow, the numbers are too coarse for its ticks.
export function isView(low, high) {
  const far = Math.max(Math.abs(low), Math.abs(high));
  const wide = high - low;
  return wide >= Math.max(NARROWEST, 1e-8 * far) && wide <= WIDEST && far <= WIDEST;
}

function written(one) {
  const numbers = Object.entries(one.values).map(([name, value]) => `~${name}=${plain(value)}${one.real.includes(name) ? ":real" : ""}`);
  return (one.hidden ? "!" : "") + one.text + numbers.join("");
}

export function readAddress() {
  const query = new URLSearchParams(location.search);
  const found = empty();
  found.functions = query.getAll("f").slice(0, MOST).map(readFunction);
  if (!found.functions.length) found.functions = [structuredClone(START)];
  found.picked = Math.min(Math.max(0, Number.parseInt(query.get("pick") ?? "0", 10) || 0), found.functions.length - 1);
  const ends = (query.get("x") ?? "").split(",").map(Number);
  if (query.has("x") && ends.length === 2 && isView(...ends)) [found.low, found.high] = ends;
  const [kind, mean, scale] = (query.get("in") ?? "").split(",");
  if (kind === "data") {
    const of = (query.get("of") ?? "").split("~"); // the name of a file may have such a sign too
    const count = Number(of.pop()) || 0;
    found.density = { kind, mean: 0, scale: 1, sketch: query.get("data") ?? "", file: of.join("~"), count };
  } else if (kind) {
    found.density = { kind, mean: finite(mean, 0), scale: finite(scale, 1) };
  }
  found.run = query.get("run");
  Object.assign(state, found);
}

function finite(text, usual) {
  return text !== undefined && Number.isFinite(Number(text)) ? Number(text) : usual;
}

function readFunction(text) {
  const hidden = text.startsWith("!");
  const [body, ...numbers] = (hidden ? text.slice(1) : text).split("~");
  const one = { text: body, values: {}, real: [], hidden };
  for (const part of numbers) {
    const [name, value] = part.split("=");
    const [number, kind] = (value ?? "").split(":");
    if (name && number !== "" && Number.isFinite(Number(number))) one.values[name] = Number(number);
    if (kind === "real") one.real.push(name);
  }
  return one;
}

// The history. A movement (of a slider, a text being written, a zoom) is one entry from its first change to a second of
// rest or to what is done next; a step is an entry at once; what nobody would go back to ("quiet") is none.
let moving = null;
let writing = 0;
let resting = 0;

export function remember({ step = false, quiet = false, by = step ? null : "view" } = {}) {
  clearTimeout(writing);
  if (quiet) {
    history.replaceState(null, "", address());
  } else if (step) {
    put(moving === null || moving !== by); // the end of a movement is no entry of its own
    rest();
  } else {
    if (moving === by) writing = setTimeout(() => put(false), 200); // a browser allows only so many in a second
    else put(true);
    moving = by;
    clearTimeout(resting);
    resting = setTimeout(rest, 1000);
  }
}

function put(anew) {
  if (address() === location.pathname + location.search) return;
  if (anew) history.pushState(null, "", address());
  else history.replaceState(null, "", address());
}

function rest() {
  clearTimeout(resting);
  moving = null;
}

export function restoreOnBack() {
  addEventListener("popstate", () => {
    clearTimeout(writing);
    rest();
    readAddress();
    changed("all");
  });
}
