// 'Try it': begin a training, draw its curves while it runs, stop it, open its report.

import { ask, look } from "./api.js";
import { el, key } from "./dom.js";
import { chart } from "./facts.js";
import { remember, spec, state } from "./state.js";

const PAUSE = 350;
const news = { events: [], next: 0, ended: null, labels: [] };
let listening = 0; // the number of the loop that may go on

export function startTrying() {
  const form = document.getElementById("try");
  const seeds = el("input", { type: "number", id: "try-seeds", min: 2, max: 24, step: 1, value: 12 });
  const epochs = el("input", { type: "number", id: "try-epochs", min: 1, max: 200, step: 1, value: 30 });
  const learn = el("input", { type: "checkbox", id: "try-learn" });
  const go = el("button", { type: "submit", class: "primary", id: "try-go" }, "Train");
  const stop = el("button", { type: "button", class: "stop", id: "try-stop", hidden: true, onclick: halt }, "Stop");
  form.replaceChildren(el("label", {}, "networks each", seeds), el("label", {}, "epochs", epochs), el("label", { class: "check" }, learn, "learn the parameters"), go, stop);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    const functions = state.functions.filter((one) => !one.hidden).map(spec);
    const answer = await ask("try", { functions, seeds: Number(seeds.value), epochs: Number(epochs.value), learn: learn.checked });
    go.disabled = false;
    if (answer.error) return say(el("p", { class: "error" }, answer.error));
    state.run = answer.name;
    remember({ step: true });
    follow();
  });
}

async function halt() {
  document.getElementById("try-stop").disabled = true;
  await look(`/api/try/${state.run}/stop`, { method: "POST" });
}

function say(...parts) {
  document.getElementById("try-state").replaceChildren(...parts);
}

// Listens to the run that the address names, from its beginning: also after a reload, and in another tab.
export async function follow() {
  const mine = ++listening;
  Object.assign(news, { events: [], next: 0, ended: null, labels: [] });
  document.getElementById("try-charts").hidden = true;
  show();
  while (state.run && mine === listening && !news.ended) {
    const answer = await look(`/api/try/${encodeURIComponent(state.run)}?after=${news.next}`);
    if (mine !== listening) return;
    if (answer.error) return say(el("p", { class: "error" }, answer.error));
    news.events.push(...answer.events);
    Object.assign(news, { next: answer.next, ended: answer.ended });
    show();
    if (!news.ended) await new Promise((done) => setTimeout(done, PAUSE));
  }
}

function show() {
  const running = Boolean(state.run) && !news.ended;
  const stop = document.getElementById("try-stop");
  stop.hidden = !running;
  if (!running) stop.disabled = false;
  document.getElementById("try-go").hidden = running;
  if (!state.run) return say();
  const plan = news.events.find((one) => one.kind === "plan");
  const status = news.events.findLast((one) => one.kind === "status");
  const end = news.events.findLast((one) => ["finished", "stopped", "failed"].includes(one.kind));
  const parts = [];
  if (running) {
    const bar = el("progress", { max: 1, value: status?.share ?? 0, "aria-label": "How far the training is" });
    parts.push(bar, el("p", { class: "quiet" }, status?.text ?? "Preparing …"));
  } else if (end) {
    const words = { finished: "Finished.", stopped: "Stopped.", failed: "The training failed." }[end.kind];
    parts.push(el("p", { class: end.kind === "failed" ? "error" : "" }, `${words} ${end.text ?? ""}`));
    if (end.report) parts.push(el("a", { class: "report", href: `/runs/${state.run}/report/index.html`, target: "_blank", rel: "noopener" }, "Open the report"));
  }
  say(...parts);
  if (plan) charts(plan);
}

function style(labels, label) {
  const place = labels.filter((one) => one !== "relu" || isOurs()).indexOf(label);
  return label === "relu" && !isOurs() ? "sb" : `s${Math.max(0, place) % 4}`;
}

function isOurs() {
  return state.functions.some((one) => one.text.trim() === "relu");
}

function charts({ labels, epochs: far }) {
  const epochs = news.events.filter((one) => one.kind === "epoch");
  const root = document.getElementById("try-charts");
  root.hidden = !epochs.length;
  if (!epochs.length) return;
  const lines = (what) => labels.map((label) => {
    const own = epochs.filter((one) => one.label === label);
    return { style: style(labels, label), x: own.map((one) => one.epoch), y: own.map((one) => one[what] ?? null) };
  }).filter((line) => line.x.length);
  const one = (title, what, options) => el("div", {}, el("h3", {}, title), chart(lines(what), { label: title, far, ...options }));
  const keys = labels.map((label) => el("span", {}, key(style(labels, label)), el("b", { title: label }, label)));
  root.replaceChildren(one("training loss", "train_loss", { log: true }), one("validation accuracy", "validation_accuracy", {}), el("div", { class: "legend" }, ...keys));
}
