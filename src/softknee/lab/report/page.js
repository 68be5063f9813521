(function () {
  "use strict";
  const root = document.documentElement;
  // An interpreter in place of compiled expressions: the page allows no script but its own.
  const options = { ast: true, actions: false, renderer: "svg", config: look, tooltip: { disableDefaultStyle: true } };
  const views = [];

  async function draw(figure) {
    const place = figure.querySelector(".plot");
    const chart = JSON.parse(figure.querySelector("script").textContent);
    const view = (await vegaEmbed(place, chart, options)).view;
    views.push({ place, view });
    const buttons = Array.from(figure.querySelectorAll(".legend button"));
    for (const button of buttons) {
      button.addEventListener("click", () => {
        button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
        const hidden = buttons.filter((other) => other.getAttribute("aria-pressed") !== "true");
        view.signal("hidden", hidden.map((other) => other.textContent)).run();
      });
    }
  }

  function resize() {
    const printing = root.classList.contains("printing");
    for (const { place, view } of views) {
      // A page of paper is about 680 pixels wide between its margins.
      view.width(printing ? (place.closest(".pair") ? 330 : 680) : place.clientWidth).run();
    }
  }
  window.addEventListener("beforeprint", () => {
    root.classList.add("printing");
    for (const details of document.querySelectorAll("details")) details.open = true;
    resize();
  });
  window.addEventListener("afterprint", () => { root.classList.remove("printing"); resize(); });
  const drawn = Array.from(document.querySelectorAll("figure[data-figure]"), draw);
  window.drawn = Promise.all(drawn).then(() => root.classList.add("drawn"));
})();
