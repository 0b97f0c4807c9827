// Admission pages: countdowns, and dialogs that stay open when the part around them is fetched again.
(() => {
  const all = selector => [...document.querySelectorAll(selector)];

  const words = seconds => {
    if (seconds < 90) return `${Math.ceil(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    return `${(seconds / 3600).toFixed(1).replace(/\.0$/, "")} h`;
  };
  const count = () => all("[data-until]").forEach(mark => {
    const left = (Date.parse(mark.dataset.until) - Date.now()) / 1000;
    const text = left > 0 ? `in ${words(left)}` : mark.dataset.past ?? "due";
    if (mark.textContent !== text) mark.textContent = text;
  });

  document.addEventListener("htmx:afterSwap", count);

  // an open dialog stays as it is: what it asks for is checked again when it is sent
  document.addEventListener("htmx:oobBeforeSwap", event => {
    if (document.querySelector("#admission-dialogs dialog[open]")) event.detail.shouldSwap = false;
  });

  count();
  setInterval(count, 1000);
})();
