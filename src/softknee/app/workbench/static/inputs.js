// The density of the inputs: a named one, or numbers from a file, which are condensed and travel in the address.

import { Latest, look } from "./api.js";
import { el, plain, shown } from "./dom.js";
import { draw, showInputs, view } from "./plot.js";
import { changed, remember, state } from "./state.js";

const LARGEST = 64 * 2 ** 20;
const shape = new Latest("shape");

export function drawDensity() {
  const form = document.getElementById("density");
  const { density } = state;
  const isData = density.kind === "data";
  // Made anew only where its fields are others: a field that is put in again loses the focus.
  if (form.dataset.fields !== String(isData)) makeFields(form, isData);
  document.getElementById("density-kind").value = density.kind;
  for (const name of isData ? [] : ["mean", "scale"]) document.getElementById(`density-${name}`).value = plain(density[name]);
  const said = document.getElementById("upload-said");
  said.textContent = isData ? `${density.file}, ${density.count.toLocaleString("en")} numbers as 256 quantiles` : "";
  said.className = "quiet file";
}

function makeFields(form, isData) {
  const held = form.contains(document.activeElement) ? document.activeElement.id : "";
  const kinds = ["normal", "laplace", "logistic", "uniform", ...(isData ? ["data"] : [])];
  const select = el("select", { id: "density-kind", onchange: () => change({ kind: select.value }) }, ...kinds.map((one) => el("option", { value: one }, one === "data" ? "uploaded" : one)));
  const number = (name) => {
    const field = el("input", { type: "number", step: "any", id: `density-${name}`, onchange: () => Number.isFinite(Number(field.value)) && field.value !== "" && change({ [name]: Number(field.value) }) });
    return el("label", {}, name, field);
  };
  const file = el("input", { type: "file", accept: ".npy,.csv,.txt", id: "upload", class: "unseen", tabindex: "-1", onchange: () => {
    const [chosen] = file.files;
    file.value = ""; // the same file may be chosen again when it has changed
    if (chosen) upload(chosen);
  } });
  form.replaceChildren(el("label", {}, "inputs", select), ...(isData ? [] : [number("mean"), number("scale")]),
    el("button", { type: "button", id: "upload-button", onclick: () => file.click() }, "Upload .npy or .csv"), file,
    el("p", { class: "quiet file", id: "upload-said", role: "status" }));
  form.onsubmit = (event) => event.preventDefault();
  form.dataset.fields = String(isData);
  if (held) document.getElementById(held)?.focus();
}

function change(part) {
  const kept = part.kind && part.kind !== "data" ? { mean: state.density.mean ?? 0, scale: state.density.scale ?? 1 } : {};
  state.density = part.kind ? { ...kept, kind: part.kind } : { ...state.density, ...part };
  drawDensity();
  changed("density");
  remember({ step: true });
}

async function upload(file) {
  const say = (text, bad = false) => {
    const place = document.getElementById("upload-said");
    place.textContent = text;
    place.className = bad ? "error file" : "quiet file";
  };
  if (file.size > LARGEST) return say(`${file.name} has ${(file.size / 2 ** 20).toFixed(0)} MB, and at most 64 MB are taken; upload a part of it.`, true);
  say("Reading …");
  const answer = await look(`/api/uploaded?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file, headers: { "content-type": "application/octet-stream" } });
  if (answer.error) return say(answer.error, true);
  state.density = { kind: "data", mean: 0, scale: 1, sketch: answer.sketch, file: answer.name, count: answer.count };
  drawDensity();
  const left = answer.left_out ? `, ${answer.left_out} not finite and left out` : "";
  say(`${answer.name}: ${answer.count.toLocaleString("en")} numbers${left}, mean ${shown(answer.mean, 3)}, deviation ${shown(answer.deviation, 3)}; condensed to 256 quantiles`);
  changed("density");
  remember({ step: true });
}

// The inputs under the curve, for the stretch that is shown.
export function refreshShape() {
  const [low, high] = view();
  shape.send({ density: state.density, low, high }, (answer) => {
    if (answer.error) {
      const place = document.getElementById("upload-said");
      place.textContent = answer.error;
      place.className = "error file";
    }
    showInputs(answer.error ? null : answer);
    draw();
  });
}
