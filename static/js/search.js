// The search box in the top bar: suggestions as one types, as a combobox with a list. Without scripts the box is a form.
(() => {
  const box = document.querySelector("[data-suggest]");
  if (!box) return;
  const list = document.getElementById(box.getAttribute("aria-controls"));
  const told = document.querySelector("[data-suggested]");
  let active = -1;
  const options = () => [...list.querySelectorAll("[role=option]")];
  const isOpen = () => !list.hidden;

  const mark = number => {
    const all = options();
    active = all.length ? (number + all.length) % all.length : -1;
    all.forEach((option, i) => option.setAttribute("aria-selected", String(i === active)));
    if (active < 0) { box.removeAttribute("aria-activedescendant"); return; }
    box.setAttribute("aria-activedescendant", all[active].id);
    all[active].scrollIntoView({ block: "nearest" });
  };
  const unmark = () => {
    active = -1;
    options().forEach(option => option.setAttribute("aria-selected", "false"));
    box.removeAttribute("aria-activedescendant");
  };
  const show = open => {
    list.hidden = !open;
    box.setAttribute("aria-expanded", String(open));
    if (!open) unmark();
  };

  list.addEventListener("htmx:afterSwap", () => {
    unmark();
    const count = options().length;
    told.textContent = count ? `${count} suggestions` : "No suggestions";
    show(document.activeElement === box);
  });
  box.addEventListener("keydown", event => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!isOpen()) show(options().length > 0);
      const down = event.key === "ArrowDown";
      mark(active < 0 ? (down ? 0 : -1) : active + (down ? 1 : -1));
    } else if (event.key === "Enter" && isOpen() && active >= 0) {
      event.preventDefault();
      location.href = options()[active].href;
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (isOpen()) show(false); else box.value = "";
    }
  });
  // a press on an option must not take the focus away before it is a click
  list.addEventListener("mousedown", event => event.preventDefault());
  box.addEventListener("blur", () => show(false));
})();
