// Beside the curves, for the picked function: closed form, certificate, what it does to a signal, what it costs.

import { Latest } from "./api.js";
import { el, key, shown, svg } from "./dom.js";
import { known, path, ticks } from "./plot.js";
import { picked, state } from "./state.js";

const jobs = {
  formula: new Latest("formulas", { wait: 120 }),
  certificate: new Latest("certificate", { wait: 300 }),
  entropy: new Latest("entropy", { wait: 200 }),
  depth: new Latest("depth", { wait: 700 }),
  cost: new Latest("cost", { wait: 900 }),
};
const last = {}; // by fact: what was asked last
const owners = {}; // by fact: the function, with its numbers, that what is shown belongs to
const firsts = new Map(); // by text: the numbers that it was first seen with
const moving = new Set(); // texts whose closed form hangs on the numbers: the order of its pieces does
const WAITING = {
  formula: "Deriving …",
  certificate: "Proving …",
  entropy: "Integrating …",
  depth: "Following two inputs through depth …",
  cost: "Measuring …",
};

export function chips() {
  // While a text is wrong, what is shown is still of the last good one.
  const text = known(picked())?.text ?? picked().text;
  for (const chip of document.querySelectorAll(".chip")) chip.replaceChildren(key(`s${state.picked}`), el("b", { title: text }, text));
}

// Asks again for whatever has changed; a text that is wrong keeps the facts of the last good one.
export function refresh() {
  const function_ = known(picked())?.asked;
  if (!function_) return nothing();
  const density = state.density;
  const unmoved = { ...function_, values: stand(function_) };
  want("formula", { function: moving.has(function_.text) ? function_ : unmoved }, showFormula);
  want("certificate", { function: function_ }, showCertificate);
  want("entropy", { function: function_, density }, showEntropy);
  want("depth", { function: function_, density }, showDepth);
  want("cost", { function: unmoved }, showCost);
}

// While a function is bent, its picture needs the machine: no fact is worked out until it rests.
export function postpone() {
  for (const job of Object.values(jobs)) job.postpone();
}

// A function that could never be read has no facts, and must not stand beside another's.
function nothing() {
  for (const fact of Object.keys(jobs)) {
    jobs[fact].cancel();
    delete last[fact];
    delete owners[fact];
    const root = document.getElementById(fact);
    root.setAttribute("aria-busy", "false");
    root.replaceChildren(el("p", { class: "quiet" }, "The function cannot be read yet."));
  }
}

// A formula (but for those that say otherwise) and a cost hang on the names of the parameters and not on their numbers:
// they are asked for once, with the numbers of the first time.
function stand({ text, values }) {
  if (!firsts.has(text)) firsts.set(text, structuredClone(values));
  return firsts.get(text);
}

// What a panel shows belongs to one function with its numbers, and is never seen under another name. With other numbers
// it says for which it is, until the new answer is there.
function want(fact, body, show) {
  const text = JSON.stringify(body);
  if (last[fact] === text) return;
  last[fact] = text;
  const root = document.getElementById(fact);
  root.setAttribute("aria-busy", "true");
  const owner = owners[fact];
  if (owner?.text !== body.function.text || body.again || body.longer) {
    delete owners[fact];
    root.replaceChildren(el("p", { class: "quiet" }, body.longer ? "Proving, for up to five minutes …" : WAITING[fact]));
  } else {
    root.querySelector(".stale")?.remove();
    const numbers = Object.entries(owner.values).map(([name, value]) => `${name} = ${shown(value)}`).join(", ");
    if (JSON.stringify(owner.values) !== JSON.stringify(body.function.values)) root.prepend(el("p", { class: "quiet stale" }, `For ${numbers}. ${WAITING[fact]}`));
  }
  jobs[fact].send(body, (answer) => {
    if (last[fact] !== text) return;
    root.setAttribute("aria-busy", "false");
    root.className = `fact t${state.picked}`;
    owners[fact] = body.function;
    if (answer.error) root.replaceChildren(el("p", { class: "quiet" }, answer.error));
    else root.replaceChildren(...show(answer, body));
    if (fact === "certificate" && answer.out_of_time && !body.longer) root.append(longer(body));
    const cut = [...root.querySelectorAll(".formula")].filter(shrink);
    if (cut.length) root.append(el("p", { class: "quiet" }, "It continues to the right. ", el("button", { type: "button", onclick: () => openWide(root) }, "Open wide")));
  });
}

// A formula that is a little too wide is set smaller; one that is much too wide goes on beyond the edge, which is said.
function shrink(holder) {
  holder.style.fontSize = "";
  const ratio = holder.clientWidth / holder.scrollWidth;
  if (ratio < 1) holder.style.fontSize = `${Math.max(11.5, 16 * ratio * 0.98)}px`;
  return holder.classList.toggle("cut", holder.scrollWidth > holder.clientWidth + 1);
}

function openWide(root) {
  const copies = [...root.querySelectorAll(".formula")].map((one) => one.cloneNode(true));
  for (const one of copies) one.classList.remove("cut");
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = el("dialog", { class: "wide", "aria-label": "Closed form", onclose: () => dialog.remove() }, close, ...copies);
  for (const one of copies) one.style.fontSize = "";
  document.body.append(dialog);
  dialog.showModal();
}

function mathematics(text) {
  const holder = document.createElement("template");
  holder.innerHTML = text; // MathML that the server made from a formula, never a visitor's text
  return holder.content;
}

function showFormula({ formulas, at_numbers }, body) {
  if (at_numbers && !moving.has(body.function.text)) {
    moving.add(body.function.text);
    setTimeout(refresh);
  }
  const parts = formulas.map((one) => el("div", { class: "formula", tabindex: "0", role: "group", "aria-label": one.text || one.latex }, mathematics(one.mathml)));
  const where = [...new Set(formulas.flatMap((one) => one.where))];
  if (where.length) parts.push(el("div", { class: "formula where" }, "with ", ...where.flatMap((one, i) => (i ? ["; ", mathematics(one)] : [mathematics(one)]))));
  return parts;
}

// A proof that ran out of time can go on, until it ends or something else is asked for.
function longer(body) {
  const go = el("button", { type: "button", onclick: () => want("certificate", { ...body, longer: true }, showCertificate) }, "Search ten times as long");
  return el("div", {}, el("p", { class: "quiet" }, "The proof ran out of time."), go);
}

function showCertificate({ rows, open, domain }) {
  if (domain) return [list([["defined for", domain]]), el("p", { class: "quiet" }, "Elsewhere it has no value. The other properties are proved only of functions that have one for every x.")];
  const lines = rows.map(([name, value, where]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", { class: "number" }, value, where ? el("div", { class: "where quiet" }, where) : null)));
  const parts = lines.length ? [el("table", {}, el("tbody", {}, ...lines)), el("p", { class: "quiet" }, "Proved by interval arithmetic for exactly these numbers.")] : [];
  return [...parts, ...open.map((one) => el("p", { class: "quiet" }, one))];
}

function list(pairs) {
  return el("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function percent(share) {
  return `${Number((100 * share).toPrecision(3))} %`;
}

function showEntropy(found) {
  const pairs = [];
  if (found.change !== null) pairs.push(["entropy change H(f(X)) − H(X)", `${found.change > 0 ? "+" : ""}${shown(found.change)} nats`]);
  if (found.change !== null && !found.whole) pairs.push(["for these inputs alone", `${percent(found.share)}, ${stretch(found)}`]);
  if (found.flat > 1e-9) pairs.push(["mapped to single points", percent(found.flat)]);
  if (found.mean !== null) pairs.push(["mean, standard deviation of f(X)", `${shown(found.mean, 3)}, ${shown(found.deviation, 3)}`]);
  if (found.slope_square !== null) pairs.push(["mean of f′(X)²", shown(found.slope_square, 3)]);
  return [list(pairs), ...(found.words ? [el("p", { class: "quiet" }, found.words)] : [])];
}

function stretch({ low, high }) {
  if (low === null) return `x < ${shown(high, 3)}`;
  return high === null ? `x > ${shown(low, 3)}` : `${shown(low, 3)} < x < ${shown(high, 3)}`;
}

function showDepth(found) {
  if (!found.one_minus_c.length) return [el("p", { class: "quiet" }, found.why)];
  const pairs = [
    ["weights that keep the variance", `gain ${shown(found.gain)}`],
    [found.on_edge ? "edge of chaos, σw² and σb²" : "slope of the correlation at 1", found.on_edge ? `${shown(found.weights)}, ${shown(found.biases, 3)}` : shown(found.slope)],
  ];
  const title = `1 − correlation of two inputs by depth, begun at 1${found.on_edge ? ", on the edge" : ""}`;
  return [list(pairs), el("h3", {}, title), chart([{ style: `s${state.picked}`, x: found.one_minus_c.map((_, i) => i), y: found.one_minus_c }], { log: true, label: title }),
    ...(found.why ? [el("p", { class: "quiet" }, found.why.split(": ")[0] + ".")] : [])];
}

function showCost({ rows, elements, busy }, body) {
  const most = Math.max(...rows.flatMap((row) => [row.forward.value, row.step.value]));
  const block = (title, what) => [
    el("h3", { class: "quiet" }, title),
    el("div", { class: "bars" }, ...rows.flatMap((row) => {
      const { value, low, high } = row[what];
      const bar = el("span", { class: `bar${row.ours ? " ours" : ""}` });
      bar.style.width = `${(100 * value) / most}%`;
      const between = `half of the rounds between ${shown(low, 2)} and ${shown(high, 2)}`;
      return [el("span", { class: "name" }, row.ours ? "this function" : `torch's ${row.name}`), bar, el("span", { title: between }, `${shown(value, 2)} ×`)];
    })),
  ];
  const again = el("button", { type: "button", onclick: () => want("cost", { ...body, again: (body.again ?? 0) + 1 }, showCost) }, "Measure again");
  const note = `As multiples of torch's GELU, in turns with it; ${elements.toLocaleString("en")} numbers in float32, one thread, eager.`;
  if (busy) return [el("p", {}, "This machine is busy: from one round to the next the ratio to GELU changes too much for a number."), again];
  return [...block("one call", "forward"), ...block("with its backward pass", "step"), el("p", { class: "quiet" }, note), again];
}

// A small chart of lines; of `log`, by powers of ten.
export function chart(lines, { log = false, label = "", far: end = 0 } = {}) {
  const [width, height] = [340, 150];
  const inner = { left: 46, right: width - 8, top: 8, bottom: height - 20 };
  const put = (value) => (log ? Math.log10(Math.max(value, 1e-300)) : value);
  const ys = lines.flatMap((line) => [...line.y]).filter((one) => one !== null && Number.isFinite(one)).map(put);
  const xs = lines.flatMap((line) => [...line.x]);
  let [bottom, top] = [Math.min(...ys), Math.max(...ys)];
  if (!(top > bottom)) [bottom, top] = [bottom - 0.5, bottom + 0.5];
  const far = Math.max(...xs, end, 1);
  const to = {
    height,
    x: (value) => inner.left + (value / far) * (inner.right - inner.left),
    y: (value) => inner.bottom - ((put(value) - bottom) / (top - bottom)) * (inner.bottom - inner.top),
  };
  const parts = ticks(bottom, top, 3).map((at) => {
    const y = inner.bottom - ((at - bottom) / (top - bottom)) * (inner.bottom - inner.top);
    return svg("g", {}, svg("line", { class: "grid", x1: inner.left, x2: inner.right, y1: y, y2: y }), svg("text", { x: inner.left - 6, y: y + 4, "text-anchor": "end" }, shown(log ? Number((10 ** at).toPrecision(2)) : at, 3)));
  });
  for (const at of ticks(0, far, 5)) parts.push(svg("text", { x: to.x(at), y: height - 4, "text-anchor": "middle" }, shown(at, 4)));
  for (const line of lines) parts.push(svg("path", { class: `line ${line.style}`, d: path({ x: line.x, y: line.y.map((one) => one ?? NaN) }, to) }));
  return el("div", { class: "chart" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...parts));
}
