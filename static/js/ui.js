// Theme, navigation, menus, dialogs, keys, copying, selection, clock. Pages work without it.
(() => {
  const root = document.documentElement;
  const put = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private window */ } };
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // -- actions a button or a key can ask for
  const actions = {
    theme() {
      const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
      root.dataset.theme = (root.dataset.theme || system) === "dark" ? "light" : "dark";
      put("theme", root.dataset.theme);
      document.dispatchEvent(new Event("sluice:theme"));
    },
    nav() {
      root.dataset.nav = root.dataset.nav === "min" ? "" : "min";
      put("nav", root.dataset.nav);
      dispatchEvent(new Event("resize"));
    },
    search() {
      const field = all(".search input, [data-search]").find(input => input.offsetParent);
      if (field) field.focus(); else document.querySelector("[data-search-link]")?.click();
    },
    keys() { document.getElementById("keys-dialog")?.showModal(); },
    print() { print(); },
  };

  document.addEventListener("click", event => {
    const target = event.target;
    const action = target.closest("[data-act]");
    if (action) actions[action.dataset.act]?.();
    const opener = target.closest("[data-open]");
    if (opener) document.getElementById(opener.dataset.open)?.showModal();
    const closer = target.closest("[data-close]");
    if (closer) {
      const dialog = closer.closest("dialog");
      if (dialog) dialog.close(); else closer.closest(".toast")?.remove();
    }
    const copier = target.closest("[data-copy]");
    if (copier) copy(copier);
    if (target.closest('[aria-disabled="true"]')) event.preventDefault();
    all("details.pop[open]").forEach(menu => { if (!menu.contains(target)) menu.open = false; });
  });

  async function copy(button) {
    const text = document.getElementById(button.dataset.copy)?.textContent ?? "";
    const label = button.dataset.label ?? (button.dataset.label = button.textContent);
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = label; }, 1600);
  }

  // -- keys
  const rows = () => all("main tbody tr").filter(row => row.querySelector("a.name") && row.offsetParent);
  const focusRow = step => {
    const list = rows();
    if (!list.length) return;
    const here = list.indexOf(document.activeElement?.closest("tr"));
    const next = here < 0 ? (step > 0 ? 0 : list.length - 1) : Math.min(Math.max(here + step, 0), list.length - 1);
    list[next].querySelector("a.name").focus();
    list[next].scrollIntoView({ block: "nearest" });
  };
  const single = {
    "/": () => actions.search(), "t": actions.theme, "[": actions.nav, "?": actions.keys,
    "j": () => focusRow(1), "k": () => focusRow(-1),
    "x": () => document.activeElement?.closest("tr")?.querySelector('input[type="checkbox"]')?.click(),
  };
  let goAt = 0;
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") {
      all("details.pop[open]").forEach(menu => { menu.open = false; menu.querySelector("summary")?.focus(); });
      return;
    }
    if (document.body.dataset.singleKeys === "false") return;
    const typing = event.target.closest?.("input:not([type=checkbox], [type=radio]), select, textarea, [contenteditable]");
    if (typing || event.metaKey || event.ctrlKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (goAt && Date.now() - goAt < 1200) {
      goAt = 0;
      const link = document.querySelector(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.href = link.href; return; }
    }
    goAt = event.key === "g" ? Date.now() : 0;
    if (single[event.key]) { event.preventDefault(); single[event.key](); }
  });

  // -- selection: the bar of bulk actions appears with the first chosen row; all that match may stand for them
  document.addEventListener("change", event => {
    const box = event.target.closest("input[data-row], input[data-all], input[data-found]");
    if (!box) return;
    const scope = box.closest("form, .panel");
    const boxes = all("input[data-row]", scope);
    const found = scope.querySelector("input[data-found]");
    if (box.matches("[data-all]")) boxes.forEach(one => { one.checked = box.checked; });
    else if (box === found && found.checked) boxes.forEach(one => { one.checked = true; });
    else if (box.matches("[data-row]") && found && !box.checked) found.checked = false;
    showSelection(scope);
  });
  function showSelection(scope) {
    const boxes = all("input[data-row]", scope);
    const found = scope.querySelector("input[data-found]");
    boxes.forEach(one => one.closest("tr")?.setAttribute("aria-selected", String(one.checked)));
    const chosen = boxes.filter(one => one.checked).length;
    const whole = scope.querySelector("input[data-all]");
    if (whole) { whole.checked = chosen > 0 && chosen === boxes.length; whole.indeterminate = chosen > 0 && !whole.checked; }
    if (found && !chosen) found.checked = false;
    all(".bulk", scope).forEach(bar => {
      bar.hidden = !chosen;
      all("[data-count]", bar).forEach(mark => { mark.textContent = `${found?.checked ? found.dataset.found : chosen} selected`; });
    });
  }

  // -- sliders paint their filled part
  const paint = slider => {
    const share = (slider.value - slider.min) / (slider.max - slider.min || 1);
    slider.style.setProperty("--p", `${share * 100}%`);
  };
  document.addEventListener("input", event => { if (event.target.matches('input[type="range"]')) paint(event.target); });

  // -- the clock and "22 min ago" move on
  const ago = seconds => {
    if (seconds < 0) return seconds > -3600 ? `in ${Math.max(1, Math.round(-seconds / 60))} min` : null;
    if (seconds < 45) return "just now";
    if (seconds < 3600) return `${Math.max(1, Math.round(seconds / 60))} min ago`;
    return null;
  };
  const tick = () => {
    all("[data-clock]").forEach(clock => {
      clock.textContent = new Intl.DateTimeFormat("en-GB", {
        timeZone: clock.dataset.clock, hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
      }).format(new Date());
    });
  };
  const age = () => all("time[data-rel]").forEach(mark => {
    const text = ago((Date.now() - Date.parse(mark.dateTime)) / 1000);
    if (text) mark.textContent = text;
  });

  const toast = (text, kind = "ok", undo = "") => {
    const template = document.getElementById("toast-template");
    if (!template) return;
    const node = template.content.cloneNode(true);
    node.querySelector("[data-text]").textContent = text;
    node.querySelectorAll("[data-kind]").forEach(icon => { icon.hidden = icon.dataset.kind !== kind; });
    const form = node.querySelector("[data-undo]");
    if (undo && form) { form.hidden = false; form.action = form.action.replace(/[0-9a-f-]{36}/, undo); }
    document.querySelector(".toasts").append(node);
  };
  document.addEventListener("toast", event => toast(event.detail.text ?? event.detail.value, event.detail.kind, event.detail.undo));

  // a wide picture opens where its finding is
  const showFlagged = figure => {
    const flagged = figure.querySelector("[data-flagged]");
    if (!flagged || figure.scrollWidth <= figure.clientWidth) return;
    const [block, frame] = [flagged.getBoundingClientRect(), figure.getBoundingClientRect()];
    if (block.left >= frame.left && block.right <= frame.right) return;
    figure.scrollLeft += block.left + block.width / 2 - frame.left - frame.width / 2;
  };

  // a wide picture fits its frame, and is made larger and smaller; dragging moves it
  const zooms = new WeakSet(), scales = new Map(); // what was chosen outlives the refresh of its part
  const zoomable = box => {
    if (zooms.has(box)) return;
    zooms.add(box);
    const [figure, svg, acts] = [box.querySelector(".figw"), box.querySelector("svg"), box.querySelector(".zoom-acts")];
    if (!figure || !svg) return;
    const natural = svg.viewBox.baseVal.width, edges = getComputedStyle(figure);
    const room = () => figure.clientWidth - parseFloat(edges.paddingLeft) - parseFloat(edges.paddingRight);
    const show = scale => {
      box.dataset.scale = Math.min(Math.max(scale, 0.25), 3);
      svg.style.minWidth = svg.style.maxWidth = `${natural * box.dataset.scale}px`;
    };
    const name = figure.getAttribute("aria-label");
    const fit = () => show(Math.min(room() / natural, 1.15));
    acts.hidden = false;
    acts.addEventListener("click", event => {
      const by = event.target.closest("[data-zoom-by]");
      if (by) show(Number(box.dataset.scale) * Number(by.dataset.zoomBy));
      else if (event.target.closest("[data-zoom-fit]")) fit();
      scales.set(name, Number(box.dataset.scale));
      showFlagged(figure);
    });
    let from = null;
    figure.addEventListener("pointerdown", event => {
      if (event.button || event.pointerType === "touch" || event.target.closest("a")) return;
      from = [event.clientX + figure.scrollLeft, event.clientY];
      figure.setPointerCapture(event.pointerId);
    });
    figure.addEventListener("pointermove", event => { if (from) figure.scrollLeft = from[0] - event.clientX; });
    figure.addEventListener("pointerup", () => { from = null; });
    figure.addEventListener("pointercancel", () => { from = null; });
    // smaller than this nobody reads it: then it scrolls
    if (scales.has(name)) show(scales.get(name));
    else if (room() / natural >= 0.72) fit();
    else show(1);
    showFlagged(figure);
  };

  const settle = (inside = document) => {
    all("[data-zoom]", inside).forEach(zoomable);
    all(".figw", inside).forEach(showFlagged);
    all('input[type="range"]', inside).forEach(paint);
    // a form that came back with faults is open already, but does not lie over the page as one that was opened by hand
    const refused = inside.querySelector?.("dialog.dialog[open]:not(:modal)");
    if (refused) { refused.close(); refused.showModal(); }
    inside.querySelector?.("[data-focus]")?.focus();
    age();
  };
  document.addEventListener("htmx:afterSwap", event => settle(event.detail.target));
  document.addEventListener("htmx:afterSettle", () => all("[data-zoom]").forEach(zoomable)); // of a part that replaced another

  // -- what is hard to undo is asked about; the button of the question says again what it does
  document.addEventListener("submit", event => {
    const { target: form, submitter } = event;
    const question = form.dataset.confirm ?? submitter?.dataset.confirm;
    const dialog = document.getElementById("confirm-dialog");
    if (!question || !submitter || !dialog || form.dataset.confirmed) return;
    event.preventDefault();
    dialog.querySelector("[data-question]").textContent = question;
    const go = dialog.querySelector("[data-go-on]");
    go.textContent = dialog.querySelector("[data-title]").textContent = submitter.textContent.trim();
    go.onclick = () => {
      dialog.close();
      const [now, button] = standing(form, submitter);
      if (!now) { location.reload(); return; }
      now.dataset.confirmed = "yes";
      now.requestSubmit(button);
    };
    dialog.showModal();
  });
  // the part a form stood in may have been fetched anew while the question was open: then its successor is sent
  function standing(form, submitter) {
    if (form.isConnected) return [form, submitter];
    const now = all("form").find(other => other.action === form.action && other.dataset.confirm === form.dataset.confirm);
    const same = button => button.name === submitter.name && button.value === submitter.value;
    return [now, now && [...now.elements].find(button => button.type === "submit" && same(button))];
  }
  // -- a form is sent once, however often its button is pressed; the way back makes it new
  document.addEventListener("submit", event => {
    const form = event.target;
    if (event.defaultPrevented || form.method !== "post") return;
    if (form.dataset.sent) { event.preventDefault(); return; }
    form.dataset.sent = "yes";
    setTimeout(() => { delete form.dataset.sent; }, 10000);
  });
  addEventListener("pageshow", () => all("form[data-sent]").forEach(form => { delete form.dataset.sent; }));
  // -- a file that would be refused for its size is not sent
  document.addEventListener("change", event => {
    const field = event.target, most = Number(field.dataset.maxBytes);
    if (!most) return;
    const bytes = field.files[0]?.size ?? 0, mega = n => +(n / 1e6).toFixed(1);
    field.setCustomValidity(bytes > most ? `The file has ${mega(bytes)} MB; at most ${mega(most)} MB are taken.` : "");
    field.reportValidity();
  });
  // -- the browser's own time zone, where the settings say another
  all("[data-browser-zone]").forEach(offer => {
    const field = document.getElementById(offer.dataset.browserZone);
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (!field || !zone || field.value === zone) return;
    offer.querySelector("[data-zone]").textContent = zone;
    offer.querySelector("button").addEventListener("click", () => { field.value = zone; offer.hidden = true; field.focus(); });
    offer.hidden = false;
  });
  // -- on paper what is folded away is unfolded
  let unfolded = [];
  addEventListener("beforeprint", () => {
    unfolded = all("details.rest:not([open]), details.data:not([open])");
    unfolded.forEach(part => { part.open = true; });
  });
  addEventListener("afterprint", () => { unfolded.forEach(part => { part.open = false; }); });

  settle();
  tick();
  setInterval(tick, 1000);
  setInterval(age, 30000);
})();
