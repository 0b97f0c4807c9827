/* A load factor's slider and its number say the same. */
(function () {
  "use strict";
  document.querySelectorAll("input[data-factor]").forEach(function (slider) {
    var number = document.getElementById(slider.dataset.factor);
    slider.addEventListener("input", function () { number.value = slider.value; });
    number.addEventListener("input", function () {
      slider.value = number.value;
      slider.style.setProperty("--p", slider.value * 100 + "%");
    });
  });
})();
