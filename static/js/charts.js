// Draws every <figure data-chart="ID"> from the JSON block #ID (made by apps/ui/charts.py) as SVG: curves by role,
// values under the pointer, a closer look by dragging, or a page at a moment. Colours are the style sheet's variables, so that a theme and
// print need no redraw.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 52, RIGHT = 16, TOP = 22, BOTTOM = 26, MIN_DRAG = 8, LETTER = 6.6;
  const MINUTE = 60, HOUR = 3600, DAY = 86400;
  const STEPS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR,
    2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY, 28 * DAY];
  const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
  const ROLES = {
    estimate: { ink: "c-estimate", width: 2 },
    forecast: { ink: "c-estimate", width: 2, dash: "2 4" },
    load: { ink: "c-fill", width: 1.5, filled: true },
    alt: { ink: "c-alt", width: 2, dash: "7 4" },
    third: { ink: "c-third", width: 2, dash: "2 3" },
  };

  function element(tag, attributes, text) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) if (value !== undefined) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }
  const round = value => Math.round(value * 100) / 100;
  const two = value => String(value).padStart(2, "0");
  const plain = value => Number(value.toPrecision(3)).toLocaleString("en-GB", { maximumSignificantDigits: 3 })
    .replace("-", "−");

  // -- time: seconds from the axis' start, shown as the clock on the wall

  function wallClock(axis, seconds) {
    if (axis.kind === "elapsed") return seconds;
    const at = axis.start + seconds;
    let offset = axis.offsets[0][1]; // also of what stands before the first point
    for (const [from, value] of axis.offsets) if (at >= from) offset = value;
    return at + offset;
  }
  function timeWords(axis, seconds, step) {
    const date = new Date(wallClock(axis, seconds) * 1000);
    const clock = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}`;
    const day = axis.kind === "elapsed" ? `day ${Math.floor(seconds / DAY) + 1}` : `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]}`;
    if (step >= DAY) return day;
    if (step >= MINUTE) return clock;
    return `${clock}:${two(date.getUTCSeconds())}`;
  }
  function timeTicks(axis, low, high, wanted) {
    const step = STEPS.find(size => (high - low) / size <= wanted) ?? STEPS.at(-1);
    const begin = wallClock(axis, low);
    let ticks = [];
    for (let at = low + Math.ceil(begin / step) * step - begin; at <= high; at += step) ticks.push(at);
    return ticks.map(at => [at, timeWords(axis, at, step)]);
  }
  function valueTicks(bottom, top) {
    const rough = (top - bottom) / 5, size = 10 ** Math.floor(Math.log10(rough));
    const step = size * [1, 2, 2.5, 5, 10].find(factor => size * factor >= rough * 0.999);
    const first = Math.ceil(bottom / step - 1e-9), last = Math.floor(top / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step || 0);
  }

  // 1.5 k/s, not 1.5k /s: large numbers are drawn in thousands, millions or billions of their unit
  function inPrefix(spec) {
    const [size, prefix] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => spec.top >= least) ?? [1, ""];
    if (!spec.format.endsWith("s")) return spec;
    const less = values => values?.map(value => value === null ? null : value / size);
    const series = spec.series.map(row => ({ ...row, y: less(row.y), low: less(row.low), high: less(row.high) }));
    return { ...spec, unit: `${prefix}${spec.unit}`, top: spec.top / size, bottom: (spec.bottom ?? 0) / size, series };
  }
  const withUnit = (spec, value) => `${plain(value)}${spec.unit === "%" ? "" : "\u00a0"}${spec.unit}`;

  class Chart {
    constructor(figure, spec) {
      this.figure = figure;
      this.plot = figure.querySelector("[data-plot]");
      this.reset = figure.querySelector("[data-reset]");
      this.spec = inPrefix(spec);
      const axis = this.spec.x;
      this.series = this.spec.series.map(row => ({
        ...row,
        at: row.x ?? Array.from({ length: (row.y ?? row.high).length }, (_, i) => axis.first + i * axis.step),
      }));
      const times = this.series.flatMap(row => row.at);
      this.whole = [Math.min(...times.slice(0, 1), times.reduce((a, b) => Math.min(a, b), Infinity)),
        times.reduce((a, b) => Math.max(a, b), -Infinity)];
      if (!(this.whole[1] > this.whole[0])) this.whole = [(this.whole[0] || 0) - 1, (this.whole[0] || 0) + 1];
      this.shown = this.whole;
      this.reset?.addEventListener("click", () => this.look(this.whole));
      this.watch = new ResizeObserver(() => { if (this.plot.clientWidth !== this.width) this.draw(); });
      this.watch.observe(this.plot);
      this.draw();
    }

    look(shown) {
      this.shown = shown;
      if (this.reset) this.reset.hidden = shown === this.whole;
      this.draw();
    }

    draw() {
      const { spec } = this;
      this.width = this.plot.clientWidth || 640;
      this.bottom = spec.bottom ?? 0;
      this.top = Math.max(spec.top ?? 0, (spec.objective?.value ?? 0) * 1.12) || (this.bottom < 0 ? 0 : 1);
      const right = this.width - RIGHT, base = spec.height - BOTTOM, [low, high] = this.shown;
      this.x = at => LEFT + (at - low) / (high - low) * (right - LEFT);
      const share = value => (value - this.bottom) / (this.top - this.bottom);
      this.y = value => base - Math.min(Math.max(share(value), -0.1), 1.1) * (base - TOP);
      this.base = base;
      const svg = element("svg", { class: "fig ts", width: this.width, height: spec.height,
        viewBox: `0 0 ${this.width} ${spec.height}`, "aria-hidden": "true" });
      const clip = `${this.figure.dataset.chart}-clip`;
      const cut = element("clipPath", { id: clip });
      cut.append(element("rect", { x: LEFT, y: TOP - 4, width: right - LEFT, height: base - TOP + 5 }));
      const curves = element("g", { "clip-path": `url(#${clip})` });
      for (const row of this.series) curves.append(...this.curve(row));
      svg.append(cut, ...this.axes(right), curves, ...this.lines(right));
      this.pointer = element("g", {});
      svg.append(this.pointer);
      this.plot.replaceChildren(svg);
      this.listen(svg, right);
    }

    axes(right) {
      const { spec, base } = this, shapes = [];
      const values = valueTicks(this.bottom, this.top);
      values.forEach((value, i) => {
        const y = round(this.y(value)), isTop = i === values.length - 1;
        shapes.push(element("path", { class: value ? "grid" : "axis", d: `M${LEFT} ${y}H${right}` }));
        shapes.push(element("text", { x: LEFT - 6, y: y + 4, "text-anchor": "end" }, isTop ? withUnit(spec, value) : plain(value)));
      });
      for (const [at, words] of timeTicks(spec.x, ...this.shown, Math.max(2, (right - LEFT) / 110))) {
        const x = round(this.x(at));
        shapes.push(element("path", { class: "axis", d: `M${x} ${base}v4` }));
        const room = words.length * LETTER / 2;
        const anchor = x + room > this.width ? "end" : "middle";
        shapes.push(element("text", { x: anchor === "end" ? this.width : x, y: base + 17, "text-anchor": anchor }, words));
      }
      return shapes;
    }

    // the parts of a curve without a gap, as lists of points
    runs(row, values) {
      const runs = [[]];
      row.at.forEach((at, i) => {
        if ((values[i] ?? null) === null) { if (runs.at(-1).length) runs.push([]); }
        else runs.at(-1).push([round(this.x(at)), round(this.y(values[i]))]);
      });
      return runs.filter(run => run.length);
    }
    path(run) {
      return run.map(([x, y], i) => i ? (this.spec.steps ? `H${x}V${y}` : `L${x} ${y}`) : `M${x} ${y}`).join("");
    }

    curve(row) {
      if (row.role === "band") {
        return this.runs(row, row.high).map((upper, i) => {
          const lower = this.runs(row, row.low)[i] ?? [];
          const back = lower.toReversed().map(([x, y], k, all) =>
            this.spec.steps && k ? `V${y}H${x}` : `L${x} ${y}`).join("");
          return element("path", { d: `${this.path(upper)}${back}z`, fill: "var(--c-band)", "fill-opacity": 0.62 });
        });
      }
      if (row.role === "measured") {
        return this.runs(row, row.y).flat().map(([x, y]) => element("circle", { cx: x, cy: y, r: 3.5,
          fill: "var(--surface)", stroke: "var(--c-measured)", "stroke-width": 1.25 }));
      }
      const role = ROLES[row.role] ?? ROLES.estimate, ink = `var(--${row.ink ?? role.ink})`;
      return this.runs(row, row.y).flatMap(run => {
        if (run.length === 1) return [element("circle", { cx: run[0][0], cy: run[0][1], r: 2.5, fill: ink })];
        const d = this.path(run);
        const line = element("path", { d, fill: "none", stroke: ink, "stroke-width": role.width,
          "stroke-dasharray": role.dash, "stroke-linejoin": "round" });
        if (!role.filled) return [line];
        const area = `${d}V${this.base}H${run[0][0]}z`;
        return [element("path", { d: area, fill: ink, "fill-opacity": 0.35 }), line];
      });
    }

    lines(right) {
      const { spec } = this, shapes = [];
      if (spec.objective) {
        const y = round(this.y(spec.objective.value));
        shapes.push(element("path", { d: `M${LEFT} ${y}H${right}`, stroke: "var(--c-objective)", "stroke-width": 1.5 }));
        shapes.push(element("text", { x: right, y: y - 5, "text-anchor": "end", class: "to halo" }, spec.objective.label));
      }
      for (const mark of spec.marks ?? []) {
        if (mark.x < this.shown[0] || mark.x > this.shown[1]) continue;
        const x = round(this.x(mark.x)), half = mark.label.length * LETTER / 2;
        const side = x - half < 0 ? "right" : x + half > this.width ? "left" : mark.side;
        shapes.push(element("path", { d: `M${x} ${TOP - 4}V${this.base}`, stroke: `var(--${mark.solid ? "ink" : "ink-3"})`,
          "stroke-dasharray": mark.solid ? undefined : "2 3" }));
        const anchor = { left: "end", right: "start" }[side] ?? "middle";
        shapes.push(element("text", { x, y: TOP - 9, "text-anchor": anchor }, mark.label));
      }
      return shapes;
    }

    // -- pointer: the values at the nearest time; dragging looks closer

    listen(svg, right) {
      const within = event => Math.min(Math.max(event.clientX - svg.getBoundingClientRect().left, LEFT), right);
      const timeAt = x => this.shown[0] + (x - LEFT) / (right - LEFT) * (this.shown[1] - this.shown[0]);
      let from = null;
      svg.addEventListener("pointermove", event => {
        if (from === null) this.point(timeAt(within(event)), right);
        else this.pointer.replaceChildren(element("rect", { x: Math.min(from, within(event)), y: TOP,
          width: Math.abs(within(event) - from), height: this.base - TOP, fill: "var(--accent)", "fill-opacity": 0.15 }));
      });
      svg.addEventListener("pointerleave", () => { if (from === null) this.pointer.replaceChildren(); });
      svg.addEventListener("pointerdown", event => {
        if (event.button || event.pointerType === "touch") return;
        from = within(event);
        svg.setPointerCapture(event.pointerId);
        event.preventDefault();
      });
      svg.addEventListener("pointerup", event => {
        if (from === null) return;
        const to = within(event), begin = from;
        from = null;
        this.pointer.replaceChildren();
        const chosen = Math.abs(to - begin) < MIN_DRAG ? [timeAt(to)]
          : [timeAt(Math.min(begin, to)), timeAt(Math.max(begin, to))];
        if (this.spec.moments) this.open(...chosen);
        else if (chosen.length > 1) this.look(chosen);
      });
      svg.addEventListener("pointercancel", () => { from = null; this.pointer.replaceChildren(); });
      if (!this.spec.moments) return svg.addEventListener("dblclick", () => this.look(this.whole));
      svg.style.cursor = "pointer";
      svg.addEventListener("click", event => { if (event.pointerType === "touch") this.open(timeAt(within(event))); });
    }

    // the page at a moment, or between two, by the clock on the wall
    open(since, until) {
      const local = at => new Date(wallClock(this.spec.x, at) * 1000).toISOString().slice(0, 19);
      const asked = new URLSearchParams({ since: local(since), ...(until ? { until: local(until) } : {}) });
      location.assign(`${this.spec.moments}?${asked}`);
    }

    point(time, right) {
      const { spec } = this, lines = [];
      let nearest = null;
      for (const row of this.series) {
        const i = this.nearest(row, time);
        const value = (row.y ?? row.high)[i];
        if ((value ?? null) === null) continue;
        if (nearest === null || Math.abs(row.at[i] - time) < Math.abs(nearest - time)) nearest = row.at[i];
        const words = row.role === "band" ? `${plain(row.low[i])} to ${withUnit(spec, value)}` : withUnit(spec, value);
        if (Math.abs(this.x(row.at[i]) - this.x(time)) < 24 || row.at.length > 60) lines.push(`${row.name} ${words}`);
      }
      if (nearest === null) return this.pointer.replaceChildren();
      const [from, to] = this.shown, fine = to - from < 10 * MINUTE ? 1 : MINUTE;
      const day = to - from > DAY ? `${timeWords(spec.x, nearest, DAY)}, ` : "";
      lines.unshift(`${day}${timeWords(spec.x, nearest, fine)}`);
      const x = round(this.x(nearest)), wide = Math.max(...lines.map(line => line.length)) * LETTER + 16;
      const left = x + 10 + wide > right ? Math.max(x - 10 - wide, 0) : x + 10;
      const box = element("rect", { x: left, y: TOP, width: wide, height: lines.length * 16 + 8, rx: 3,
        fill: "var(--raised)", stroke: "var(--line-strong)" });
      const texts = lines.map((line, i) => element("text", { x: left + 8, y: TOP + 17 + 16 * i, class: i ? "t2" : "tb" }, line));
      this.pointer.replaceChildren(element("path", { d: `M${x} ${TOP}V${this.base}`, stroke: "var(--ink-3)",
        "stroke-dasharray": "2 3" }), box, ...texts);
    }
    nearest(row, time) {
      let low = 0, high = row.at.length - 1;
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (row.at[middle] <= time) low = middle; else high = middle;
      }
      return Math.abs(row.at[high] - time) < Math.abs(row.at[low] - time) ? high : low;
    }
  }

  const drawn = new Map();
  function drawAll() {
    for (const [figure, chart] of drawn) if (!figure.isConnected) { chart.watch.disconnect(); drawn.delete(figure); }
    for (const figure of document.querySelectorAll("figure[data-chart]")) {
      const block = document.getElementById(figure.dataset.chart);
      if (block && !drawn.has(figure)) drawn.set(figure, new Chart(figure, JSON.parse(block.textContent)));
    }
  }
  drawAll();
  document.addEventListener("htmx:afterSettle", drawAll);
  // paper has another width
  const redraw = () => { for (const chart of drawn.values()) chart.draw(); };
  addEventListener("beforeprint", redraw);
  addEventListener("afterprint", redraw);
})();
