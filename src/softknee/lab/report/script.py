"""What the page does once it is open: draw each figure from its JSON, in the reader's colours and width."""

SCRIPT = r"""
(function () {
  "use strict";
  const root = document.documentElement;
  const figures = Array.from(document.querySelectorAll("figure[data-figure]")).map((figure) => ({
    place: figure.querySelector(".plot"),
    made: JSON.parse(figure.querySelector("script").textContent),
  }));
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  function axis(given) {
    const lines = { gridcolor: colour("--hair"), linecolor: colour("--strong"), zerolinecolor: colour("--strong") };
    const title = Object.assign({ standoff: 12 }, given.title);
    return Object.assign({}, given, lines, { title: title, zeroline: false, ticks: "", fixedrange: true });
  }

  function dressed(made, width) {
    const narrow = width < 560;
    const layout = Object.assign({}, made.layout, {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12.5, color: colour("--soft") },
      hoverlabel: { bgcolor: colour("--card"), bordercolor: colour("--strong"), font: { color: colour("--ink") } },
      margin: { l: 10, r: 12, t: made.layout.title ? 40 : 14, b: 10 },
      xaxis: axis(made.layout.xaxis || {}),
      yaxis: axis(made.layout.yaxis || {}),
      width: width,
      autosize: false,
    });
    if (layout.title) {
      layout.title = { text: layout.title.text, x: 0, xref: "container", font: { size: 15, color: colour("--ink") } };
    }
    const data = made.data.map((trace) => {
      if (!trace.text) return trace;
      const few = narrow && !(trace.meta && trace.meta.joined);
      return Object.assign({}, trace, {
        mode: few ? trace.mode.replace("+text", "") : trace.mode,
        textfont: { size: narrow ? 11 : 12.5, color: colour("--ink") },
      });
    });
    return { data: data, layout: layout };
  }

  const config = { displaylogo: false, displayModeBar: false, scrollZoom: false, staticPlot: false };

  function draw(one) {
    const printing = root.classList.contains("printing");
    const paper = one.place.closest(".pair") ? 330 : 680;
    const wide = printing ? paper : Math.floor(one.place.clientWidth);
    if (wide < 50) return;
    const ready = dressed(one.made, wide);
    Plotly.react(one.place, ready.data, ready.layout, config);
  }
  const redraw = () => figures.forEach(draw);

  for (const one of figures) {
    for (const button of one.place.parentNode.querySelectorAll("button[data-traces]")) {
      button.addEventListener("click", () => {
        const shown = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(shown));
        for (const index of button.dataset.traces.split(",")) one.made.data[Number(index)].visible = shown;
        draw(one);
      });
    }
  }

  let waiting = 0;
  let last = 0;
  function later() {
    if (root.classList.contains("printing")) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (root.clientWidth !== last) { last = root.clientWidth; redraw(); } }, 120);
  }
  window.addEventListener("resize", later);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // A page of paper is light, and about 680 pixels wide between its margins.
  window.addEventListener("beforeprint", () => {
    root.classList.add("printing");
    for (const one of document.querySelectorAll("details")) one.open = true;
    redraw();
  });
  window.addEventListener("afterprint", () => { root.classList.remove("printing"); redraw(); });
  last = root.clientWidth;
  redraw();
  root.classList.add("drawn");
})();
"""
