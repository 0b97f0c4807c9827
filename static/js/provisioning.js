// The bench: the chart chooses a number of nodes by click or arrow keys; other inputs let the answer choose again.
(() => {
  const inputs = () => document.getElementById("inputs");
  const factor = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 2 });

  // what a slider says
  document.addEventListener("input", event => {
    const field = event.target, form = field.form;
    if (form?.id !== "inputs") return;
    if (field.type === "range") {
      const output = form.querySelector(`output[for="${field.id}"]`);
      output.textContent = `${factor.format(field.value)}\u00a0${field.dataset.unit}`;
    }
    form.elements.nodes.value = ""; // another question has another answer
  }, true);

  const choose = nodes => {
    const form = inputs();
    form.elements.nodes.value = nodes;
    form.dispatchEvent(new CustomEvent("bench", { bubbles: true }));
  };

  let inChart = false; // whether the focus goes back to the picture once it is drawn anew
  document.addEventListener("click", event => {
    const hit = event.target.closest("a.hit");
    if (!hit || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    inChart = true;
    choose(hit.dataset.nodes);
  });
  document.addEventListener("keydown", event => {
    const hit = event.target.closest?.("a.hit");
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!hit || !step) return;
    event.preventDefault();
    const hits = [...hit.closest("svg").querySelectorAll("a.hit")];
    const next = hits[hits.indexOf(hit) + step];
    if (!next) return;
    inChart = true;
    next.focus();
    choose(next.dataset.nodes);
  });
  document.addEventListener("htmx:afterSettle", () => {
    if (!inChart) return;
    inChart = false;
    const chosen = [...document.querySelectorAll("a.hit[aria-current]")].find(one => one.getBoundingClientRect().width);
    chosen?.focus({ preventScroll: true });
  });

  // a form of its own that is about the bench's inputs takes them along
  document.addEventListener("submit", event => {
    const form = event.target;
    if (!form.matches("[data-with-inputs]") || !inputs()) return;
    form.querySelectorAll("[data-input]").forEach(one => one.remove());
    for (const [name, value] of new FormData(inputs())) {
      const copy = Object.assign(document.createElement("input"), { type: "hidden", name, value });
      copy.dataset.input = "";
      form.append(copy);
    }
    const chosen = document.querySelector("a.hit[aria-current]");
    if (chosen) form.querySelector('[data-input][name="nodes"]').value = chosen.dataset.nodes;
  }, true);
})();
