"""The Pareto front of cost and latency as a step line, one dot for every mix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.pages.provisioning_scale import nice_step
from apps.ui.numbers import money, seconds, significant

__all__ = ["FrontChart"]

_LEFT, _TOP, _BASE = 48, 22, 236


class FrontChart:
    """Dots by cost of the new nodes; between two of them nothing better is to be had for the money."""

    def __init__(self, points: Sequence[Mapping[str, Any]], currency: str, lose_one: bool) -> None:
        self.points = [point for point in points if self.latency(point) is not None]
        self.currency = currency
        self.title = "Worst case with any one node lost" if lose_one else "Worst case with all nodes up"

    @staticmethod
    def latency(point: Mapping[str, Any]) -> float | None:
        """With one node lost where that was asked for."""
        lost = point.get("lost")
        found = lost["worst_s"] if lost else point["worst_s"]
        return None if found is None else float(found)

    @property
    def finding(self) -> str:
        said = [f"{money(p['cost_per_hour'], self.currency)}: {seconds(self.latency(p))}" for p in self.points]
        return f"{self.title} by cost of the new nodes per hour. {'; '.join(said)}."

    @property
    def svg(self) -> SafeString:
        return mark_safe(self._drawn("fig wide", 1000, 940) + self._drawn("fig narrow", 366, 340))

    def _drawn(self, css: str, width: int, right: int) -> str:
        costs = [float(point["cost_per_hour"]) for point in self.points]
        values = [self.latency(point) or 0.0 for point in self.points]
        x_step, y_step = nice_step(max(costs, default=1.0) / 4 or 1.0), nice_step(max(values, default=1.0) / 4 or 1.0)
        x_top = max(x_step, math.ceil(max(costs, default=1.0) / x_step) * x_step)
        y_top = max(y_step, math.ceil(max(values, default=1.0) * 1.05 / y_step) * y_step)

        def x(cost: float) -> float:
            return round(_LEFT + (right - _LEFT) * cost / x_top, 1)

        def y(value: float) -> float:
            return round(_BASE - (_BASE - _TOP) * value / y_top, 1)

        parts = [f'<text class="t2" x="{_LEFT}" y="{_TOP - 8}">{escape(self.title)}</text>']
        for tick in _ticks(y_step, y_top):
            unit = " s" if tick + y_step / 2 > y_top else ""
            parts.append(f'<path class="grid" d="M{_LEFT} {y(tick):g}H{right}"/>')
            parts.append(
                f'<text x="{_LEFT - 8}" y="{y(tick) + 4:g}" text-anchor="end">{significant(tick)}{unit}</text>'
            )
        for tick in _ticks(x_step, x_top):
            words = escape(money(tick, self.currency).removesuffix(".00"))
            parts.append(f'<text x="{x(tick):g}" y="{_BASE + 18}" text-anchor="middle">{words}</text>')
        parts.append(f'<path class="axis" d="M{_LEFT} {_BASE}H{right}"/>')
        path = "".join(
            f"H{x(cost):g}V{y(value):g}" if i else f"M{x(cost):g} {y(value):g}"
            for i, (cost, value) in enumerate(zip(costs, values, strict=True))
        )
        parts.append(f'<path class="est" d="{path}H{right}"/>' if path else "")
        parts += [
            f'<circle cx="{x(cost):g}" cy="{y(value):g}" r="3.5" fill="var(--c-estimate)"/>'
            for cost, value in zip(costs, values, strict=True)
        ]
        head = '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}">'
        return format_html(head, css, width, _BASE + 28, self.finding) + "".join(parts) + "</svg>"


def _ticks(step: float, top: float) -> list[float]:
    return [step * i for i in range(round(top / step) + 1)]
