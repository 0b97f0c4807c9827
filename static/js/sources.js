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

  // What somebody is typing, choosing or has changed is not taken from under their hands, neither by its own part nor
  // by one around it; the next change brings it up to date. What was unfolded stays so.
  var holds = function (part) {
    var held = document.activeElement;
    var isHeld = held.matches("input, select, textarea") && held.closest("[data-patient]") && part.contains(held);
    return isHeld || part.querySelector("[data-patient] form[data-changed]") !== null;
  };
  var isPatient = function (part) {
    return part instanceof Element && (part.matches("[data-patient]") || part.querySelector("[data-patient]") !== null);
  };
  var unfolded = {};
  document.addEventListener("change", function (event) {
    var form = event.target.closest("[data-patient] form");
    if (form) { form.dataset.changed = "yes"; }
  });
  document.addEventListener("htmx:beforeRequest", function (event) {
    if (isPatient(event.detail.elt) && holds(event.detail.elt)) { event.preventDefault(); }
  });
  document.addEventListener("htmx:beforeSwap", function (event) {
    var part = event.detail.target;
    if (!isPatient(part)) { return; }
    // asked for before somebody began to type, answered after
    if (holds(part)) { event.detail.shouldSwap = false; return; }
    unfolded[part.id] = Array.from(part.querySelectorAll("details[open] > summary"), function (one) { return one.textContent; });
  });
  document.addEventListener("htmx:afterSettle", function () {
    Object.keys(unfolded).forEach(function (id) {
      var part = document.getElementById(id), known = unfolded[id];
      delete unfolded[id];
      if (!part) { return; }
      part.querySelectorAll("details > summary").forEach(function (one) {
        if (known.indexOf(one.textContent) >= 0) { one.parentElement.open = true; }
      });
    });
  });
})();
