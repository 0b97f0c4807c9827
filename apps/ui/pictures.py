"""Small pictures inside tables and strips, as SVG text. Stretchable ones hold no text."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from apps.ui.numbers import as_float, ratio, seconds
from apps.ui.svg.axes import line_data, span_words
from apps.ui.svg.scales import Scale
from apps.ui.svg.shapes import Shape, circle, number, path, path_data, picture, rect, svg_text
from engine.words import bound_words, duration_words

__all__ = [
    "EXCESS_CAP_S",
    "EXCESS_STEPS_S",
    "KEYS",
    "before_after_bar",
    "excess_step",
    "headroom_bar",
    "heat_strip",
    "legend",
    "load_bar",
    "share_bar",
    "sparkline",
]

#: Lower edges of the excess ramp h0 … h5, in seconds.
EXCESS_STEPS_S = (0.0, 0.5, 1.0, 2.0, 4.0, 6.0)
EXCESS_CAP_S = 4.0
_WIDTH = 150.0
#: The objective always stands at three quarters of the width, so that rows compare by eye.
_OBJECTIVE_X = 0.75 * _WIDTH
_DOT = 3.75  # half of a dot, which is drawn whole at the end of a bar


def _x(value_s: float, bound_s: float) -> float:
    return round(min(max(value_s / bound_s * _OBJECTIVE_X, 0.0), _WIDTH), 1)


def _objective(height: float) -> Shape:
    return path("M", _OBJECTIVE_X, 0, "v", height, stroke="c-objective", stroke_width=1.5, fixed=True)


def headroom_bar(
    estimate_s: Any,
    bound_s: Any,
    low_s: Any = None,
    high_s: Any = None,
    measured_s: Any = None,
    name: str = "",
    *,
    is_endless: bool = False,
) -> SafeString:
    """Estimate, interval and measurement against the objective, which stands at 75 % of the width.

    A latency that only grows (`is_endless`) goes beyond any objective and fills the width.
    """
    estimate, bound = as_float(estimate_s), as_float(bound_s)
    low, high, measured = as_float(low_s), as_float(high_s), as_float(measured_s)
    if estimate is None or not bound:
        return SafeString("")
    shapes = [rect(0, 5, _WIDTH, 8, css="trk", rx=2)]
    if low is not None and high is not None:
        shapes.append(rect(_x(low, bound), 3, _x(high, bound) - _x(low, bound), 12, rx=2, fill="c-band"))
    end = float(_WIDTH) if is_endless else _x(estimate, bound)
    shapes.append(rect(0, 6, end, 6, rx=1.5, fill="c-fill"))
    if is_endless or estimate > bound:
        shapes.append(rect(_OBJECTIVE_X, 6, end - _OBJECTIVE_X, 6, fill="bad"))
    if not is_endless:
        shapes.append(path("M", end, 3, "v", 12, stroke="c-estimate", stroke_width=2, fixed=True))
    shapes.append(_objective(18))
    if measured is not None:
        # a line without length is a dot that stays round when the picture is stretched
        at = path_data("M", min(_x(measured, bound), _WIDTH - _DOT), 9, "h", 0.01)
        shapes += [
            path(at, stroke=ink, stroke_width=width, stroke_linecap="round", fixed=True)
            for ink, width in (("c-measured", 7.5), ("surface", 4.8))
        ]
    label = _headroom_label(name, estimate, bound, low, high, measured, is_endless)
    return picture(_WIDTH, 18, label, shapes, css="hb", stretched=True)


def _headroom_label(
    name: str,
    estimate: float,
    bound: float,
    low: float | None,
    high: float | None,
    measured: float | None,
    is_endless: bool,
) -> str:
    text = f"estimate {bound_words(estimate, bound)}"
    if is_endless:
        text = f"never catches up, objective {seconds(bound)}"
    if low is not None and high is not None:
        text += f", interval {seconds(low)} to {seconds(high)}"
    if measured is not None:
        text += f", measured {seconds(measured)}"
    return f"{name}: {text}" if name else text


def before_after_bar(
    before_s: Any, after_s: Any, bound_s: Any, name: str = "", low_s: Any = None, high_s: Any = None
) -> SafeString:
    """Two bars on the objective's scale: what is, and what would be with its interval.

    A missing `before_s` is a new query.
    """
    before, after, bound = as_float(before_s), as_float(after_s), as_float(bound_s)
    low, high = as_float(low_s), as_float(high_s)
    if after is None or not bound:
        return SafeString("")
    shapes = [rect(0, y, _WIDTH, 6, css="trk", rx=1.5) for y in (2, 11)]
    if before is not None:
        shapes.append(rect(0, 2, _x(before, bound), 6, rx=1.5, fill="c-fill", opacity=0.65))
    if low is not None and high is not None:
        shapes.append(rect(_x(low, bound), 10, _x(high, bound) - _x(low, bound), 8, rx=1.5, fill="c-band"))
    shapes.append(rect(0, 11, min(_x(after, bound), _OBJECTIVE_X), 6, rx=1.5, fill="c-estimate"))
    if after > bound:
        shapes.append(rect(_OBJECTIVE_X, 11, _x(after, bound) - _OBJECTIVE_X, 6, fill="bad"))
    shapes.append(_objective(19))
    was = f"before {seconds(before)}, " if before is not None else ""
    between = f", interval {seconds(low)} to {seconds(high)}" if low is not None and high is not None else ""
    label = f"{was}after {seconds(after, apart_from=bound)}{between}, objective {seconds(bound)}"
    return picture(_WIDTH, 19, f"{name}: {label}" if name else label, shapes, css="hb bar", stretched=True)


def sparkline(
    values: Sequence[float], label: str, bound: Any = None, width: int = 72, *, first: datetime | None, span_s: float
) -> SafeString:
    """A line of at most `width` / 2 points with its last value marked; the objective is dashed.

    Below it stands the time it spans; its title has both ends, where it is known when it began.
    """
    points = _thin([value for value in map(as_float, values) if value is not None], width // 2)
    if len(points) < 2:
        return SafeString("")
    limit = as_float(bound)
    y = Scale(min(points), max([*points, *([limit] if limit is not None else [])]), begin=18.5, end=3)
    places = [(1 + index / (len(points) - 1) * (width - 4), y(value)) for index, value in enumerate(points)]
    shapes = []
    if limit is not None:
        at = 18.5 - (limit - y.low) / ((y.high - y.low) or 1.0) * 15.5  # may lie below the picture
        shapes.append(path("M", 0, at, "H", width, stroke="c-objective", stroke_dasharray="2 2", opacity=0.75))
    line = line_data(places)
    shapes.append(path(line, fill="none", stroke="c-estimate", stroke_width=1.5, stroke_linejoin="round"))
    shapes.append(circle(*places[-1], 2.2, fill="c-estimate"))
    drawn = picture(width, 22, label, shapes, css="spark", stretched=True, style=f"width:{width}px")
    span = duration_words(span_s)
    ends = span if first is None else span_words(first, span_s)
    return format_html('<span class="sparked" title="{}">{}<small>{}</small></span>', ends, drawn, span)


def _thin(values: list[float], limit: int) -> list[float]:
    """The maximum of each of `most` equal parts: a peak must not get lost."""
    if len(values) <= limit:
        return values
    edges = [round(index * len(values) / limit) for index in range(limit + 1)]
    return [max(values[a:b]) for a, b in pairwise(edges)]


def heat_strip(values_s: Sequence[float], label: str) -> SafeString:
    """Excess over time as steps of one ramp; a red cap from 4 s on."""
    cell = 720 / max(len(values_s), 1)
    width = cell * (0.92 if cell > 6 else 1.02)
    steps: dict[str, list[float]] = {}
    for index, value in enumerate(values_s):
        steps.setdefault(f"h{excess_step(value)}", []).append(index * cell)
    shapes = [_boxes(places, width, 14, fill) for fill, places in sorted(steps.items())]
    capped = [index * cell for index, value in enumerate(values_s) if value >= EXCESS_CAP_S]
    if capped:
        shapes.append(_boxes(capped, width, 2.5, "bad"))
    return picture(720, 14, label, shapes, css="heat", stretched=True)


def _boxes(places: Iterable[float], width: float, height: float, fill: str) -> Shape:
    """Boxes of one size and colour as one path: a page of strips has thousands."""
    box = path_data("h", width, "v", height, "h", -width, "z")
    return path("".join(f"M{number(x)} 0{box}" for x in places), fill=fill)


def excess_step(value_s: float) -> int:
    """Step of the ramp; h0 is nothing that would be noticed."""
    return bisect_right(EXCESS_STEPS_S[1:], value_s)


def load_bar(load: Any, peak: Any = None, scale: float = 1.0, limit: Any = None) -> SafeString:
    """A load as a share of capacity: bar and number, up to its peak a paler bar.

    `scale` is the load at the bar's end, the same for all bars of a table; above 1 a line marks the capacity. A line
    also marks `limit`, where a load should not be above one.
    """
    share, highest, bound = as_float(load), as_float(peak), as_float(limit)
    if share is None:
        return format_html('<span class="muted">{}</span>', "none yet")
    tone = "over" if share > 1 else "watch" if share > 0.9 else ""
    end = max(1.0, scale)
    bars = [("peak", highest)] if highest is not None and highest > share else []
    drawn = format_html_join(
        "",
        '<i class="{}" style="width:{}%"></i>',
        ((css, f"{min(value / end, 1) * 100:.0f}") for css, value in [*bars, (tone, share)]),
    )
    lines = [bound] if bound is not None else [1.0] if end > 1.0 else []
    marks = format_html_join("", '<b style="left:{}%"></b>', ((f"{min(at / end, 1) * 97:.0f}",) for at in lines))
    return _bar_and_number(drawn + marks, share)


def share_bar(share: Any) -> SafeString:
    """A share of which none is too much, as bar and number."""
    value = as_float(share)
    if value is None:
        return format_html('<span class="muted">{}</span>', "none yet")
    return _bar_and_number(format_html('<i style="width:{}%"></i>', f"{min(value, 1) * 100:.0f}"), value)


def _bar_and_number(drawn: SafeString, share: float) -> SafeString:
    return format_html('<span class="loadbar"><span class="mini">{}</span><span>{}</span></span>', drawn, ratio(share))


def legend(*entries: tuple[str, str]) -> SafeString:
    """The key below a picture: (drawing, words) with drawings from `KEYS`."""
    return format_html_join(
        "",
        '<span><svg viewBox="0 0 22 10" aria-hidden="true">{}</svg>{}</span>',
        ((svg_text(KEYS[kind]), words) for kind, words in entries),
    )


def _line(stroke: str, dashes: str = "", width: float = 2, start: float = 0) -> Shape:
    return path("M", start, 5, "H", 22, stroke=stroke, stroke_width=width, stroke_dasharray=dashes)


#: Samples for keys below pictures, in a box of 22 by 10.
KEYS: dict[str, tuple[Shape, ...]] = {
    "bar": (rect(0, 2.5, 18, 5, fill="c-fill"), path("M", 18, 0, "V", 10, stroke="c-estimate", stroke_width=2)),
    "estimate": (_line("c-estimate"),),
    "points": (_line("c-estimate"), circle(11, 5, 2.3, fill="c-estimate")),
    "forecast": (_line("c-estimate", "2 4", start=1),),
    "band": (rect(0, 0, 22, 10, rx=2, fill="c-band"),),
    "measured": (circle(11, 5, 3.5, fill="surface", stroke="c-measured", stroke_width=1.25),),
    "measured-line": (
        _line("c-measured", width=1.5),
        circle(11, 5, 3, fill="surface", stroke="c-measured", stroke_width=1.25),
    ),
    "objective": (path("M11 0v10", stroke="c-objective", stroke_width=1.5),),
    "objective-line": (_line("c-objective", width=1.5),),
    "before": (rect(0, 3, 22, 4, fill="c-fill", opacity=0.65),),
    "before-line": (_line("c-fill", width=2.5),),
    "over-line": (_line("bad", width=3),),
    "after": (rect(0, 3, 22, 4, fill="c-estimate"),),
    "load": (rect(0, 1, 22, 8, fill="c-fill"),),
    "alt": (_line("c-alt", "7 4"),),
    "third": (_line("c-third", "2 3"),),
    "passes": (circle(11, 5, 3.5, fill="c-estimate", opacity=0.6),),
    "outside": (circle(11, 5, 3.25, fill="surface", stroke="c-estimate", stroke_width=1.25),),
    "fails": (path("M8 2l6 6M14 2l-6 6", stroke="ink-3", stroke_width=1.25),),
    "chosen": (rect(0, 1, 22, 8, rx=2, fill="c-band"), circle(11, 5, 4, fill="none", stroke="ink", stroke_width=2)),
    "strongest": (rect(6.5, 0.75, 9, 8.5, rx=1, fill="none", stroke="c-alt", stroke_width=1.75),),
    "spread": (path("M11 1l5 8h-10z", fill="none", stroke="c-third", stroke_width=1.75),),
}
