"""The best value found so far over the time of a search, against the bound below which nothing can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from apps.ui.numbers import Quantity, as_float, percent, seconds

__all__ = ["search_curve"]

_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 12.0, 12.0, 22.0
_TICKS = 4
_MOST = 240

Told = Callable[[Any], Quantity]


def search_curve(
    trace: Sequence[Sequence[Any]],
    bound: Any,
    budget_s: Any,
    *,
    share: bool = False,
    width: int = 1040,
    height: int = 200,
) -> SafeString:
    """Steps that go down, and the bound dotted below them. Empty without a value.

    `trace` holds (elapsed seconds, value, …) with the value in seconds, or as a share of an objective.
    """
    points = [(float(row[0]), float(row[1])) for row in trace if as_float(row[0]) is not None]
    if not points:
        return SafeString("")
    points = points[:: -(-len(points) // _MOST)] + points[-1:]
    limit, told = as_float(bound), percent if share else seconds
    span_s = max(points[-1][0], as_float(budget_s) or 0.0, 1e-9)
    top = max(value for _, value in points) * 1.08 or 1.0

    def x(at_s: float) -> float:
        return _LEFT + at_s / span_s * (width - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return height - _BOTTOM - value / top * (height - _TOP - _BOTTOM)

    parts = [
        *_grid(top, y, width, told),
        *_times(span_s, x, height),
        *_bound(limit, y, width, told),
        _steps(points, x, y),
    ]
    said = f"Best value {told(points[-1][1])} after {seconds(points[-1][0])}, at first {told(points[0][1])}"
    said += f", bound {told(limit)}" if limit is not None else ""
    return format_html(
        '<svg class="fig curve" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
        width,
        height,
        said,
        mark_safe("".join(parts)),
    )


def _grid(top: float, y: Any, width: int, told: Told) -> list[str]:
    """Values are numbers of our own, so that the texts need no escaping."""
    rows = []
    for tick in range(_TICKS + 1):
        value = top / 1.08 * tick / _TICKS
        at, word = y(value), told(value) if tick == _TICKS else told(value).text
        rows.append(f'<path class="grid" d="M{_LEFT:g} {at:.1f}H{width - _RIGHT:g}"/>')
        rows.append(f'<text x="{_LEFT - 6:g}" y="{at + 4:.1f}" text-anchor="end">{word}</text>')
    return rows


def _times(span_s: float, x: Any, height: int) -> list[str]:
    steps = [0.0, span_s / 2, span_s]
    ends = ["start", "middle", "end"]
    return [
        f'<text x="{x(at):.1f}" y="{height - 6}" text-anchor="{end}">{seconds(at)}</text>'
        for at, end in zip(steps, ends, strict=True)
    ]


def _bound(limit: float | None, y: Any, width: int, told: Told) -> list[str]:
    if limit is None:
        return []
    at = y(limit)
    line = f'<path d="M{_LEFT:g} {at:.1f}H{width - _RIGHT:g}" stroke="var(--c-third)" stroke-width="2"'
    text = f'<text class="halo" x="{width - _RIGHT:g}" y="{at - 5:.1f}" text-anchor="end">Bound {told(limit)}</text>'
    return [f'{line} stroke-dasharray="2 4"/>', text]


def _steps(points: Sequence[tuple[float, float]], x: Any, y: Any) -> str:
    path = f"M{x(points[0][0]):.1f} {y(points[0][1]):.1f}"
    path += "".join(f"H{x(at):.1f}V{y(value):.1f}" for at, value in points[1:])
    last = points[-1]
    dot = f'<circle cx="{x(last[0]):.1f}" cy="{y(last[1]):.1f}" r="3" fill="var(--c-estimate)"/>'
    return f'<path class="est" d="{path}"/>{dot}'
