// Listens to /ws/. A message names a topic that changed; parts of the page that show it fetch themselves again:
//   <div hx-get="…" hx-trigger="changed:job:1234 from:body, changed:* from:body" hx-select="#part">
// Of the answer comes the part alone, and nothing where it is as it was. What somebody opened, chose, typed or scrolled
// to in a part outlives its renewal. While the connection is down everything is asked for again at a slow pace; since
// when the page is as it is stands in the top bar. A tab that nobody looks at asks for nothing.
(() => {
  const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 15000, SLOW_POLL_MS = 10000, QUIET_MS = 3000;
  const BURST_MS = 600, LONGEST_BURST_MS = 4800;
  const mark = document.querySelector("[data-live]");
  if (!mark) return;
  let wait = FIRST_WAIT_MS, poll = 0, notice = 0, updatedAt = new Date();

  // A burst of messages becomes one refresh now and one after it: the last change must never be the one that is missed.
  // While a topic goes on changing the pauses grow. A refresh asked for while another is under way may be dropped by the
  // part it replaces, and a part that is being put in place does not listen yet, so it is asked for again.
  const BUSY = ".htmx-request, .htmx-swapping, .htmx-added, .htmx-settling";
  const recent = new Map();
  const unseen = new Set();
  const announce = (topic, pause = BURST_MS) => {
    if (document.hidden) { unseen.add(topic); return; }
    const known = recent.get(topic);
    if (known) { known.again = true; return; }
    const entry = { again: document.querySelector(BUSY) !== null };
    recent.set(topic, entry);
    document.body.dispatchEvent(new CustomEvent(`changed:${topic}`, { detail: { topic } }));
    setTimeout(() => {
      recent.delete(topic);
      if (entry.again) announce(topic, Math.min(pause * 2, LONGEST_BURST_MS));
    }, pause);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    if (poll || unseen.has("*")) announce("*"); else unseen.forEach(topic => announce(topic));
    unseen.clear();
  });

  const clock = moment => new Intl.DateTimeFormat("en-GB", {
    timeZone: document.querySelector("[data-clock]")?.dataset.clock, hour: "2-digit", minute: "2-digit", hourCycle: "h23",
  }).format(moment);
  const complain = () => {
    mark.querySelector("[data-since]").textContent = `Not updated since ${clock(updatedAt)}`;
    mark.hidden = false;
  };
  const down = () => {
    if (poll) return;
    poll = setInterval(() => announce("*"), SLOW_POLL_MS);
    notice = setTimeout(complain, QUIET_MS);
  };
  const up = () => {
    clearInterval(poll);
    clearTimeout(notice);
    poll = 0;
    mark.hidden = true;
    updatedAt = new Date();
  };

  const connect = () => {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/`);
    socket.addEventListener("message", event => {
      let message;
      try { message = JSON.parse(event.data); } catch { return; }
      updatedAt = new Date();
      if (message.changed) announce(message.changed);
      if (!message.ready) return;
      wait = FIRST_WAIT_MS;
      up();
      // what changed after the page was made and before it was listened to was announced to nobody
      announce("*");
    });
    socket.addEventListener("close", () => {
      down();
      setTimeout(connect, wait * (0.75 + Math.random() / 2));
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    });
  };

  // -- parts: the request names them and what is there already
  const etags = new Map(Object.entries(JSON.parse(document.body.dataset.parts || "{}")));
  const isRenewal = detail => Boolean(detail.requestConfig?.triggeringEvent?.type.startsWith("changed:"));
  const partsOf = element => ["hx-select", "hx-select-oob"].flatMap(name =>
    (element.getAttribute(name) ?? "").split(",").map(id => id.trim().replace(/^#/, "")).filter(Boolean)).join(" ");
  document.addEventListener("htmx:configRequest", event => {
    const { elt, headers, triggeringEvent } = event.detail;
    const parts = triggeringEvent?.type.startsWith("changed:") ? partsOf(elt) : "";
    if (!parts) return;
    headers["Sluice-Part"] = parts;
    if (etags.has(parts)) headers["If-None-Match"] = etags.get(parts);
  });

  // -- what somebody did to a part outlives its renewal
  const all = (selector, inside) => [...inside.querySelectorAll(selector)];
  const nameOf = element => element.id || element.getAttribute("name") || element.getAttribute("href")
    || element.getAttribute("aria-label") || element.textContent.trim().slice(0, 80);
  // elements of one kind by name, and by their order where several have the same
  const keyed = (selector, inside) => {
    const seen = new Map();
    return new Map(all(selector, inside).map(element => {
      const base = `${element.tagName} ${nameOf(element)} ${element.type === "checkbox" || element.type === "radio" ? element.value : ""}`;
      const order = seen.get(base) ?? 0;
      seen.set(base, order + 1);
      return [`${base} ${order}`, element];
    }));
  };
  const FIELDS = "input:not([type=hidden], [type=file]), select, textarea";
  const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
  const SCROLLED = ".tw, .figw, .filters, .menu, [tabindex='0']";
  const isTouched = field => field.type === "checkbox" || field.type === "radio" ? field.checked !== field.defaultChecked
    : field.tagName === "SELECT" ? [...field.options].some(option => option.selected !== option.defaultSelected)
    : field.value !== field.defaultValue;
  const isTyping = part => {
    const here = document.activeElement;
    return part.contains(here) && here.matches("input:not([type=checkbox], [type=radio], [type=range]), textarea")
      && isTouched(here);
  };
  const stateOf = part => {
    const focused = part.contains(document.activeElement)
      ? [...keyed(FOCUSABLE, part)].find(([, element]) => element === document.activeElement)?.[0] : undefined;
    const pairs = (selector, holds, value) => [...keyed(selector, part)].filter(([, one]) => holds(one)).map(([key, one]) => [key, value(one)]);
    return {
      focused,
      opened: pairs("details > summary", one => one.parentElement.open, () => true),
      folded: pairs("details > summary", one => !one.parentElement.open, () => false),
      fields: pairs(FIELDS, isTouched, one => ({ value: one.value, checked: one.checked })),
      scrolled: all(SCROLLED, part).map(one => [one.scrollLeft, one.scrollTop]),
    };
  };
  const restore = (part, state) => {
    const summaries = keyed("details > summary", part), fields = keyed(FIELDS, part);
    [...state.opened, ...state.folded].forEach(([key, open]) => {
      const summary = summaries.get(key);
      if (summary && summary.parentElement.open !== open) summary.parentElement.open = open;
    });
    state.fields.forEach(([key, { value, checked }]) => {
      const field = fields.get(key);
      if (!field) return;
      field.value = value;
      if ("checked" in field) field.checked = checked;
      field.dispatchEvent(new Event(field.matches("[type=checkbox], [type=radio]") ? "change" : "input", { bubbles: true }));
    });
    all(SCROLLED, part).forEach((one, i) => {
      if (!state.scrolled[i]) return;
      [one.scrollLeft, one.scrollTop] = state.scrolled[i];
    });
    if (state.focused) keyed(FOCUSABLE, part).get(state.focused)?.focus({ preventScroll: true });
  };

  const held = new Map();
  document.addEventListener("htmx:beforeSwap", event => {
    const { detail } = event;
    if (!isRenewal(detail)) return;
    if (detail.xhr.status < 400) { updatedAt = new Date(); if (!poll) mark.hidden = true; }
    if (!detail.shouldSwap) return;
    const part = detail.target;
    if (part.querySelector("dialog[open]") || isTyping(part)) {
      // renewed once the dialog is closed or the text sent
      detail.shouldSwap = false;
      setTimeout(() => announce("*"), SLOW_POLL_MS / 2);
      return;
    }
    held.set(part.id, stateOf(part));
    const tag = detail.xhr.getResponseHeader("ETag"), parts = partsOf(detail.requestConfig.elt);
    if (tag && parts) etags.set(parts, tag);
  });
  document.addEventListener("htmx:afterSwap", event => {
    const { detail } = event;
    const part = detail.target.id ? document.getElementById(detail.target.id) : null;
    if (!isRenewal(detail) || !part || !held.has(part.id)) return;
    restore(part, held.get(part.id));
    held.delete(part.id);
  });
  for (const failure of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(failure, event => { if (isRenewal(event.detail)) complain(); });
  }
  connect();
})();
