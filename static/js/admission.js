// Admission pages: countdowns, the chosen alternative in words and kept when the part around it is fetched again.
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

  let chosen = "";
  const say = () => {
    const box = document.querySelector('input[name="alternative"]:checked');
    const place = document.querySelector("[data-chosen]");
    if (box && place) place.textContent = `Chosen: ${box.dataset.title}`;
  };
  document.addEventListener("change", event => {
    if (!event.target.matches('input[name="alternative"]')) return;
    chosen = event.target.value;
    say();
  });
  document.addEventListener("htmx:afterSwap", () => {
    const same = all('input[name="alternative"]').find(box => box.value === chosen);
    if (same) same.checked = true;
    say();
    count();
  });

  // an open dialog stays as it is: what it asks for is checked again when it is sent
  document.addEventListener("htmx:oobBeforeSwap", event => {
    if (document.querySelector("#admission-dialogs dialog[open]")) event.detail.shouldSwap = false;
  });

  count();
  setInterval(count, 1000);
})();
