// Moving the view: wheel, drag, buttons and keys; the crosshair under the mouse or moved by arrows.

import { cross, crossAt, draw, heightAt, holdScale, innerWidth, known, makePanels, placeAt, spoken, under, valueAt, view } from "./plot.js";
import { changed, isView, picked, remember, state } from "./state.js";

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
  let grip = null;
  // A finger on a curve bends it; beside it, it scrolls the page.
  picture.addEventListener("touchstart", (event) => under(panel, event.touches[0]) && event.preventDefault(), { passive: false });
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    grip = grasp(panel, event);
    if (grip) return;
    from = { x: event.clientX, view: view(), moved: false };
    if (event.pointerType === "mouse") picture.setPointerCapture(event.pointerId);
  });
  picture.addEventListener("pointermove", (event) => {
    if (grip) return bend(panel, grip, event);
    picture.classList.toggle("graspable", !from && under(panel, event) !== null);
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
    if (grip) release(grip);
    from = grip = null;
    picture.classList.remove("dragging");
  };
  picture.addEventListener("pointerup", end);
  picture.addEventListener("pointercancel", end);
  picture.addEventListener("pointerleave", () => cross(null));
  picture.addEventListener("dblclick", () => act("fit"));
}

// -- dragging a curve --------------------------------------------------------------------------------------

function grasp(panel, event) {
  const found = under(panel, event);
  if (!found) return null;
  const { one, handle } = found;
  if (one !== picked()) {
    state.picked = state.functions.indexOf(one);
    changed("all");
  }
  panel.picture.setPointerCapture(event.pointerId);
  panel.picture.classList.add("dragging");
  holdScale(panel);
  cross(null);
  const x = handle?.x ?? placeAt(panel, event.clientX);
  const start = heightAt(panel, event.clientY);
  return { one, handle, x, off: (handle?.y ?? valueAt(known(one), 0, x) ?? start) - start, wish: null };
}

// A point of a table takes the height of the pointer, a joint its place; elsewhere a parameter follows, so that the curve
// goes through the pointer.
function bend(panel, grip, event) {
  const { one, handle, x } = grip;
  const y = Number((heightAt(panel, event.clientY) + grip.off).toPrecision(4));
  grip.wish = { one, since: performance.now(), grip };
  if (handle?.name) {
    one.values[handle.name] = y;
    remember({ by: "pull" });
  } else if (handle) {
    grip.wish.pull = { joint: handle.joint, x: placeAt(panel, event.clientX), prefer: one.last };
  } else {
    grip.wish.pull = { x, y, param: grip.param, prefer: one.last };
  }
  changed("function", grip.wish);
}

function release(grip) {
  holdScale(null);
  if (!grip.wish) return draw();
  changed("function", { ...grip.wish, whole: true });
  if (!grip.wish.pull) remember({ step: true, by: "pull" });
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
