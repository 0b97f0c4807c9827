// Draws every <figure data-chart="ID"> from the JSON block #ID (made by apps/ui/charts.py) with Plotly.
// Colours come from the style sheet's variables by role and follow the theme; print is always light.
(() => {
  if (!window.Plotly) return;
  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  // Custom properties hold light-dark(…) as text; only a real property resolves it.
  const colour = name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; };
  const faded = (rgb, alpha) => rgb.replace(/^rgb\((.*)\)$/, `rgba($1, ${alpha})`);

  const ROLES = {
    estimate: { ink: "c-estimate", line: { width: 2 } },
    forecast: { ink: "c-estimate", line: { width: 2, dash: "2px,4px" } },
    load: { ink: "c-fill", line: { width: 1.5 }, fill: "tozeroy" },
    alt: { ink: "c-alt", line: { width: 2, dash: "7px,4px" } },
    third: { ink: "c-third", line: { width: 2, dash: "dot" } },
  };

  function wallClock(axis, seconds) {
    if (axis.kind === "elapsed") return new Date(seconds * 1000).toISOString();
    const at = axis.start + seconds;
    let offset = 0;
    for (const [from, value] of axis.offsets) if (at >= from) offset = value;
    return new Date((at + offset) * 1000).toISOString();
  }
  function xs(spec, series) {
    const axis = spec.x;
    const seconds = series.x ?? Array.from({ length: (series.y ?? series.high).length }, (_, i) => axis.first + i * axis.step);
    return seconds.map(value => wallClock(axis, value));
  }

  function traces(spec) {
    const list = [];
    const hover = `%{y:${spec.format}}\u00a0${spec.unit}`;
    for (const series of spec.series) {
      const x = xs(spec, series);
      const common = { x, name: series.name, hovertemplate: `${hover}<extra>${series.name}</extra>`, showlegend: false };
      if (series.role === "band") {
        const edge = { x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
        list.push({ ...edge, y: series.low });
        const fill = { fill: "tonexty", fillcolor: faded(colour("c-band"), 0.62) };
        list.push({ ...common, ...edge, ...fill, y: series.high, customdata: series.low, hoverinfo: "all",
          hovertemplate: `%{customdata:${spec.format}} to ${hover}<extra>${series.name}</extra>` });
      } else if (series.role === "measured") {
        const marker = { symbol: "circle", size: 7, color: colour("surface"), line: { width: 1.25, color: colour("c-measured") } };
        list.push({ ...common, y: series.y, mode: "markers", marker });
      } else {
        const role = ROLES[series.role] ?? ROLES.estimate;
        const ink = colour(series.ink ?? role.ink);
        const shape = spec.steps ? "hv" : "linear";
        // a line begins with its second point: one without neighbours is drawn as a dot
        const lone = series.y.map((value, i) => value !== null && (series.y[i - 1] ?? null) === null && (series.y[i + 1] ?? null) === null);
        const dots = lone.includes(true) ? { mode: "lines+markers", marker: { size: lone.map(one => one ? 5 : 0), opacity: 1, color: ink } } : {};
        list.push({ ...common, y: series.y, mode: "lines", line: { ...role.line, color: ink, shape },
          fill: role.fill ?? "none", fillcolor: faded(ink, 0.35), ...dots });
      }
    }
    return list;
  }

  function layout(spec) {
    const text = { family: getComputedStyle(document.body).fontFamily, size: 11, color: colour("ink-3") };
    const line = (extra, name, width) => ({ type: "line", line: { color: colour(name), width }, ...extra });
    const shapes = [], annotations = [];
    if (spec.objective) {
      const y = spec.objective.value;
      shapes.push(line({ xref: "paper", x0: 0, x1: 1, y0: y, y1: y }, "c-objective", 1.5));
      annotations.push({ xref: "paper", x: 1, y, xanchor: "right", yanchor: "bottom", showarrow: false,
        text: `<b>${spec.objective.label}</b>`, font: { ...text, color: colour("c-objective") } });
    }
    for (const at of spec.marks ?? []) {
      const x = wallClock(spec.x, at.x);
      const mark = line({ yref: "paper", y0: 0, y1: 1, x0: x, x1: x }, at.solid ? "ink" : "ink-3", 1);
      if (!at.solid) mark.line.dash = "dot";
      shapes.push(mark);
      annotations.push({ x, yref: "paper", y: 1, yanchor: "bottom", showarrow: false, text: at.label, font: text,
        xanchor: { left: "right", right: "left" }[at.side] ?? "center" });
    }
    const top = Math.max(spec.top ?? 0, (spec.objective?.value ?? 0) * 1.12);
    const elapsed = spec.x.kind === "elapsed";
    return {
      height: spec.height, margin: { l: 52, r: 16, t: 22, b: 30 }, font: text, hovermode: "x unified", dragmode: "zoom",
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", shapes, annotations,
      hoverlabel: { bgcolor: colour("raised"), bordercolor: colour("line-strong"), font: { ...text, size: 12, color: colour("ink") } },
      xaxis: {
        type: "date", showgrid: false, linecolor: colour("line-strong"), tickcolor: colour("line-strong"),
        ticks: "outside", ticklen: 4, spikethickness: 1, spikecolor: colour("ink-3"), spikedash: "dot", nticks: 7,
        hoverformat: elapsed ? "%H:%M:%S" : "%H:%M:%S, %-d %b",
        tickformatstops: [
          { dtickrange: [null, 59999], value: "%H:%M:%S" },
          { dtickrange: [60000, 86399999], value: "%H:%M" },
          { dtickrange: [86400000, null], value: elapsed ? "day %-j" : "%-d %b" },
        ],
      },
      yaxis: {
        range: [0, top || 1], fixedrange: true, gridcolor: colour("c-grid"), zeroline: false, nticks: 6,
        tickformat: spec.format, ticksuffix: spec.unit === "%" ? "%" : `\u00a0${spec.unit}`, showticksuffix: "last",
      },
    };
  }

  // 1.5 k/s, not 1.5k /s: large numbers are drawn in thousands, millions or billions of their unit
  function inPrefix(spec) {
    const [size, prefix] = [[1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([least]) => spec.top >= least) ?? [1, ""];
    if (!spec.format.endsWith("s")) return spec;
    const less = values => values?.map(value => value === null ? null : value / size);
    const series = spec.series.map(one => ({ ...one, y: less(one.y), low: less(one.low), high: less(one.high) }));
    return { ...spec, unit: `${prefix}${spec.unit}`, format: ".3~g", top: spec.top / size, series };
  }

  const drawn = new Map();
  async function draw(figure) {
    const block = document.getElementById(figure.dataset.chart);
    if (!block) return;
    const spec = inPrefix(JSON.parse(block.textContent));
    const plot = figure.querySelector("[data-plot]");
    plot.style.minHeight = `${spec.height}px`; // a redraw for paper may collapse it
    const config = { displayModeBar: false, responsive: true, doubleClick: "reset", showTips: false };
    await Plotly.react(plot, traces(spec), layout(spec), config);
    if (drawn.has(figure)) return;
    drawn.set(figure, plot);
    const reset = figure.querySelector("[data-reset]");
    plot.on("plotly_relayout", change => {
      if (reset && ("xaxis.range[0]" in change || "xaxis.autorange" in change)) reset.hidden = Boolean(change["xaxis.autorange"]);
    });
    reset?.addEventListener("click", () => Plotly.relayout(plot, { "xaxis.autorange": true }));
  }

  const drawAll = () => {
    for (const figure of drawn.keys()) if (!figure.isConnected) { Plotly.purge(drawn.get(figure)); drawn.delete(figure); }
    document.querySelectorAll("figure[data-chart]").forEach(figure => { draw(figure); });
  };
  drawAll();
  document.addEventListener("sluice:theme", drawAll);
  document.addEventListener("htmx:afterSettle", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", drawAll);
  addEventListener("afterprint", drawAll);
})();
