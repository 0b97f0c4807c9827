// Listens to /ws/. A message names a topic that changed; parts of the page that show it fetch themselves again:
//   <div hx-get="…" hx-trigger="changed:job:1234 from:body, changed:* from:body">
// While the connection is down everything is asked for again at a slow pace, and a quiet mark says so.
(() => {
  const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 15000, SLOW_POLL_MS = 10000, QUIET_MS = 3000, BURST_MS = 600;
  const mark = document.querySelector("[data-live]");
  if (!mark) return;
  let wait = FIRST_WAIT_MS, poll = 0, notice = 0;

  // A burst of messages becomes one refresh now and one after it: the last change must never be the one that is missed.
  // A refresh asked for while another is under way may be dropped by the part it replaces, and a part that is being put
  // in place does not listen yet, so it is asked for again.
  const BUSY = ".htmx-request, .htmx-swapping, .htmx-added, .htmx-settling";
  const recent = new Map();
  const announce = topic => {
    const known = recent.get(topic);
    if (known) { known.again = true; return; }
    const entry = { again: document.querySelector(BUSY) !== null };
    recent.set(topic, entry);
    document.body.dispatchEvent(new CustomEvent(`changed:${topic}`, { detail: { topic } }));
    setTimeout(() => {
      recent.delete(topic);
      if (entry.again) announce(topic);
    }, BURST_MS);
  };

  const down = () => {
    if (poll) return;
    poll = setInterval(() => { if (!document.hidden) announce("*"); }, SLOW_POLL_MS);
    notice = setTimeout(() => { mark.hidden = false; }, QUIET_MS);
  };
  const up = () => {
    clearInterval(poll);
    clearTimeout(notice);
    poll = 0;
    mark.hidden = true;
  };

  const connect = () => {
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/`);
    socket.addEventListener("message", event => {
      let message;
      try { message = JSON.parse(event.data); } catch { return; }
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
  connect();
  document.addEventListener("visibilitychange", () => { if (!document.hidden && poll) announce("*"); });
})();
