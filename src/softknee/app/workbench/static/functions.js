// The cards of the functions: pick or write one, move its parameters, see what is wrong with a text.

import { el, fitNumber, key, letter, plain } from "./dom.js";
import { MOST, changed, remember, state } from "./state.js";

const STEPS = 1000;
const EXAMPLES = [
  ["mollify(hardtanh, triweight, width=delta)", { delta: 0.4 }],
  ["mollify(relu, (box, triangle), width=delta)", { delta: 1 }],
  ["join(0, x, between=(-w, w), smoothness=2)", { w: 1 }],
  ["eafo(relu, density=normal)", {}],
  ["x * sigmoid(beta * x)", { beta: 1.5 }],
  ["where(x > 0, x, alpha * expm1(x / alpha))", { alpha: 1 }],
];
const NEW = ["gelu", "smelu", "swish", "relu"];

const cards = new Map(); // by function: its elements
let names = [];

export function offer(zoo) {
  names = zoo;
  for (const [one, card] of cards) {
    card.select.replaceChildren(...options());
    showPick(one, card);
  }
}

export function startFunctions() {
  document.getElementById("add").addEventListener("click", () => {
    if (state.functions.length >= MOST) return;
    const used = state.functions.map((one) => one.text);
    const text = NEW.find((name) => !used.includes(name)) ?? NEW[0];
    state.functions.push({ text, values: {}, real: [], hidden: false });
    state.picked = state.functions.length - 1;
    changed("all");
    remember({ step: true });
    cards.get(state.functions[state.picked]).text.focus();
  });
}

export function drawCards() {
  const root = document.getElementById("cards");
  for (const one of [...cards.keys()]) if (!state.functions.includes(one)) cards.delete(one);
  for (const one of state.functions) if (!cards.has(one)) cards.set(one, make(one));
  const nodes = state.functions.map((one) => cards.get(one).node);
  // Only where the order has changed: an element that is put in again loses the focus.
  if (nodes.length !== root.children.length || nodes.some((node, i) => root.children[i] !== node)) root.replaceChildren(...nodes);
  state.functions.forEach((one, place) => {
    const card = cards.get(one);
    const waits = card.node.classList.contains("busy") ? " busy" : "";
    card.node.className = `function t${place}${place === state.picked ? " chosen" : ""}${one.hidden ? " off" : ""}${waits}`;
    card.node.setAttribute("aria-label", `Function ${place + 1}`);
    card.radio.checked = place === state.picked;
    card.swatch.replaceChildren(key(`s${place}`));
    card.hide.textContent = one.hidden ? "Show" : "Hide";
    card.hide.setAttribute("aria-pressed", String(one.hidden));
    card.remove.disabled = state.functions.length < 2;
  });
  const add = document.getElementById("add");
  add.disabled = state.functions.length >= MOST;
  add.textContent = add.disabled ? "At most four functions" : "+ Add a function";
}

function options() {
  const group = (label, list) => el("optgroup", { label }, ...list.map(([value, title]) => el("option", { value, title }, value)));
  return [
    el("option", { value: "" }, "own formula"),
    group("The zoo", names.map((one) => [one.name, one.about])),
    group("Examples to change", EXAMPLES.map(([text]) => [text, ""])),
  ];
}

function make(one) {
  const card = { one };
  card.radio = el("input", { type: "radio", name: "picked", "aria-label": "Show the facts of this function", onchange: () => pick(one) });
  card.swatch = el("span", {});
  card.select = el("select", { "aria-label": "Pick a function", onchange: () => choose(one, card.select.value) }, ...options());
  card.hide = el("button", { type: "button", class: "plain", onclick: () => hide(one) }, "Hide");
  card.remove = el("button", { type: "button", class: "plain", "aria-label": "Remove this function", onclick: () => remove(one) }, "✕");
  card.text = el("textarea", { rows: 1, spellcheck: "false", autocapitalize: "off", autocomplete: "off", maxlength: 2000, "aria-label": "The function as a text", oninput: () => write(one, card), onchange: () => remember({ step: true, by: card }) });
  card.text.value = one.text;
  card.text.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault();
  });
  card.problem = el("div", { class: "problem", role: "alert", hidden: true });
  card.params = el("div", {});
  card.about = el("p", { class: "about" });
  card.bend = el("div", {});
  card.node = el("article", {},
    el("div", { class: "head" }, el("label", { class: "choose" }, card.radio, card.swatch), card.select, card.hide, card.remove),
    card.text, card.problem, card.params, card.bend, card.about);
  card.node.addEventListener("focusin", (event) => {
    if (event.target !== card.remove && event.target !== card.hide) pick(one);
  });
  showPick(one, card);
  requestAnimationFrame(() => grow(card.text));
  return card;
}

function grow(field) {
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function pick(one) {
  const place = state.functions.indexOf(one);
  if (place < 0 || place === state.picked) return;
  state.picked = place;
  drawCards();
  changed("picked");
  remember({ quiet: true });
}

function showPick(one, card) {
  const name = names.find((entry) => entry.name === one.text.toLowerCase())?.name;
  card.select.value = name ?? (EXAMPLES.some(([text]) => text === one.text) ? one.text : "");
}

function choose(one, text) {
  if (!text) return cards.get(one).text.focus();
  const values = EXAMPLES.find(([example]) => example === text)?.[1] ?? {};
  replaceText(one, text, { ...values });
}

export function replaceText(one, text, values, real = []) {
  Object.assign(one, { text, values, real });
  const card = cards.get(one);
  card.text.value = text;
  grow(card.text);
  showPick(one, card);
  changed("function", { one, whole: true });
  remember({ step: true });
}

function write(one, card) {
  // A formula that is pasted may come in several lines.
  if (/[\r\n\t]/.test(card.text.value)) card.text.value = card.text.value.replace(/[\r\n\t]+/g, " ");
  one.text = card.text.value;
  grow(card.text);
  showPick(one, card);
  changed("function", { one, whole: true });
  remember({ by: card });
}

function hide(one) {
  one.hidden = !one.hidden;
  drawCards();
  changed("drawn");
  remember({ step: true });
}

function remove(one) {
  if (state.functions.length < 2) return;
  const place = state.functions.indexOf(one);
  state.functions.splice(place, 1);
  state.picked = Math.min(state.picked > place ? state.picked - 1 : state.picked, state.functions.length - 1);
  changed("all");
  remember({ step: true });
  cards.get(state.functions[state.picked]).radio.focus(); // the button that had the focus is gone
}

// -- what the server said of a text ------------------------------------------------------------------------

// A new function may take the server a moment, which is said.
export function busy(one, is) {
  cards.get(one)?.node.classList.toggle("busy", is);
}

export function refuse(one, answer) {
  const card = cards.get(one);
  if (!card) return;
  card.text.setAttribute("aria-invalid", "true");
  const parts = [];
  if (answer.span) {
    const [from, to] = answer.span;
    const signs = [...one.text]; // as the server counts them: some take two places in a text of JavaScript
    const part = (first, behind) => signs.slice(first, behind).join("");
    parts.push(el("div", { class: "echo" }, part(0, from), el("mark", {}, part(from, to) || " "), part(to)));
  }
  parts.push(el("div", {}, answer.error));
  card.problem.replaceChildren(...parts);
  card.problem.hidden = false;
}

export function accept(one, answer) {
  const card = cards.get(one);
  if (!card) return;
  card.text.removeAttribute("aria-invalid");
  card.problem.hidden = true;
  card.about.textContent = answer.named ? answer.about : "";
  card.bend.replaceChildren();
  if (answer.slider) {
    const { text, values, word } = answer.slider;
    card.bend.append(el("button", { type: "button", class: "bend", onclick: () => replaceText(one, text, values) }, `Make the ${word} a slider`));
  }
  const same = card.shown && card.shown.length === answer.params.length && card.shown.every((p, i) => p.name === answer.params[i].name && p.own === answer.params[i].own);
  if (!same) {
    card.rows = answer.params.map((p) => slider(one, p));
    card.params.replaceChildren(...card.rows.map((row) => row.node));
  }
  card.shown = answer.params;
  // What the function has no parameter for is let go, so that the address stays short.
  const own = new Set([...answer.params, ...answer.handles].map((p) => p.name));
  for (const name of Object.keys(one.values)) if (!own.has(name)) delete one.values[name];
  answer.params.forEach((p, i) => {
    card.rows[i].stretch(p);
    card.rows[i].set(one.values[p.name] ?? p.value);
  });
}

// -- sliders -----------------------------------------------------------------------------------------------

function slider(one, p) {
  let { travel } = p; // its values at equal steps, straight in between: equal ways change the curve about equally
  const toStep = (value) => {
    const behind = Math.max(1, travel.findIndex((knot, i) => knot >= value || i === travel.length - 1));
    const [a, b] = [travel[behind - 1], travel[behind]];
    return (STEPS / (travel.length - 1)) * (behind - 1 + Math.max(0, Math.min(1, (value - a) / (b - a))));
  };
  const toValue = (step) => {
    const place = (step / STEPS) * (travel.length - 1);
    const before = Math.min(Math.floor(place), travel.length - 2);
    return travel[before] + (place - before) * (travel[before + 1] - travel[before]);
  };
  const name = `${p.name} of ${one.text}`;
  const range = el("input", { type: "range", min: 0, max: STEPS, step: 1, "aria-label": name, title: p.about || p.words });
  const number = el("input", { type: "number", step: "any", "aria-label": `${name}, as a number`, title: `${p.name} must be ${p.words}` });
  // The room that the server gives a number that it took; not under the hand that moves the slider.
  const stretch = (answer) => {
    if (answer.travel && !range.matches(":active")) ({ travel } = answer);
  };
  const set = (value) => {
    if (!range.matches(":active")) range.value = Math.round(toStep(value));
    if (document.activeElement !== number) number.value = plain(value);
    fitNumber(number);
    range.setAttribute("aria-valuetext", plain(value));
  };
  range.addEventListener("input", () => {
    const value = Number(toValue(Number(range.value)).toPrecision(4));
    one.values[p.name] = Math.abs(value) < 1e-12 ? 0 : value;
    number.value = plain(one.values[p.name]);
    fitNumber(number);
    range.setAttribute("aria-valuetext", number.value);
    one.last = p.name;
    changed("function", { one, whole: false, since: performance.now() });
    remember({ by: range });
  });
  let resting = 0;
  range.addEventListener("change", () => {
    clearTimeout(resting);
    resting = setTimeout(() => changed("function", { one, whole: true }), 500); // the room of its slider
  });
  number.addEventListener("input", () => {
    if (number.value === "" || !Number.isFinite(Number(number.value))) return;
    one.values[p.name] = Number(number.value);
    fitNumber(number);
    changed("function", { one, whole: true, since: performance.now() });
    remember({ by: number });
  });
  number.addEventListener("change", () => {
    set(one.values[p.name] ?? p.value);
    remember({ step: true, by: number });
  });
  const label = el("label", { title: p.name }, letter(p.name));
  const row = el("div", { class: "param", "data-param": p.name }, label, range, number);
  if (p.own) {
    const sign = el("input", { type: "checkbox", onchange: () => {
      const real = one.real.filter((other) => other !== p.name);
      replaceText(one, one.text, one.values, sign.checked ? [...real, p.name] : real);
    } });
    sign.checked = one.real.includes(p.name);
    row.append(el("span", { class: "sign quiet" }, el("label", {}, sign, " may be 0 or negative")));
  }
  return { node: row, set, stretch };
}
