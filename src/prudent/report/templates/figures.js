
// Draws every figure of the page. Colours of text, axes and grids come from the style sheet, so that a change between
// light, dark and print needs no redrawing; only the size does.
(function () {
  "use strict";
  const figures = Array.from(document.querySelectorAll(".figure"));
  const settings = { displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };
  Promise.all(figures.map(function (element) {
    const figure = JSON.parse(element.querySelector("script").textContent);
    return Plotly.newPlot(element, figure.data, figure.layout, settings);
  })).then(function () { document.documentElement.dataset.drawn = String(figures.length); });
  const fit = function () { figures.forEach(function (element) { Plotly.Plots.resize(element); }); };
  window.addEventListener("beforeprint", fit);
  window.addEventListener("afterprint", fit);
})();
