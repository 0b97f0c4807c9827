/* Sources and live queries: sliders beside numbers, and parts that fetch themselves every few seconds. */
(function () {
  "use strict";
  // a load factor's slider and its number say the same
  document.querySelectorAll("input[data-factor]").forEach(function (slider) {
    var number = document.getElementById(slider.dataset.factor);
    slider.addEventListener("input", function () { number.value = slider.value; });
    number.addEventListener("input", function () {
      slider.value = number.value;
      slider.style.setProperty("--p", slider.value * 100 + "%");
    });
  });

  // what somebody is typing or choosing in is not taken from under their hands; the next change brings it up to date
  var summaries = function (part) {
    return Array.from(part.querySelectorAll("details[open] > summary")).map(function (one) { return one.textContent; });
  };
  var patient = function (event) {
    var part = event.detail.elt;
    return part instanceof Element && part.matches("[data-patient]") ? part : null;
  };
  var opened = {};
  document.addEventListener("htmx:beforeRequest", function (event) {
    var part = patient(event), held = document.activeElement;
    if (part && part.contains(held) && held.matches("input, select, textarea")) { event.preventDefault(); }
  });
  document.addEventListener("htmx:beforeSwap", function (event) {
    var part = event.detail.target;
    if (part && part.matches && part.matches("[data-patient]")) { opened[part.id] = summaries(part); }
  });
  document.addEventListener("htmx:afterSettle", function () {
    Object.keys(opened).forEach(function (id) {
      var part = document.getElementById(id), known = opened[id];
      delete opened[id];
      if (!part) { return; }
      part.querySelectorAll("details > summary").forEach(function (one) {
        if (known.indexOf(one.textContent) >= 0) { one.parentElement.open = true; }
      });
    });
  });
})();
