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

  // A budget's slider moves in equal ratios; what would follow is asked for while it moves.
  document.querySelectorAll("input[data-log]").forEach(function (slider) {
    var number = document.getElementById(slider.dataset.log), waits = 0;
    var least = 0.01, ratio = Number(slider.dataset.most) / least;
    var say = function () { slider.setAttribute("aria-valuetext", number.value + " cores"); };
    slider.addEventListener("input", function () {
      var value = least * Math.pow(ratio, slider.value / slider.max);
      number.value = Number(value.toPrecision(value < 0.1 ? 1 : 2));
      say();
      clearTimeout(waits);
      waits = setTimeout(function () { number.dispatchEvent(new Event("preview")); }, 120);
    });
    number.addEventListener("input", function () {
      var share = Math.log(Math.max(number.value, least) / least) / Math.log(ratio);
      slider.value = Math.round(slider.max * share);
      slider.style.setProperty("--p", 100 * slider.value / slider.max + "%");
      say();
    });
  });

  // What somebody is typing, choosing or has changed is not taken from under their hands, nor a dialog that is open,
  // neither by its own part nor by one around it; the next change brings it up to date. What was unfolded stays so.
  var holds = function (part) {
    var held = document.activeElement;
    var isHeld = held.matches("input:not([type=checkbox]), select, textarea") && held.closest("[data-patient]") && part.contains(held);
    var isOpen = part.querySelector("[data-patient] dialog[open]") !== null;
    return isHeld || isOpen || part.querySelector("[data-patient] form[data-changed]:not(dialog form)") !== null;
  };
  var isPatient = function (part) {
    return part instanceof Element && (part.matches("[data-patient]") || part.querySelector("[data-patient]") !== null);
  };
  var unfolded = {}, chosen = [];
  document.addEventListener("change", function (event) {
    var form = event.target.closest("[data-patient] form");
    if (form) { form.dataset.changed = "yes"; }
  });
  document.addEventListener("htmx:beforeRequest", function (event) {
    if (isPatient(event.detail.elt) && holds(event.detail.elt)) { event.preventDefault(); }
  });
  // the parts that an answer replaces: the one that asked, and those it takes along
  var replaced = function (part) {
    var along = (part.getAttribute("hx-select-oob") || "").split(",").filter(Boolean);
    return [part].concat(along.map(function (one) { return document.querySelector(one.trim()); })).filter(Boolean);
  };
  document.addEventListener("htmx:beforeSwap", function (event) {
    var part = event.detail.target;
    if (!isPatient(part)) { return; }
    // asked for before somebody began to type, answered after
    if (holds(part)) { event.detail.shouldSwap = false; return; }
    replaced(part).forEach(function (one) {
      unfolded[one.id] = Array.from(one.querySelectorAll("details[open] > summary"), function (row) { return row.textContent; });
    });
    chosen = Array.from(part.querySelectorAll("input[data-row]:checked"), function (one) { return one.value; });
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
    // rows that were chosen stay chosen
    var again = chosen;
    chosen = [];
    document.querySelectorAll("input[data-row]").forEach(function (one) {
      if (again.indexOf(one.value) < 0) { return; }
      one.checked = true;
      one.dispatchEvent(new Event("change", { bubbles: true }));
    });
  });
})();
