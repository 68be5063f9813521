// Moving the view: wheel, drag, buttons and keys; the crosshair under the mouse or moved by arrows.

import { cross, crossAt, draw, innerWidth, known, makePanels, placeAt, spoken, view } from "./plot.js";
import { changed, isView, remember, state } from "./state.js";

export function startViewing() {
  const root = document.getElementById("panels");
  const panels = makePanels(root);
  for (const panel of panels) listen(panel);
  root.addEventListener("keydown", onKey);
  root.addEventListener("blur", () => cross(null));
  for (const button of document.querySelectorAll("[data-view]")) button.addEventListener("click", () => act(button.dataset.view));
}

function listen(panel) {
  const { picture } = panel;
  picture.addEventListener("wheel", (event) => {
    event.preventDefault();
    const scale = Math.exp(Math.max(-0.5, Math.min(0.5, event.deltaY * 0.0016)));
    zoom(scale, placeAt(panel, event.clientX));
  }, { passive: false });
  let from = null;
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = { x: event.clientX, view: view(), moved: false };
    if (event.pointerType === "mouse") picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (from && event.pointerType === "mouse") {
      const away = event.clientX - from.x;
      if (Math.abs(away) > 3) from.moved = true;
      if (from.moved) {
        picture.classList.add("dragging");
        const shift = (-away / innerWidth(panel)) * (from.view[1] - from.view[0]);
        cross(null);
        setView(from.view[0] + shift, from.view[1] + shift);
        return;
      }
    }
    cross(placeAt(panel, event.clientX));
  });
  const end = () => {
    if (from?.moved) remember({ step: true, by: "view" });
    from = null;
    picture.classList.remove("dragging");
  };
  picture.addEventListener("pointerup", end);
  picture.addEventListener("pointercancel", end);
  picture.addEventListener("pointerleave", () => cross(null));
  picture.addEventListener("dblclick", () => act("fit"));
}

export function setView(low, high, how = {}) {
  if (!isView(low, high) || (low === state.low && high === state.high)) return;
  [state.low, state.high] = [low, high];
  draw();
  changed("view");
  remember(how);
}

function zoom(scale, around) {
  const [low, high] = view();
  const middle = around ?? (low + high) / 2;
  setView(middle - (middle - low) * scale, middle + (high - middle) * scale);
}

function move(share) {
  const [low, high] = view();
  setView(low + share * (high - low), high + share * (high - low));
}

export function act(what) {
  if (what === "in") zoom(0.7);
  if (what === "out") zoom(1 / 0.7);
  if (what === "left") move(-0.2);
  if (what === "right") move(0.2);
  if (what === "fit") fit();
  remember({ step: true });
}

// The stretch that the server proposes, wide enough for every function that is shown.
export function fit(how) {
  const found = state.functions.filter((one) => !one.hidden && known(one)?.natural).map((one) => known(one).natural);
  if (found.length) setView(Math.min(...found.map(([low]) => low)), Math.max(...found.map(([, high]) => high)), how);
}

function onKey(event) {
  const [low, high] = view();
  const step = (high - low) / 100;
  const moves = { ArrowLeft: -1, ArrowRight: 1 };
  if (event.key in moves && event.shiftKey) act(event.key === "ArrowLeft" ? "left" : "right");
  else if (event.key in moves) {
    cross(Math.max(low, Math.min(high, (crossAt() ?? (low + high) / 2) + moves[event.key] * step)));
    document.getElementById("spoken").textContent = spoken();
  } else if (event.key === "+" || event.key === "=") act("in");
  else if (event.key === "-") act("out");
  else if (event.key === "0") act("fit");
  else if (event.key === "Escape") cross(null);
  else return;
  event.preventDefault();
}
