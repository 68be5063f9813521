// The three panels: paths from numbers, ticks, the hard limit, the largest distance, the inputs below, and a crosshair.

import { el, key, shown, svg } from "./dom.js";
import { picked, state } from "./state.js";

const EDGE = { left: 46, right: 12, top: 8, bottom: 24 };
const strip = (height) => (height < 260 ? 30 : 58); // below the first panel: the inputs
const ORDERS = 3;
const drawn = new Map(); // by function: the last good answer of the server, its numbers unpacked
let shape = null; // of the inputs
let crosshair = null;
let held = null; // the heights of the first panel while a curve is dragged: under the hand the scale stays
const panels = [];

export function unpacked(answer) {
  const lines = (curve) => curve.lines.map((one) => ({ x: floats(one.x), y: floats(one.y) }));
  return {
    ...answer,
    lines: lines(answer.curve),
    masses: answer.curve.masses,
    hard: answer.limit ? { name: answer.limit.name, lines: lines(answer.limit.curve) } : null,
  };
}

function floats(text) {
  const signs = atob(text);
  const bytes = new Uint8Array(signs.length);
  for (let i = 0; i < signs.length; i++) bytes[i] = signs.charCodeAt(i); // `from` would take 3 ms of a slider's 50
  return new Float64Array(bytes.buffer);
}

export function keep(one, answer) {
  drawn.set(one, answer);
}
export function known(one) {
  return drawn.get(one);
}
export function forgetOthers() {
  for (const one of drawn.keys()) if (!state.functions.includes(one)) drawn.delete(one);
}
export function showInputs(found) {
  shape = found;
}

export function makePanels(root) {
  for (const figure of root.querySelectorAll(".panel")) {
    const picture = svg("svg", { role: "img", "aria-label": figure.querySelector("figcaption").textContent });
    figure.append(picture);
    panels.push({ order: Number(figure.dataset.order), picture, figure });
  }
  new ResizeObserver(() => draw()).observe(root);
  return panels;
}

export function view() {
  return [state.low ?? -4, state.high ?? 4];
}

function visible() {
  return state.functions
    .map((one, place) => ({ one, place, data: drawn.get(one) }))
    .filter(({ one, data }) => data && !one.hidden);
}

// -- scales ------------------------------------------------------------------------------------------------

function heights(order, low, high) {
  const found = [0];
  const add = (line) => {
    if (!line) return;
    for (let i = 0; i < line.x.length; i++) {
      if (line.x[i] >= low && line.x[i] <= high && Number.isFinite(line.y[i])) found.push(line.y[i]);
    }
  };
  for (const { data } of visible()) {
    add(data.lines[order]);
    if (order < 2) add(data.hard?.lines[order]);
    if (order === 2) found.push(...data.masses.filter(([x]) => x >= low && x <= high).map(([, weight]) => weight));
  }
  if (found.length < 2) return [-1, 1];
  const values = Float64Array.from(found).sort();
  let [bottom, top] = [values[0], values[values.length - 1]];
  // A pole would leave everything else flat: then the middle 96 of 100 points, and room around them.
  const [q1, q2] = [values[Math.floor(0.02 * values.length)], values[Math.ceil(0.98 * values.length) - 1]];
  if (top - bottom > 60 * Math.max(q2 - q1, 1e-12)) [bottom, top] = [Math.min(q1 - (q2 - q1), 0), Math.max(q2 + (q2 - q1), 0)];
  if (top - bottom < 1e-12) [bottom, top] = [bottom - 1, top + 1];
  const room = 0.07 * (top - bottom);
  return [bottom - room, top + room];
}

export function ticks(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) found.push(i * step);
  return found.map((one) => (Math.abs(one) < 1e-9 * step ? 0 : one));
}

function scales(panel) {
  const width = panel.picture.clientWidth || 400;
  const height = panel.picture.clientHeight || 200;
  const [low, high] = view();
  const [bottom, top] = (panel.order === 0 && held) || heights(panel.order, low, high);
  const below = EDGE.bottom + (panel.order === 0 ? strip(height) : 0);
  const inner = { left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom: height - below };
  const x = (value) => inner.left + ((value - low) / (high - low)) * (inner.right - inner.left);
  const y = (value) => inner.bottom - ((value - bottom) / (top - bottom)) * (inner.bottom - inner.top);
  return { width, height, low, high, bottom, top, inner, x, y };
}

export function placeAt(panel, clientX) {
  const box = panel.picture.getBoundingClientRect();
  const [low, high] = view();
  return low + ((clientX - box.left - EDGE.left) / (box.width - EDGE.left - EDGE.right)) * (high - low);
}

export function heightAt(panel, clientY) {
  const { inner, bottom, top } = panel.to;
  return bottom + ((inner.bottom - (clientY - panel.picture.getBoundingClientRect().top)) / (inner.bottom - inner.top)) * (top - bottom);
}

export function holdScale(panel) {
  held = panel ? [panel.to.bottom, panel.to.top] : null;
}

// What of the first panel lies under a pointer and can be dragged: a handle of the picked function, else the nearest curve.
export function under(panel, event) {
  if (panel.order !== 0 || !panel.to) return null;
  const box = panel.picture.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left, event.clientY - box.top];
  const { to } = panel;
  const reach = event.pointerType === "mouse" ? 9 : 26;
  if (x < to.inner.left || x > to.inner.right || y > to.inner.bottom + 4) return null;
  const near = handlesOf().map((handle) => [Math.hypot(to.x(handle.x) - x, to.y(handle.y) - y), { one: picked(), handle }]);
  near.sort((a, b) => a[0] - b[0]);
  if (near.length && near[0][0] <= reach) return near[0][1];
  const curves = visible().filter(({ data }) => data.params.length).map(({ one, data }) => [away(data.lines[0], to, x, y), { one }]);
  curves.sort((a, b) => a[0] - b[0]);
  return curves.length && curves[0][0] <= reach ? curves[0][1] : null;
}

// The distance of a point from a line, as it is drawn.
function away(line, to, x, y) {
  let least = Infinity;
  for (let i = 0; i + 1 < line.x.length; i++) {
    const [ax, ay, bx, by] = [to.x(line.x[i]), to.y(line.y[i]), to.x(line.x[i + 1]), to.y(line.y[i + 1])];
    if (!(Number.isFinite(ay) && Number.isFinite(by)) || Math.min(ax, bx) - x > least || x - Math.max(ax, bx) > least) continue;
    const t = Math.max(0, Math.min(1, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / Math.max((bx - ax) ** 2 + (by - ay) ** 2, 1e-9)));
    least = Math.min(least, Math.hypot(ax + t * (bx - ax) - x, ay + t * (by - ay) - y));
  }
  return least;
}

function handlesOf() {
  return picked().hidden ? [] : drawn.get(picked())?.handles ?? [];
}

export function innerWidth(panel) {
  return panel.picture.clientWidth - EDGE.left - EDGE.right;
}

// -- drawing -----------------------------------------------------------------------------------------------

export function path(line, to) {
  let text = "";
  let pen = false;
  const far = 4 * to.height;
  for (let i = 0; i < line.x.length; i++) {
    const y = line.y[i];
    if (!Number.isFinite(y) || !Number.isFinite(line.x[i])) {
      pen = false;
      continue;
    }
    const place = Math.max(-far, Math.min(far, to.y(y)));
    text += `${pen ? "L" : "M"}${to.x(line.x[i]).toFixed(1)} ${place.toFixed(1)}`;
    pen = true;
  }
  return text;
}

export function draw() {
  for (const panel of panels) drawPanel(panel);
  drawLegend();
  if (crosshair !== null) drawCross();
}

function drawPanel(panel) {
  const to = scales(panel);
  panel.to = to;
  const { inner } = to;
  const name = `inside${panel.order}`;
  const clip = svg("clipPath", { id: name }, svg("rect", { x: inner.left, y: inner.top - 4, width: Math.max(0, inner.right - inner.left), height: Math.max(0, inner.bottom - inner.top + 8) }));
  const inside = svg("g", { "clip-path": `url(#${name})` });
  const parts = [svg("defs", {}, clip), ...frame(to)];
  if (panel.order === 0 && shape) parts.push(...inputs(to));
  const limits = new Set();
  for (const { data } of visible()) {
    const line = data.hard?.lines[panel.order];
    if (!line || panel.order > 1) continue;
    const d = path(line, to);
    if (!limits.has(d)) inside.append(svg("path", { class: "limit", d }));
    limits.add(d);
  }
  for (const { data, place, one } of visible()) {
    const faint = one === picked() || state.functions.length === 1 ? "" : " faint";
    inside.append(svg("path", { class: `line s${place}${faint}`, d: path(data.lines[panel.order], to), "data-function": place }));
    if (panel.order === 2) for (const [x, weight] of data.masses) inside.append(arrow(to, x, weight, place));
  }
  if (panel.order === 0) {
    for (const { x, y, name } of handlesOf()) inside.append(svg("circle", { class: `handle${name ? " point" : ""} t${state.picked}`, cx: to.x(x), cy: to.y(y), r: name ? 5 : 4 }));
    inside.append(...gap(to));
  }
  panel.picture.replaceChildren(...parts, inside, svg("g", { class: "over" }));
}

function frame(to) {
  const { inner } = to;
  const parts = [];
  for (const at of ticks(to.low, to.high, Math.max(4, (inner.right - inner.left) / 80))) {
    parts.push(svg("line", { class: at === 0 ? "zero" : "grid", x1: to.x(at), x2: to.x(at), y1: inner.top, y2: inner.bottom }));
    parts.push(svg("text", { x: to.x(at), y: inner.bottom + 16, "text-anchor": "middle" }, shown(at, 6)));
  }
  for (const at of ticks(to.bottom, to.top, Math.max(2.5, (inner.bottom - inner.top) / 48))) {
    parts.push(svg("line", { class: at === 0 ? "zero" : "grid", x1: inner.left, x2: inner.right, y1: to.y(at), y2: to.y(at) }));
    parts.push(svg("text", { x: inner.left - 7, y: to.y(at) + 4, "text-anchor": "end" }, shown(at, 6)));
  }
  return parts;
}

function arrow(to, x, weight, place) {
  const [at, from, end] = [to.x(x), to.y(0), to.y(weight)];
  const back = weight > 0 ? 9 : -9;
  return svg("path", { class: `mass s${place}`, d: `M${at} ${from}V${end}M${at - 4.5} ${end + back}L${at} ${end}L${at + 4.5} ${end + back}` });
}

// The inputs, in a strip of their own that has the x of the curve above.
function inputs(to) {
  const floor = to.height - 2;
  const room = strip(to.height) - 10;
  const label = svg("text", { x: to.inner.left - 7, y: floor - 4, "text-anchor": "end" }, "inputs");
  const line = svg("line", { class: "zero", x1: to.inner.left, x2: to.inner.right, y1: floor, y2: floor });
  const put = (x) => Math.max(to.inner.left, Math.min(to.inner.right, to.x(x))).toFixed(1);
  let d = "";
  if (shape.bars) {
    const { low, high, share } = shape.bars;
    const most = Math.max(...share, 1e-12);
    const wide = (high - low) / share.length;
    share.forEach((one, i) => {
      if (one > 0) d += `M${put(low + (i + 0.06) * wide)} ${floor}V${(floor - (one / most) * room).toFixed(1)}H${put(low + (i + 0.94) * wide)}V${floor}Z`;
    });
  } else {
    const { x, y } = shape.line;
    const most = Math.max(...y, 1e-12);
    d = `M${put(x[0])} ${floor}L${x.map((one, i) => `${put(one)} ${(floor - (y[i] / most) * room).toFixed(1)}`).join("L")}L${put(x[x.length - 1])} ${floor}Z`;
  }
  return [svg("path", { class: "hist", id: "histogram", d }), line, label];
}

// The largest distance to the hard limit, of the picked function.
function gap(to) {
  const data = drawn.get(picked());
  const found = data?.distance;
  if (!found || picked().hidden) return [];
  const label = `sup |f − ${data.hard.name}| = ${found.value === null ? "∞" : shown(found.value, 6)}`;
  if (found.x === null) return [svg("text", { class: "gaptext", id: "distance", x: to.inner.right - 8, y: to.inner.bottom - 10, "text-anchor": "end" }, `${label}, ${found.words}`)];
  const [at, a, b] = [to.x(found.x), to.y(found.from), to.y(found.to)];
  // Left of it, where a knee leaves room; else right; else only the number.
  const wide = 6.7 * label.length;
  const room = (width) => at - 12 - width > to.inner.left;
  const words = room(wide) || at + 12 + wide < to.inner.right ? label : `sup ${shown(found.value, 4)}`;
  const left = room(6.7 * words.length);
  const above = Math.min(a, b) - 10;
  const y = above - 12 > to.inner.top ? above : Math.max(a, b) + 18;
  const text = svg("text", { class: "gaptext", id: "distance", x: at + (left ? -12 : 12), y, "text-anchor": left ? "end" : "start" }, words);
  return [svg("path", { class: "gap", d: `M${at} ${a}V${b}M${at - 5} ${a}H${at + 5}M${at - 5} ${b}H${at + 5}` }), text];
}

function drawLegend() {
  const parts = visible().map(({ place, data }) => el("span", {}, key(`s${place}`), el("b", { title: data.text }, data.text)));
  const names = [...new Set(visible().map(({ data }) => data.hard?.name).filter(Boolean))];
  if (names.length) parts.push(el("span", {}, el("span", { class: "key" }, svg("svg", { viewBox: "0 0 26 10" }, svg("path", { d: "M2 5H25", class: "limit" }))), names.join(", ")));
  document.getElementById("legend").replaceChildren(...parts);
}

// -- reading values ----------------------------------------------------------------------------------------

// Between two points by Hermite's cubic with the slope that is known too; f″ by a straight line.
export function valueAt(data, order, at) {
  const line = data.lines[order];
  let low = -1;
  for (let i = 0; i + 1 < line.x.length; i++) if (line.x[i] <= at && at <= line.x[i + 1]) low = i;
  if (low < 0) return null;
  const [x0, x1, y0, y1] = [line.x[low], line.x[low + 1], line.y[low], line.y[low + 1]];
  const h = x1 - x0;
  if (!(h > 0)) return y0;
  const t = (at - x0) / h;
  const slopes = order < 2 ? [valueNear(data.lines[order + 1], x0, x1), valueNear(data.lines[order + 1], x1, x0)] : null;
  if (!slopes || slopes.some((one) => one === null)) return y0 + t * (y1 - y0);
  const [a, b] = [h * slopes[0] - (y1 - y0), -h * slopes[1] + (y1 - y0)];
  return (1 - t) * y0 + t * y1 + t * (1 - t) * (a * (1 - t) + b * t);
}

function valueNear(line, at, other) {
  for (let i = 0; i < line.x.length; i++) {
    if (line.x[i] !== at || !Number.isFinite(line.y[i])) continue;
    const next = line.x[i + (other > at ? 1 : -1)];
    if (next === other) return line.y[i];
  }
  return null;
}

export function cross(at) {
  crosshair = at;
  drawCross();
}
export function crossAt() {
  return crosshair;
}

function drawCross() {
  const box = document.getElementById("readout");
  const [low, high] = view();
  const gone = crosshair === null || crosshair < low || crosshair > high;
  for (const panel of panels) {
    const over = panel.picture.querySelector(".over");
    if (!over || !panel.to) continue;
    over.replaceChildren();
    if (gone) continue;
    const { to } = panel;
    over.append(svg("line", { class: "cross", x1: to.x(crosshair), x2: to.x(crosshair), y1: to.inner.top, y2: to.inner.bottom }));
    for (const { data, place } of visible()) {
      const value = valueAt(data, panel.order, crosshair);
      if (value !== null && Number.isFinite(value) && value >= to.bottom && value <= to.top) over.append(svg("circle", { class: `dot d${place}`, r: 4.5, cx: to.x(crosshair), cy: to.y(value) }));
    }
  }
  box.hidden = gone;
  if (gone) return;
  const rows = visible().map(({ place, data }) => el("tr", {}, el("th", {}, key(`s${place}`), ` ${data.text.slice(0, 24)}`),
    ...[0, 1, 2].map((order) => el("td", {}, shown(valueAt(data, order, crosshair), 4)))));
  box.replaceChildren(el("table", {}, el("tr", {}, el("th", {}, `x = ${shown(crosshair, 4)}`), ...["f", "f′", "f″"].map((one) => el("th", {}, one))), ...rows));
  const main = panels[0];
  const at = main.to.x(crosshair);
  const wide = box.offsetWidth;
  box.style.left = `${Math.max(4, at + 18 + wide > main.to.width ? at - wide - 18 : at + 18)}px`;
  box.style.top = "34px";
}

export function spoken() {
  return visible().map(({ data }) => `${data.text}: f ${shown(valueAt(data, 0, crosshair))}, slope ${shown(valueAt(data, 1, crosshair))}`).join("; ");
}

export { ORDERS, panels };
