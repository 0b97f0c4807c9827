"""Small pictures inside tables and strips, as SVG text. Stretchable ones hold no text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from apps.ui.numbers import as_float, ratio, seconds

__all__ = ["EXCESS_STEPS_S", "before_after_bar", "headroom_bar", "heat_strip", "legend", "load_bar", "sparkline"]

#: Lower edges of the excess ramp h0 … h5, in seconds.
EXCESS_STEPS_S = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0)
_CAP_FROM_S = 4.0
_WIDTH = 150.0
#: The objective always stands at three quarters of the width, so that rows compare by eye.
_OBJECTIVE_X = 0.75 * _WIDTH
_NO_SCALE = 'vector-effect="non-scaling-stroke"'


def _x(value_s: float, bound_s: float) -> float:
    return round(min(max(value_s / bound_s * _OBJECTIVE_X, 0.0), _WIDTH), 1)


def _rect(x: float, y: float, width: float, height: float, fill: str, radius: float = 0.0) -> str:
    corner = f' rx="{radius:g}"' if radius else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{max(width, 0):g}" height="{height:g}"{corner} fill="var(--{fill})"/>'


def _svg(css: str, view: str, label: str, parts: Sequence[str], *, style: str = "") -> SafeString:
    body = mark_safe("".join(parts))
    return format_html(
        '<svg class="{}"{} viewBox="{}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>',
        css,
        format_html(' style="{}"', style) if style else "",
        view,
        label,
        body,
    )


def headroom_bar(
    estimate_s: Any, bound_s: Any, low_s: Any = None, high_s: Any = None, measured_s: Any = None, name: str = ""
) -> SafeString:
    """Estimate, interval and measurement against the objective, which stands at 75 % of the width."""
    estimate, bound = as_float(estimate_s), as_float(bound_s)
    low, high, measured = as_float(low_s), as_float(high_s), as_float(measured_s)
    if estimate is None or not bound:
        return SafeString("")
    parts = ['<rect class="trk" x="0" y="5" width="150" height="8" rx="2"/>']
    if low is not None and high is not None:
        parts.append(_rect(_x(low, bound), 3, _x(high, bound) - _x(low, bound), 12, "c-band", 2))
    end = _x(estimate, bound)
    parts.append(_rect(0, 6, end, 6, "c-fill", 1.5))
    if estimate > bound:
        parts.append(_rect(_OBJECTIVE_X, 6, end - _OBJECTIVE_X, 6, "bad"))
    parts.append(f'<path d="M{end:g} 3v12" stroke="var(--c-estimate)" stroke-width="2" {_NO_SCALE}/>')
    parts.append(f'<path d="M{_OBJECTIVE_X:g} 0v18" stroke="var(--c-objective)" stroke-width="1.5" {_NO_SCALE}/>')
    if measured is not None:
        dot = f'<path d="M{_x(measured, bound):g} 9h.01" stroke-linecap="round" {_NO_SCALE} stroke="var(--{{}})"'
        parts.append(
            dot.format("c-measured") + ' stroke-width="7.5"/>' + dot.format("surface") + ' stroke-width="4.8"/>'
        )
    return _svg("hb", "0 0 150 18", _headroom_label(name, estimate, bound, low, high, measured), parts)


def _headroom_label(
    name: str, estimate: float, bound: float, low: float | None, high: float | None, measured: float | None
) -> str:
    text = f"estimate {seconds(estimate, apart_from=bound)} of {seconds(bound)} objective"
    if low is not None and high is not None:
        text += f", interval {seconds(low)} to {seconds(high)}"
    if measured is not None:
        text += f", measured {seconds(measured)}"
    return f"{name}: {text}" if name else text


def before_after_bar(before_s: Any, after_s: Any, bound_s: Any, name: str = "") -> SafeString:
    """Two bars on the objective's scale: what is and what would be. A missing `before_s` is a new query."""
    before, after, bound = as_float(before_s), as_float(after_s), as_float(bound_s)
    if after is None or not bound:
        return SafeString("")
    parts = [f'<rect class="trk" width="150" height="6" y="{y}" rx="1.5"/>' for y in (2, 11)]
    if before is not None:
        parts.append(_rect(0, 2, _x(before, bound), 6, "c-fill", 1.5).replace("/>", ' opacity=".65"/>'))
    parts.append(_rect(0, 11, min(_x(after, bound), _OBJECTIVE_X), 6, "c-estimate", 1.5))
    if after > bound:
        parts.append(_rect(_OBJECTIVE_X, 11, _x(after, bound) - _OBJECTIVE_X, 6, "bad"))
    parts.append(f'<path d="M{_OBJECTIVE_X:g} 0v19" stroke="var(--c-objective)" stroke-width="1.5" {_NO_SCALE}/>')
    was = f"before {seconds(before)}, " if before is not None else ""
    label = f"{was}after {seconds(after, apart_from=bound)}, objective {seconds(bound)}"
    return _svg("hb bar", "0 0 150 19", f"{name}: {label}" if name else label, parts)


def sparkline(values: Sequence[float], label: str, bound: Any = None, width: int = 72) -> SafeString:
    """A line of at most `width` / 2 points with its last value marked; the objective is dashed."""
    points = _thin([value for value in map(as_float, values) if value is not None], width // 2)
    if len(points) < 2:
        return SafeString("")
    limit = as_float(bound)
    low, high = min(points), max([*points, *([limit] if limit is not None else [])])
    span = (high - low) or 1.0
    y = [18.5 - (value - low) / span * 15.5 for value in points]
    x = [1 + index / (len(points) - 1) * (width - 4) for index in range(len(points))]
    line = " L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    parts = []
    if limit is not None:
        at = f"{18.5 - (limit - low) / span * 15.5:.1f}"
        parts.append(f'<path d="M0 {at}H{width}" stroke="var(--c-objective)" stroke-dasharray="2 2" opacity=".75"/>')
    parts.append(
        f'<path d="M{line}" fill="none" stroke="var(--c-estimate)" stroke-width="1.5" stroke-linejoin="round"/>'
    )
    parts.append(f'<circle cx="{x[-1]:.1f}" cy="{y[-1]:.1f}" r="2.2" fill="var(--c-estimate)"/>')
    return _svg("spark", f"0 0 {width} 22", label, parts, style=f"width:{width}px")


def _thin(values: list[float], most: int) -> list[float]:
    """The maximum of each of `most` equal parts: a peak must not get lost."""
    if len(values) <= most:
        return values
    edges = [round(index * len(values) / most) for index in range(most + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]


def heat_strip(values_s: Sequence[float], label: str) -> SafeString:
    """Excess over time as steps of one ramp; a red cap from 4 s on."""
    cell = 720 / max(len(values_s), 1)
    parts = []
    for index, value in enumerate(values_s):
        x, width = round(index * cell, 2), round(cell * (0.92 if cell > 6 else 1.02), 2)
        parts.append(_rect(x, 0, width, 14, f"h{_step(value)}"))
        if value >= _CAP_FROM_S:
            parts.append(_rect(x, 0, width, 2.5, "bad"))
    return _svg("heat", "0 0 720 14", label, parts)


def _step(value_s: float) -> int:
    return max(index for index, edge in enumerate(EXCESS_STEPS_S) if value_s >= edge or index == 0)


def load_bar(load: Any, peak: Any = None) -> SafeString:
    """A load as a share of capacity: bar and number. `peak` is marked by a line on the bar."""
    share = as_float(load)
    if share is None:
        return format_html('<span class="muted">{}</span>', "none yet")
    tone = "over" if share > 1 else "watch" if share > 0.9 else ""
    highest = as_float(peak)
    mark = "" if highest is None else format_html('<b style="left:{}%"></b>', f"{min(highest, 1) * 97:.0f}")
    return format_html(
        '<span class="loadbar"><span class="mini"><i class="{}" style="width:{}%"></i>{}</span><span>{}</span></span>',
        tone,
        f"{min(share, 1) * 100:.0f}",
        mark,
        ratio(share),
    )


def legend(*entries: tuple[str, str]) -> SafeString:
    """The key below a picture: (drawing, words) with drawings from `_KEYS`."""
    return format_html_join(
        "",
        '<span><svg viewBox="0 0 22 10" aria-hidden="true">{}</svg>{}</span>',
        ((mark_safe(_KEYS[kind]), words) for kind, words in entries),
    )


_KEYS = {
    "bar": '<rect y="2.5" width="18" height="5" fill="var(--c-fill)"/>'
    '<path d="M18 0v10" stroke="var(--c-estimate)" stroke-width="2"/>',
    "estimate": '<path d="M0 5h22" stroke="var(--c-estimate)" stroke-width="2"/>',
    "forecast": '<path d="M1 5h21" stroke="var(--c-estimate)" stroke-width="2" stroke-dasharray="2 4"/>',
    "band": '<rect width="22" height="10" rx="2" fill="var(--c-band)"/>',
    "measured": '<circle cx="11" cy="5" r="3.5" fill="var(--surface)" stroke="var(--c-measured)" stroke-width="1.25"/>',
    "objective": '<path d="M11 0v10" stroke="var(--c-objective)" stroke-width="1.5"/>',
    "objective-line": '<path d="M0 5h22" stroke="var(--c-objective)" stroke-width="1.5"/>',
    "before": '<rect y="3" width="22" height="4" fill="var(--c-fill)" opacity=".65"/>',
    "after": '<rect y="3" width="22" height="4" fill="var(--c-estimate)"/>',
    "load": '<rect y="1" width="22" height="8" fill="var(--c-fill)"/>',
    "alt": '<path d="M0 5h22" stroke="var(--c-alt)" stroke-width="2" stroke-dasharray="7 4"/>',
    "third": '<path d="M0 5h22" stroke="var(--c-third)" stroke-width="2" stroke-dasharray="2 3"/>',
}
