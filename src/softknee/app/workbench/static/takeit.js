// 'Take it': the picked function as code, and the picture; to copy or to save.

import { Latest, ask } from "./api.js";
import { copyText, el, saveAs } from "./dom.js";
import { known, view } from "./plot.js";
import { picked, state } from "./state.js";

const KINDS = [
  ["python", "Python", "py", "text/x-python"],
  ["definition", "Definition", "json", "application/json"],
  ["kernel", "Triton", "py", "text/x-python"],
  ["latex", "LaTeX", "tex", "text/x-tex"],
];
const job = new Latest("take", { wait: 400 });
let shown = "python";
let found = null;
let last = null; // what was asked last; "" where there is nothing to ask
let note = "…"; // stands where nothing was found

export function startTaking() {
  const root = document.getElementById("take");
  const tabs = KINDS.map(([kind, title]) => el("button", { type: "button", role: "tab", id: `tab-${kind}`, "aria-controls": "take-code", onclick: () => choose(kind) }, title));
  const bar = el("div", { class: "tabs", role: "tablist", "aria-label": "What to take" }, ...tabs);
  bar.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const place = (KINDS.findIndex(([kind]) => kind === shown) + step + KINDS.length) % KINDS.length;
    choose(KINDS[place][0]);
    tabs[place].focus();
  });
  const said = el("span", { class: "said", role: "status", id: "take-said" });
  root.replaceChildren(bar,
    el("div", { class: "tools" },
      el("button", { type: "button", id: "take-copy", onclick: copy }, "Copy"),
      el("button", { type: "button", id: "take-save", onclick: save }, "Save"), el("span", { class: "space" }),
      el("button", { type: "button", id: "take-svg", title: "The picture, drawn for paper", onclick: () => picture("svg") }, "SVG"),
      el("button", { type: "button", id: "take-png", title: "The picture, drawn for paper", onclick: () => picture("png") }, "PNG"),
      el("button", { type: "button", id: "take-copy-png", onclick: copyPicture }, "Copy PNG")),
    el("pre", { class: "code", id: "take-code", role: "tabpanel", tabindex: "0" }), said);
  choose(shown);
}

function choose(kind) {
  shown = kind;
  for (const [one] of KINDS) {
    const tab = document.getElementById(`tab-${one}`);
    tab.setAttribute("aria-selected", String(one === kind));
    tab.tabIndex = one === kind ? 0 : -1;
  }
  document.getElementById("take-code").setAttribute("aria-labelledby", `tab-${kind}`);
  show();
}

function show() {
  const one = found?.[shown];
  const code = document.getElementById("take-code");
  const waits = code.getAttribute("aria-busy") === "true"; // what stands there is of other numbers, or of another function
  code.textContent = one ? (one.text ?? one.error) : note;
  for (const name of ["take-copy", "take-save"]) document.getElementById(name).disabled = waits || !one?.text;
}

function settle(answer, busy) {
  found = answer;
  document.getElementById("take-code").setAttribute("aria-busy", String(busy));
  show();
}

export function refreshTaking() {
  const good = known(picked())?.asked;
  const text = good ? JSON.stringify(good) : "";
  if (text === last) return;
  last = text;
  note = good ? "…" : "The function cannot be read yet.";
  if (!good) {
    job.cancel();
    return settle(null, false);
  }
  settle(found, true);
  job.send({ function: good }, (answer) => {
    if (last !== text) return;
    note = answer.error ?? "…";
    settle(answer.error ? null : answer, false);
  });
}

function say(text) {
  const place = document.getElementById("take-said");
  place.textContent = text;
  setTimeout(() => place.textContent === text && (place.textContent = ""), 4000);
}

async function copy() {
  await copyText(found[shown].text);
  say("Copied.");
}

function save() {
  const [, , ending, type] = KINDS.find(([kind]) => kind === shown);
  saveAs(`${found.name}${shown === "kernel" ? "_kernel" : ""}.${ending}`, found[shown].text, type);
}

async function drawn(kind) {
  const [low, high] = view();
  const functions = state.functions.filter((one) => !one.hidden && known(one)).map((one) => known(one).asked);
  say("Drawing …");
  const answer = await ask("picture", { functions, low, high, kind });
  if (answer.error) {
    say(answer.error);
    return null;
  }
  if (kind === "svg") return new Blob([answer.text], { type: "image/svg+xml" });
  return new Blob([Uint8Array.from(atob(answer.base64), (one) => one.charCodeAt(0))], { type: "image/png" });
}

async function picture(kind) {
  const content = await drawn(kind);
  if (!content) return;
  saveAs(`softknee.${kind}`, content);
  say("Saved.");
}

async function copyPicture() {
  const content = await drawn("png");
  if (!content) return;
  try {
    await navigator.clipboard.write([new ClipboardItem({ "image/png": content })]);
    say("Copied.");
  } catch {
    say("This browser does not copy pictures; take the PNG.");
  }
}
