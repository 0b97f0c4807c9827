"""Figures of clusters of several sizes: each beside that of the size before, its growth, and its target."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

import numpy as np

__all__ = ["MISSED", "ScaleFigure", "Target", "figures_json", "growth_exponent", "judge_figures", "print_figures"]

MISSED = "missed"
TARGET_QUERIES = 10_000  # for which targets are said, unless they name a size


@dataclass(frozen=True)
class ScaleFigure:
    """A measured figure; without a value `note` says why there is none, and with one what else belongs to it.

    `cpu_s` are the CPU seconds of the processes that were measured: they leave out what else the machine does.
    """

    name: str
    kind: str
    queries: int
    value: float | None
    unit: str = "s"
    cpu_s: float | None = None
    note: str = ""
    database: str = ""


@dataclass(frozen=True)
class Target:
    """Largest figure, or least one with `at_least`, at a number of queries; with `over` of the ratio to that size."""

    name: str
    value: float
    queries: int = TARGET_QUERIES
    over: int | None = None
    at_least: bool = False

    def met_by(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value

    @property
    def words(self) -> str:
        bound = f"{'at least' if self.at_least else 'at most'} {_number(self.value)}"
        return f"{bound} times that at {self.over:,}" if self.over else bound


Rows = Mapping[tuple[str, str, str], Sequence[ScaleFigure]]


def figure_rows(figures: Iterable[ScaleFigure]) -> Rows:
    """Figures by kind, database and name, by size."""
    rows: dict[tuple[str, str, str], list[ScaleFigure]] = {}
    for figure in figures:
        rows.setdefault((figure.kind, figure.database, figure.name), []).append(figure)
    return {key: sorted(row, key=lambda figure: figure.queries) for key, row in rows.items()}


def growth_exponent(row: Sequence[ScaleFigure]) -> float | None:
    """Exponent b of the figure ~ queries^b, fitted to all sizes by least squares of the logarithms."""
    known = [(math.log(f.queries), math.log(f.value)) for f in row if f.value is not None and f.value > 0.0]
    if len({x for x, _ in known}) < 2:
        return None
    x, y = np.array(known).T
    return float(np.polyfit(x, y, 1)[0])


def judge_figures(row: Sequence[ScaleFigure], targets: Iterable[Target]) -> list[tuple[Target, str]]:
    """Targets of a row's name, each met, missed, or not measured at its size."""
    by_size = {figure.queries: figure for figure in row}
    return [(target, _judged(target, by_size)) for target in targets if row and target.name == row[0].name]


def _judged(target: Target, by_size: Mapping[int, ScaleFigure]) -> str:
    figure = by_size.get(target.queries)
    if figure is None:
        return "not measured"
    if figure.value is None:  # what did not finish is no measurement, and no excuse
        return MISSED
    value = figure.value
    if target.over is not None:
        before = by_size.get(target.over)
        if before is None or not before.value:
            return "not measured"
        value /= before.value
    return "met" if target.met_by(value) else MISSED


def print_figures(
    figures: Sequence[ScaleFigure], targets: Sequence[Target], screen: TextIO, of: str = "queries"
) -> bool:
    """One table for each kind and database; whether no target that was measured is missed. Sizes are numbers `of`."""
    sizes = sorted({figure.queries for figure in figures})
    is_met, heading = True, ("", "")
    for (kind, database, name), row in figure_rows(figures).items():
        if (kind, database) != heading:
            heading = kind, database
            print(f"\n{kind}{f', {database}' if database else ''}; ratios are to the size before", file=screen)
            columns = "".join(f"{f'{size:,} {of}':>34}" for size in sizes)
            print(f"{'':44}{columns}  growth  target", file=screen)
        by_size = {figure.queries: figure for figure in row}
        cells, before = [], None
        for size in sizes:
            figure = by_size.get(size)
            cells.append(_cell(figure, before))
            before = figure
        exponent, judged = growth_exponent(row), judge_figures(row, targets)
        is_met &= all(verdict != MISSED for _, verdict in judged)
        words = "; ".join(f"{target.words} at {target.queries:,}: {verdict}" for target, verdict in judged)
        growth = "" if exponent is None else f"n^{exponent:.2f}"
        print(f"{name:44}{''.join(f'{cell:>34}' for cell in cells)}  {growth:6}  {words}".rstrip(), file=screen)
    for figure in figures:
        if figure.note and figure.value is not None:
            where = " ".join(filter(None, (figure.kind, f"{figure.queries:,}", figure.database)))
            print(f"  {where}, {figure.name}: {figure.note}", file=screen)
    return is_met


def _cell(figure: ScaleFigure | None, before: ScaleFigure | None) -> str:
    if figure is None:
        return "-"
    if figure.value is None:
        return figure.note
    text = f"{_number(figure.value)} {figure.unit}".rstrip()
    if figure.cpu_s is not None:
        text += f" ({_number(figure.cpu_s)} CPU)"
    if before is not None and before.value:
        text += f" x{figure.value / before.value:.2f}"
    return text


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000.0 else f"{value:.3g}"


def figures_json(machine: str, figures: Sequence[ScaleFigure], targets: Sequence[Target]) -> str:
    """All figures with growth and targets as JSON."""
    rows: list[dict[str, Any]] = []
    for (kind, database, name), row in figure_rows(figures).items():
        judged = judge_figures(row, targets)
        rows.append(
            {
                "kind": kind,
                "database": database,
                "name": name,
                "growth": growth_exponent(row),
                "figures": [asdict(figure) for figure in row],
                "targets": [{**asdict(target), "verdict": verdict} for target, verdict in judged],
            }
        )
    return json.dumps({"machine": machine, "rows": rows}, indent=2)
