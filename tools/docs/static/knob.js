// Sliders of the zoo: each figure holds the paths that it can show; nothing is computed or fetched here.
"use strict";
for (const figure of document.querySelectorAll("figure.knob")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const input = figure.querySelector("input");
  const output = figure.querySelector("output");
  const paths = figure.querySelectorAll("path.soft");
  input.addEventListener("input", () => {
    const place = Number(input.value);
    output.textContent = String(data.values[place]);
    input.setAttribute("aria-valuetext", `${data.label} = ${data.values[place]}`);
    paths.forEach((path, order) => path.setAttribute("d", data.paths[place][order]));
  });
}
