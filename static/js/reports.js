/* The form of a report: fields that the chosen kind and schedule do not use are hidden and not sent. */
(function () {
  "use strict";
  var form = document.getElementById("definition");
  if (!form) { return; }
  function apply() {
    form.querySelectorAll("[data-when]").forEach(function (mark) {
      var parts = mark.dataset.when.split(":");
      var chooser = form.elements[parts[0]];
      var shown = !chooser || parts[1].split(",").indexOf(chooser.value) >= 0;
      var field = mark.closest(".field");
      field.hidden = !shown;
    });
  }
  form.addEventListener("change", apply);
  apply();
})();
