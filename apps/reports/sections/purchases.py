"""Recommended purchases, and the losses that the fleet survives as it is; `sizing` searches for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from apps.reports.blocks import Block, ReportColumn, ReportHeading, ReportPicture, ReportTable, ReportText, or_missing
from apps.reports.drawings import Curve, Plot, label
from apps.ui.numbers import money, percent, seconds
from apps.ui.svg.shapes import Drawing, path, rect
from engine.records import Record, Sentence
from engine.words import counted, mix_text

__all__ = [
    "CurvePoint",
    "NoPurchases",
    "PurchaseChoice",
    "ReportLoss",
    "ReportPurchases",
    "load_words",
    "purchase_blocks",
    "purchase_finding",
]

_HOURS_A_MONTH = 730
_TOP_SHARE = 3.0  # of the objective: what is later than this is drawn at the top


@dataclass(frozen=True)
class NoPurchases(Record):
    """Why nothing was sized."""

    available: Literal[False]
    text: str
    growth: float


@dataclass(frozen=True)
class PurchaseChoice(Record):
    """A pool of one type, or a mix of types, that is enough: what to add, and why one less is not enough.

    What is `at_risk` all the same, what the figures assume (`assumed`), and why the choice is not confirmed (`why_not`)
    stand with it; `beyond` counts the objectives that no number of nodes keeps.
    """

    kind: Literal["pool", "mix"]
    counts: dict[str, int]
    nodes: int
    whole: int
    cost_per_hour: float | None
    confirmed: bool
    proven: bool
    less: str
    beyond: int
    splits: dict[str, int]
    reservation: str
    notes: list[str]
    at_risk: list[str]
    assumed: list[Sentence]
    why_not: str

    @property
    def rank(self) -> tuple[bool, bool, float, int]:
        """The better choice has the lower one."""
        cost = math.inf if self.cost_per_hour is None else self.cost_per_hour
        return not self.confirmed, bool(self.at_risk), cost, self.nodes

    @property
    def month_cost(self) -> float | None:
        return None if self.cost_per_hour is None else self.cost_per_hour * _HOURS_A_MONTH

    @property
    def purchase(self) -> str:
        return mix_text(self.counts) if any(self.counts.values()) else "Nothing: place operators anew"

    @property
    def one_less(self) -> str:
        less = f"Proven: {self.less}" if self.proven else or_missing(self.less)
        return less if self.confirmed else f"By Mace and not confirmed. {less}"


@dataclass(frozen=True)
class CurvePoint(Record):
    """One number of nodes on the curve of cost against latency."""

    pool: str
    nodes: int
    cost_per_hour: float | None
    over_bound: float | None
    lost_over_bound: float | None
    lost_node: str | None
    worst_s: float | None
    lost_worst_s: float | None
    endless: list[str]
    lost_endless: list[str]

    @property
    def worst(self) -> str:
        return "never catches up" if self.endless else str(seconds(self.worst_s))

    @property
    def lost_worst(self) -> str:
        return "never catches up" if self.lost_endless else str(seconds(self.lost_worst_s))


@dataclass(frozen=True)
class ReportLoss(Record):
    """Objectives that the loss of a node breaks or puts at risk."""

    node: str
    broken: list[str]
    at_risk: list[str]
    by_mace: bool
    why: str
    worst_s: float | None

    @property
    def broken_names(self) -> str:
        return ", ".join(self.broken)

    @property
    def at_risk_names(self) -> str:
        return ", ".join(self.at_risk)

    @property
    def words(self) -> str:
        return f"{self.broken_names}. {self.why}".strip(". ") if self.why else or_missing(self.broken_names)


@dataclass(frozen=True)
class ReportPurchases(Record):
    """The cheapest purchases, the best first, the curve of cost around them, and the losses survived today."""

    available: Literal[True]
    growth: float
    answered_growth: float | None
    refusal: str
    currency: str
    choices: list[PurchaseChoice]
    curve: list[CurvePoint]
    finding: str
    losses: list[ReportLoss]
    losses_of: str
    by_mace: int

    @property
    def enough(self) -> int | None:
        """Nodes of the recommended pool, if the curve is about that pool."""
        best = self.choices[0]
        return best.whole if best.kind == "pool" and best.confirmed else None


def load_words(growth: float) -> str:
    """`+60%`."""
    return f"+{percent(growth)}" if growth else "the present"


def purchase_finding(
    growth: float, answered_growth: float | None, choices: Sequence[PurchaseChoice], currency: str
) -> str:
    """The recommended purchase in a sentence, and what random costs and arrivals leave open."""
    if answered_growth is None:
        return f"At {load_words(growth)} load no purchase keeps every objective if a node is lost."
    choice = choices[0]
    sentences = [_bought(choice, load_words(answered_growth), currency)]
    if answered_growth != growth:
        sentences.insert(0, f"At {load_words(growth)} load no number of nodes is enough.")
    if not choice.confirmed:
        why = f": {choice.why_not}" if choice.why_not else ""
        sentences.append(f"With random costs and arrivals that is not confirmed{why}.")
    return " ".join([*sentences, *choice.notes])


def _bought(choice: PurchaseChoice, growth: str, currency: str) -> str:
    left_out = f"all but {counted(choice.beyond, 'objective')}" if choice.beyond else ""
    if not choice.nodes:
        return (
            f"The present nodes keep {left_out or 'every objective'}{choice.reservation} at {growth} load with any one "
            "node lost once operators are placed anew: buy none."
        )
    mix = mix_text(choice.counts)
    nodes = f"{mix} node" if choice.nodes == 1 else f"{mix} nodes"
    if choice.cost_per_hour is not None:
        nodes = f"{nodes} for {money(choice.cost_per_hour, currency)} more per hour"
    held = f"{left_out} then hold" if left_out else "every objective then holds"
    return (
        f"Buy {nodes}: {held}{choice.reservation} at {growth} load with any one node lost, with operators placed anew."
    )


def purchase_blocks(purchases: ReportPurchases | NoPurchases) -> Iterator[Block]:
    """Recommended purchases with their proof, the curve of cost against latency, and the loss of each node today."""
    growth = f"+{purchases.growth * 100:g}%"
    yield ReportHeading("purchases", "Recommended purchases", f"At {growth} load, any one node lost")
    if isinstance(purchases, NoPurchases):
        yield ReportText(purchases.text)
        return
    yield ReportText(purchases.finding)
    if purchases.refusal and purchases.answered_growth != purchases.growth:
        yield ReportText(f"Why not at {growth}: {purchases.refusal}", quiet=True)
    if purchases.choices:
        yield ReportTable("purchases", "Purchases", _choice_columns(purchases.currency), purchases.choices)
    drawn = [point for point in purchases.curve if point.over_bound is not None]
    if len(drawn) > 1:
        key = (("points", "All nodes up"), ("alt", "One node lost"), ("objective-line", "Objective"))
        yield ReportPicture(_curve_finding(purchases), partial(_draw, purchases, drawn), key)
        yield ReportTable("pool-sizes", "Pool sizes", _point_columns(purchases.currency), purchases.curve)
    if purchases.losses_of:
        yield ReportText(f"Looked at: {purchases.losses_of}, those with most operators.", quiet=True)
    if purchases.by_mace:
        losses = counted(purchases.by_mace, "loss", "losses")
        yield ReportText(f"With mean costs alone, far from every objective: {losses}.", quiet=True)
    harmful = [loss for loss in purchases.losses if loss.broken or loss.why or loss.at_risk]
    if not harmful:
        yield ReportText("As operators are placed now, the loss of any one node breaks no objective that is kept.")
    else:
        yield ReportText(
            "As operators are placed now, the loss of one of these nodes breaks an objective that is kept, or puts it "
            "at risk:"
        )
        yield ReportTable("losses", "Losses", _LOSSES, harmful, limit=20)


def _choice_columns(currency: str) -> list[ReportColumn[PurchaseChoice]]:
    price = partial(money, currency=currency)
    return [
        ReportColumn("To buy", "purchase", strong=True, width=1.9),
        ReportColumn("Nodes then", "nodes", "whole", num=True, width=0.8),
        ReportColumn("More per hour", "extra_cost_per_hour", "cost_per_hour", price, num=True),
        ReportColumn("More per month", "extra_cost_per_month", "month_cost", price, num=True, width=1.1),
        ReportColumn("Why one less is not enough", "one_less", "less", show=lambda row: row.one_less, width=4.4),
    ]


def _point_columns(currency: str) -> list[ReportColumn[CurvePoint]]:
    price = partial(money, currency=currency)
    return [
        ReportColumn("Nodes", "nodes", strong=True, num=True),
        ReportColumn("Cost per hour", "cost_per_hour", write=price, num=True, width=1.4),
        ReportColumn("Worst case, all up", "worst_s", show=lambda row: row.worst, num=True, width=1.6),
        ReportColumn("Of its objective", "share_of_objective", "over_bound", percent, num=True, width=1.4),
        ReportColumn(
            "Worst case, one lost",
            "worst_one_lost_s",
            "lost_worst_s",
            show=lambda row: row.lost_worst,
            num=True,
            width=1.7,
        ),
        ReportColumn("Of its objective", "share_one_lost", "lost_over_bound", percent, num=True, width=1.4),
        ReportColumn("Worst node to lose", "lost_node", write=or_missing, width=1.6),
    ]


_LOSSES: Sequence[ReportColumn[ReportLoss]] = (
    ReportColumn("Node lost", "node", strong=True),
    ReportColumn("Objectives broken", "broken", "broken_names", show=lambda row: row.words, width=2.6),
    ReportColumn("At risk", "at_risk", "at_risk_names", or_missing, width=2),
    ReportColumn("Worst case then", "worst_s", write=seconds, num=True, width=1.2),
)


def _curve_finding(purchases: ReportPurchases) -> str:
    load = f"+{purchases.answered_growth * 100:g}% load" if purchases.answered_growth else "the present load"
    shown = f"Latency of the query nearest to its objective, and cost, by the number of nodes at {load}, by Mace."
    enough = purchases.enough
    if not enough:
        return shown
    recommended = "1 node is" if enough == 1 else f"{enough} nodes are"
    return f"{shown} {recommended} recommended, confirmed with random costs and arrivals, which Mace does not know."


def _draw(purchases: ReportPurchases, points: Sequence[CurvePoint], width: float) -> Drawing:
    """Latency above, cost below, on one axis of nodes."""
    nodes = [point.nodes for point in points]
    shares = [point.over_bound for point in points if point.over_bound is not None]
    lost = [point.lost_over_bound for point in points if point.lost_over_bound is not None]
    top = min(max([1.25, *shares, *lost]) * 1.05, _TOP_SHARE)
    plot = Plot(width, 210, (nodes[0] - 0.5, nodes[-1] + 0.5), top, bottom=72, right=84, top=28)
    plot.y_axis(lambda value, is_top: f"{100 * value:g}{'%' if is_top else ''}", "Worst case, of its objective")
    if purchases.enough is not None:
        plot.mark_x(purchases.enough, f"{purchases.enough} nodes", wide=0.9)
    plot.objective(1.0, "Objective")
    plot.curve(Curve("c-estimate", "All nodes up", nodes, shares, markers=True))
    if len(lost) == len(nodes):
        plot.curve(Curve("c-alt", "One node lost", nodes, lost, markers=True))
    _draw_costs(plot, purchases, points)
    return plot.drawing()


def _draw_costs(plot: Plot, purchases: ReportPurchases, points: Sequence[CurvePoint]) -> None:
    """Bars of cost below the curve, the answer darker and with its price."""
    shapes, floor, tall = plot.shapes, plot.height - 16.0, 30.0
    highest = max((point.cost_per_hour or 0 for point in points), default=0)
    half = min(9.0, 0.32 * (plot.x(points[-1].nodes) - plot.x(points[0].nodes)) / len(points))
    right = plot.line_end
    shapes += [
        path("M", plot.left, floor, "H", right, stroke="line-strong", stroke_width=0.7),
        label(right + 6, floor - 10, "Cost per hour", size=7.5),
        label(right + 6, floor + 11, "nodes", size=7.5),
    ]
    for point in points:
        x, is_answer = plot.x(point.nodes), point.nodes == purchases.enough
        tone = "ink" if is_answer else "ink-3"
        shapes.append(label(x, floor + 11, str(point.nodes), size=7.5, colour=tone, bold=is_answer, anchor="middle"))
        if highest and point.cost_per_hour:
            high = tall * point.cost_per_hour / highest
            shapes.append(rect(x - half, floor - high, 2 * half, high, fill="c-estimate" if is_answer else "c-fill"))
            if is_answer:
                price = money(point.cost_per_hour, purchases.currency)
                shapes.append(label(x, floor - high - 3, price, size=8, colour="ink", bold=True, anchor="middle"))
