// Puts the parts together: what has changed decides what is asked and drawn again.

import { Latest, ask } from "./api.js";
import { copyText } from "./dom.js";
import { chips, postpone, refresh } from "./facts.js";
import { accept, busy, drawCards, offer, refuse, startFunctions } from "./functions.js";
import { drawDensity, refreshShape } from "./inputs.js";
import { draw, forgetOthers, keep, known, unpacked } from "./plot.js";
import { address, readAddress, remember, restoreOnBack, spec, state, watch } from "./state.js";
import { refreshTaking, startTaking } from "./takeit.js";
import { follow, startTrying } from "./tryit.js";
import { fit, startViewing } from "./viewing.js";

const curves = new WeakMap(); // by function: its requests
const waits = new WeakMap(); // by function: the timer after which its card says that it waits
let placed = null; // the view that was chosen for the visitor, until every function has had a say in it
// Milliseconds from a slider's event to the picture, for whoever wants to know (the tests do).
globalThis.workbench = { latencies: [] };

function curve(one, { whole = false, since = null, pull = null, grip = null } = {}) {
  if (!curves.has(one)) curves.set(one, new Latest("curve"));
  const text = one.text;
  const asked = structuredClone(spec(one));
  const body = { function: asked, low: state.low, high: state.high, natural: whole, pull };
  // A slow drag shows every answer on its way; an answer to a text that has changed since is dropped.
  clearTimeout(waits.get(one));
  waits.set(one, setTimeout(() => busy(one, true), 400));
  curves.get(one).send(body, (answer) => {
    clearTimeout(waits.get(one));
    busy(one, false);
    document.getElementById("waking").hidden = true;
    if (!state.functions.includes(one) || one.text !== text) return;
    if (answer.error) {
      refuse(one, answer);
      refreshTaking();
      return refresh();
    }
    if (answer.pulled) {
      asked.values[answer.pulled.param] = one.values[answer.pulled.param] = answer.pulled.value;
      one.last = grip.param = answer.pulled.param;
      remember({ step: whole, by: "pull" });
    }
    for (const { name, value } of answer.params) asked.values[name] = value; // also those that were never moved
    const data = { ...unpacked(answer), text, asked };
    data.natural ??= known(one)?.natural;
    keep(one, data);
    chips();
    accept(one, answer);
    if (state.low === null || (placed && placed[0] === state.low && placed[1] === state.high)) {
      fit({ quiet: true });
      placed = state.functions.every((other) => known(other)) ? null : [state.low, state.high];
    }
    draw();
    if (since !== null) requestAnimationFrame(() => globalThis.workbench.latencies.push(performance.now() - since));
    refresh();
    refreshTaking();
  }, { overtaken: true });
}

function everything() {
  drawCards();
  drawDensity();
  forgetOthers();
  for (const one of state.functions) curve(one, { whole: true });
  chips();
  refreshShape();
  draw();
}

let shownRun = null;
watch((what, detail) => {
  if (what === "all") {
    everything();
    if (state.run !== shownRun) {
      shownRun = state.run;
      follow();
    }
  }
  if (what === "function") {
    if (detail.since) postpone();
    curve(detail.one, detail);
  }
  if (what === "view") {
    for (const one of state.functions) curve(one);
    refreshShape();
  }
  if (what === "density") {
    refreshShape();
    refresh();
  }
  if (what === "picked") {
    chips();
    draw();
    refresh();
    refreshTaking();
  }
  if (what === "drawn") draw();
});

// -- colours and the link ----------------------------------------------------------------------------------

const THEMES = { auto: ["◐", "as in the system"], light: ["☀", "light"], dark: ["☾", "dark"] };

function theme(name) {
  const button = document.getElementById("theme");
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  button.textContent = THEMES[name][0];
  button.setAttribute("aria-label", `Colours: ${THEMES[name][1]}`);
  button.title = button.getAttribute("aria-label");
  try {
    localStorage.setItem("softknee-theme", name);
  } catch {
    // A browser that keeps nothing follows the system the next time.
  }
}

function keptTheme() {
  try {
    return localStorage.getItem("softknee-theme");
  } catch {
    return null;
  }
}

function startTheme() {
  theme(Object.hasOwn(THEMES, keptTheme() ?? "") ? keptTheme() : "auto");
  document.getElementById("theme").addEventListener("click", () => {
    const names = Object.keys(THEMES);
    const now = document.documentElement.dataset.theme ?? "auto";
    theme(names[(names.indexOf(now) + 1) % names.length]);
  });
  document.getElementById("share").addEventListener("click", async (event) => {
    await copyText(location.origin + address());
    event.target.textContent = "Link copied";
    setTimeout(() => (event.target.textContent = "Copy link"), 2000);
  });
}

startTheme();
readAddress();
shownRun = state.run;
startViewing();
startFunctions();
startTrying();
startTaking();
restoreOnBack();
everything();
if (state.run) follow();
ask("zoo", {}).then((answer) => answer.functions && offer(answer.functions));
