// The timeline of Schedule: what a query did in the epoch that is pointed at or stepped to, and a hold on refreshing.
(() => {
  let held = false, at = null; // at: { lane, t } in seconds from the picture's beginning

  const clock = seconds => new Date(seconds * 1000).toISOString().slice(11, 19);
  const short = value => Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 1 ? value.toFixed(1) : value.toPrecision(2);
  const parts = () => {
    const figure = document.querySelector("[data-timeline]"), told = document.getElementById("timeline-told");
    if (!figure || !told) return null;
    const svg = [...figure.querySelectorAll("svg")].find(one => one.getClientRects().length > 0);
    return svg ? { figure, svg, tip: figure.querySelector("[data-tip]"), told: JSON.parse(told.textContent) } : null;
  };
  const rowAt = (rows, t) => rows.reduce((best, row) => !best || Math.abs(row[0] + 0.5 - t) < Math.abs(best[0] + 0.5 - t) ? row : best, null);

  function words(told, lane, row) {
    const time = clock(told.begin + told.offset + row[0]);
    const said = [`had the core ${row[3]} ms`, row[1] ? `${row[1].toLocaleString("en")} records wait` : "nothing waits"];
    if (row[2] !== null) said.push(`slack ${short(row[2]).replace("-", "−")} s`);
    return [`${told.lanes[lane].name}, ${time}`, said.join("; ")];
  }

  function hide() {
    at = null;
    document.querySelectorAll(".sch-cursor").forEach(one => one.remove());
    const tip = document.querySelector("[data-tip]");
    if (tip) tip.hidden = true;
  }

  function show(aloud) {
    const found = parts();
    if (!found || !at) return;
    const { figure, svg, tip, told } = found, lane = told.lanes[at.lane];
    const row = lane && rowAt(lane.rows, at.t);
    if (!row) { hide(); return; }
    const place = svg.dataset, x = Number(place.left) + Number(place.span) * (row[0] + 0.5) / Number(place.seconds);
    svg.querySelectorAll(".sch-cursor").forEach(one => one.remove());
    const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
    line.setAttribute("class", "sch-cursor");
    line.setAttribute("d", `M${x} 14V${svg.viewBox.baseVal.height - 20}`);
    svg.append(line);
    const [head, text] = words(told, at.lane, row);
    tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: head }), text);
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), frame = figure.getBoundingClientRect();
    const left = box.left - frame.left + x * box.width / svg.viewBox.baseVal.width;
    const group = svg.querySelector(`[data-lane="${at.lane}"]`).getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(left + 10, frame.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${group.bottom - frame.top + 6}px`;
    const said = document.querySelector("[data-said]");
    if (aloud && said) said.textContent = `${head}: ${text}`;
  }

  const laneOf = target => target instanceof Element ? target.closest(".sch-lane") : null;
  document.addEventListener("pointermove", event => {
    const figure = event.target instanceof Element && event.target.closest("[data-timeline]");
    if (!figure) { if (at && !laneOf(document.activeElement)) hide(); return; }
    const lane = laneOf(event.target), found = parts();
    if (!lane || !found) return;
    const box = found.svg.getBoundingClientRect(), place = found.svg.dataset;
    const x = (event.clientX - box.left) * found.svg.viewBox.baseVal.width / box.width;
    at = { lane: Number(lane.dataset.lane), t: (x - Number(place.left)) / Number(place.span) * Number(place.seconds) };
    show(false);
  });
  document.addEventListener("focusin", event => {
    const lane = laneOf(event.target), found = lane && parts();
    if (!found) return;
    const rows = found.told.lanes[Number(lane.dataset.lane)].rows;
    if (rows.length) { at = { lane: Number(lane.dataset.lane), t: at ? at.t : rows[rows.length - 1][0] + 0.5 }; show(false); }
  });
  document.addEventListener("focusout", event => { if (laneOf(event.target)) hide(); });
  document.addEventListener("keydown", event => {
    const lane = laneOf(document.activeElement), step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (lane && event.key === "Escape") { hide(); return; }
    if (lane && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      const lanes = [...lane.parentElement.querySelectorAll(".sch-lane")];
      lanes[lanes.indexOf(lane) + (event.key === "ArrowDown" ? 1 : -1)]?.focus();
      event.preventDefault();
      return;
    }
    if (!lane || !step || !at) return;
    event.preventDefault();
    const rows = parts().told.lanes[at.lane].rows, next = rows[rows.indexOf(rowAt(rows, at.t)) + step];
    if (next) { at.t = next[0] + 0.5; show(true); }
  });

  // While it is held, the page keeps what it shows.
  document.addEventListener("click", event => {
    const button = event.target instanceof Element && event.target.closest("[data-hold]");
    if (!button) return;
    held = !held;
    button.setAttribute("aria-pressed", String(held));
    button.querySelector("span").textContent = held ? "Held" : "Hold";
    if (!held) document.body.dispatchEvent(new CustomEvent("changed:*"));
  });
  document.addEventListener("htmx:beforeRequest", event => {
    if (held && event.detail.elt.id === "schedule") event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", event => {
    if (held && event.detail.target?.id === "schedule") event.detail.shouldSwap = false;
  });
  document.addEventListener("htmx:afterSettle", () => show(false));
  document.addEventListener("change", event => {
    if (event.target instanceof Element && event.target.matches("select[data-submit]")) event.target.form.submit();
  });
})();
