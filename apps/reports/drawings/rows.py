"""Pictures with one line per thing: headroom of queries, excess of nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from reportlab.graphics.shapes import Drawing, Line, Rect

from apps.reports.drawings.ink import ink, label, load_fonts, text_width
from apps.reports.drawings.shapes import state_shape
from apps.ui.numbers import ratio, seconds
from apps.ui.pictures import EXCESS_STEPS_S

__all__ = ["excess_strips", "headroom_bars"]

_ROW = 15.0
_CAP_STEP = EXCESS_STEPS_S.index(4.0)
#: The objective always stands at three quarters of a bar's width, so that rows compare by eye.
_OBJECTIVE_AT = 0.75


def headroom_bars(rows: Sequence[dict[str, Any]], width: float) -> Drawing:
    """Estimate, interval and objective of each query on one scale: shares of its objective."""
    load_fonts()
    rows = [row for row in rows if row["bound_s"]]
    names = max((text_width(row["query"], 8.5) for row in rows), default=0)
    left = min(names + 18, 0.3 * width)
    right = 118.0
    height = _ROW * len(rows) + 12
    drawing = Drawing(width, height)
    bar = width - left - right
    line_x = left + _OBJECTIVE_AT * bar
    for index, row in enumerate(rows):
        _headroom_row(drawing, row, left, bar, height - 12 - _ROW * (index + 1) + 3.5, width)
    drawing.add(Line(line_x, 0, line_x, height - 11, strokeColor=ink("c-objective"), strokeWidth=1.3))
    drawing.add(label(line_x, height - 8, "Objective", size=7.5, colour="c-objective", bold=True, anchor="middle"))
    return drawing


def _headroom_row(drawing: Drawing, row: dict[str, Any], left: float, bar: float, y: float, width: float) -> None:
    def x(value_s: float) -> float:
        return left + min(max(value_s / row["bound_s"] * _OBJECTIVE_AT, 0.0), 1.0) * bar

    drawing.add(state_shape(row["state"], 0, y - 0.5, 8.5))
    drawing.add(label(12, y + 1, _fitted(row["query"], left - 16), size=8.5, colour="ink"))
    drawing.add(Rect(left, y, bar, 7, fillColor=ink("sunken"), strokeColor=None))
    if row["low_s"] is not None and row["high_s"] is not None:
        low, high = x(row["low_s"]), x(row["high_s"])
        drawing.add(Rect(low, y - 1.5, max(high - low, 0.8), 10, fillColor=ink("c-band"), strokeColor=None))
    end, limit = x(row["estimate_s"]), left + _OBJECTIVE_AT * bar
    drawing.add(Rect(left, y + 1, max(min(end, limit) - left, 0), 5, fillColor=ink("c-fill"), strokeColor=None))
    if end > limit:
        drawing.add(Rect(limit, y + 1, end - limit, 5, fillColor=ink("bad"), strokeColor=None))
    drawing.add(Line(end, y - 1.5, end, y + 8.5, strokeColor=ink("c-estimate"), strokeWidth=1.6))
    told = f"{seconds(row['estimate_s'], apart_from=row['bound_s'])} of {seconds(row['bound_s'])}"
    drawing.add(label(left + bar + 8, y + 1, told, size=8, colour="ink-2"))
    gap = row["headroom_s"]
    over = f"{seconds(-gap)} over" if gap < 0 else f"{seconds(gap)} left"
    drawing.add(label(width, y + 1, over, size=8, colour="bad" if gap < 0 else "ink-3", bold=gap < 0, anchor="end"))


def excess_strips(rows: Sequence[dict[str, Any]], width: float) -> Drawing:
    """Work that waits on each node over the stretch, in six steps of lightness; a cap marks four seconds and more."""
    load_fonts()
    left, right = min(max((text_width(row["name"], 8.5) for row in rows), default=0) + 8, 0.24 * width), 112.0
    height = 13.5 * len(rows) + 14
    drawing = Drawing(width, height)
    bar = width - left - right
    drawing.add(label(left + bar + 8, height - 8, "highest excess", size=7, anchor="start"))
    drawing.add(label(width, height - 8, "mean load", size=7, anchor="end"))
    for index, row in enumerate(rows):
        y = height - 14 - 13.5 * (index + 1) + 3
        drawing.add(label(0, y + 1, _fitted(row["name"], left - 4), size=8.5, colour="ink"))
        _strip(drawing, row["excess"], left, bar, y)
        drawing.add(label(left + bar + 8, y + 1, str(seconds(row["excess_s"])), size=8, colour="ink-2"))
        drawing.add(label(width, y + 1, ratio(row["mean_load"]), size=8, colour="ink-2", anchor="end"))
    return drawing


def _strip(drawing: Drawing, values: Sequence[float], left: float, bar: float, y: float) -> None:
    """Neighbours of the same step are one rectangle: fewer lines in the file, and no hair between them."""
    drawing.add(Rect(left, y, bar, 8, fillColor=ink("h0"), strokeColor=None))
    count = len(values)
    begin = 0
    for index in range(1, count + 1):
        step = _step(values[begin])
        if index < count and _step(values[index]) == step:
            continue
        if step:
            x, wide = left + begin / count * bar, (index - begin) / count * bar
            drawing.add(Rect(x, y, wide, 8, fillColor=ink(f"h{step}"), strokeColor=None))
            if step >= _CAP_STEP:
                drawing.add(Rect(x, y + 8, wide, 1.6, fillColor=ink("bad"), strokeColor=None))
        begin = index


def _step(value_s: float) -> int:
    """h0 is nothing that would be noticed; each further step begins at its lower edge."""
    return max(0, bisect_right(EXCESS_STEPS_S[1:], value_s))


def _fitted(text: str, width: float, size: float = 8.5) -> str:
    """The text, shortened with an ellipsis to so many points."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text}…"
