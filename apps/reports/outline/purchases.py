"""The section of recommended purchases."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from apps.reports.blocks import Block, ReportCell, ReportColumn, ReportHeading, ReportPicture, ReportTable, ReportText
from apps.reports.drawings import Curve, Drawing, Plot, label
from apps.ui.numbers import MISSING, money, percent, seconds
from apps.ui.svg.shapes import path, rect
from engine.words import counted, mix_text

__all__ = ["purchase_blocks"]

_CHOICES = (
    ReportColumn("To buy", "purchase", width=1.9),
    ReportColumn("Nodes then", "nodes", num=True, width=0.8),
    ReportColumn("More per hour", "extra_cost_per_hour", num=True, width=1),
    ReportColumn("More per month", "extra_cost_per_month", num=True, width=1.1),
    ReportColumn("Why one less is not enough", "one_less", width=4.4),
)
_CURVE = (
    ReportColumn("Nodes", "nodes", num=True),
    ReportColumn("Cost per hour", "cost_per_hour", num=True, width=1.4),
    ReportColumn("Worst case, all up", "worst_s", num=True, width=1.6),
    ReportColumn("Of its objective", "share_of_objective", num=True, width=1.4),
    ReportColumn("Worst case, one lost", "worst_one_lost_s", num=True, width=1.7),
    ReportColumn("Of its objective", "share_one_lost", num=True, width=1.4),
    ReportColumn("Worst node to lose", "lost_node", width=1.6),
)
_LOSSES = (
    ReportColumn("Node lost", "node", width=1),
    ReportColumn("Objectives broken", "broken", width=2.6),
    ReportColumn("At risk", "at_risk", width=2),
    ReportColumn("Worst case then", "worst_s", num=True, width=1.2),
)
_HOURS_A_MONTH = 730
_TOP_SHARE = 3.0  # of the objective: what is later than this is drawn at the top


def purchase_blocks(facts: dict[str, Any]) -> Iterator[Block]:
    """Recommended purchases with their proof, the curve of cost against latency, and the loss of each node today."""
    purchases = facts["purchases"]
    yield ReportHeading(
        "purchases", "Recommended purchases", f"At +{purchases['growth'] * 100:g}% load, any one node lost"
    )
    if not purchases["available"]:
        yield ReportText(purchases["text"])
        return
    yield ReportText(purchases["finding"])
    if purchases["refusal"] and purchases["answered_growth"] != purchases["growth"]:
        yield ReportText(f"Why not at +{purchases['growth'] * 100:g}%: {purchases['refusal']}", quiet=True)
    currency = purchases["currency"]
    if purchases["choices"]:
        yield ReportTable(
            "purchases", "Purchases", _CHOICES, [_choice(choice, currency) for choice in purchases["choices"]]
        )
    drawn = [point for point in purchases["curve"] if point["over_bound"] is not None]
    if len(drawn) > 1:
        key = (("points", "All nodes up"), ("alt", "One node lost"), ("objective-line", "Objective"))
        yield ReportPicture(_finding(purchases), partial(_draw, purchases, drawn), key)
        yield ReportTable("pool-sizes", "Pool sizes", _CURVE, [_point(point, currency) for point in purchases["curve"]])
    harmful = [loss for loss in purchases["losses"] if loss["broken"] or loss["why"] or loss.get("at_risk")]
    if purchases["losses_of"]:
        yield ReportText(f"Looked at: {purchases['losses_of']}, those with most operators.", quiet=True)
    if purchases.get("by_mace"):
        losses = counted(purchases["by_mace"], "loss", "losses")
        yield ReportText(f"With mean costs alone, far from every objective: {losses}.", quiet=True)
    if not harmful:
        yield ReportText("As operators are placed now, the loss of any one node breaks no objective that is kept.")
    else:
        yield ReportText(
            "As operators are placed now, the loss of one of these nodes breaks an objective that is kept, or puts it "
            "at risk:"
        )
        yield ReportTable("losses", "Losses", _LOSSES, [_loss(loss) for loss in harmful], shown=20)


def _choice(choice: dict[str, Any], currency: str) -> list[ReportCell]:
    words = mix_text(choice["counts"]) if any(choice["counts"].values()) else "Nothing: place operators anew"
    hour = choice["cost_per_hour"]
    month = None if hour is None else hour * _HOURS_A_MONTH
    less = f"Proven: {choice['less']}" if choice["proven"] else choice["less"] or MISSING
    if not choice["confirmed"]:
        less = f"By Mace and not confirmed. {less}"
    return [
        ReportCell(words, words, strong=True),
        ReportCell(str(choice["whole"]), choice["whole"]),
        ReportCell(money(hour, currency), hour),
        ReportCell(money(month, currency), month),
        ReportCell(less, choice["less"]),
    ]


def _point(point: dict[str, Any], currency: str) -> list[ReportCell]:
    return [
        ReportCell(str(point["nodes"]), point["nodes"], strong=True),
        ReportCell(money(point["cost_per_hour"], currency), point["cost_per_hour"]),
        _seconds_cell(point["worst_s"], point.get("endless", ())),
        ReportCell(str(percent(point["over_bound"])), point["over_bound"]),
        _seconds_cell(point["lost_worst_s"], point.get("lost_endless", ())),
        ReportCell(str(percent(point["lost_over_bound"])), point["lost_over_bound"]),
        ReportCell(point["lost_node"] or MISSING, point["lost_node"]),
    ]


def _seconds_cell(value: float | None, endless: Collection[str]) -> ReportCell:
    """A latency; none where some queries never catch up."""
    return ReportCell("never catches up" if endless else str(seconds(value)), value)


def _loss(loss: dict[str, Any]) -> list[ReportCell]:
    names = ", ".join(loss["broken"])
    return [
        ReportCell(loss["node"], loss["node"], strong=True),
        ReportCell(f"{names}. {loss['why']}".strip(". ") if loss["why"] else names or MISSING, names),
        ReportCell(", ".join(loss.get("at_risk", ())) or MISSING, ", ".join(loss.get("at_risk", ()))),
        ReportCell(str(seconds(loss["worst_s"])), loss["worst_s"]),
    ]


def _finding(purchases: dict[str, Any]) -> str:
    load = "the present load"
    if purchases["answered_growth"]:
        load = f"+{purchases['answered_growth'] * 100:g}% load"
    shown = f"Latency of the query nearest to its objective, and cost, by the number of nodes at {load}, by Mace."
    whole = _whole(purchases)
    if not whole:
        return shown
    if whole == 1:
        return f"{shown} 1 node is recommended, confirmed with random costs and arrivals, which Mace does not know."
    return f"{shown} {whole} nodes are recommended, confirmed with random costs and arrivals, which Mace does not know."


def _whole(purchases: dict[str, Any]) -> int | None:
    """Nodes of the recommended pool, if the curve is about that pool."""
    best = purchases["choices"][0]
    return best["whole"] if best["kind"] == "pool" and best["confirmed"] else None


def _draw(purchases: dict[str, Any], points: list[dict[str, Any]], width: float) -> Drawing:
    """Latency above, cost below, on one axis of nodes."""
    nodes = [point["nodes"] for point in points]
    shares = [point["over_bound"] for point in points]
    lost = [point["lost_over_bound"] for point in points if point["lost_over_bound"] is not None]
    top = min(max([1.25, *shares, *lost]) * 1.05, _TOP_SHARE)
    plot = Plot(width, 210, (nodes[0] - 0.5, nodes[-1] + 0.5), top, bottom=72, right=84, top=28)
    plot.y_axis(lambda value, is_top: f"{100 * value:g}{'%' if is_top else ''}", "Worst case, of its objective")
    enough = _whole(purchases)
    if enough is not None:
        plot.mark_x(enough, f"{enough} nodes", wide=0.9)
    plot.objective(1.0, "Objective")
    plot.curve(Curve("c-estimate", "All nodes up", nodes, shares, markers=True))
    if len(lost) == len(nodes):
        plot.curve(Curve("c-alt", "One node lost", nodes, lost, markers=True))
    _costs(plot, purchases, points, enough)
    return plot.drawing()


def _costs(plot: Plot, purchases: dict[str, Any], points: list[dict[str, Any]], enough: int | None) -> None:
    """Bars of cost below the curve, the answer darker and with its price."""
    shapes, floor, tall = plot.shapes, plot.height - 16.0, 30.0
    highest = max((point["cost_per_hour"] or 0 for point in points), default=0)
    half = min(9.0, 0.32 * (plot.x(points[-1]["nodes"]) - plot.x(points[0]["nodes"])) / len(points))
    right = plot.line_end
    shapes += [
        path("M", plot.left, floor, "H", right, stroke="line-strong", stroke_width=0.7),
        label(right + 6, floor - 10, "Cost per hour", size=7.5),
        label(right + 6, floor + 11, "nodes", size=7.5),
    ]
    for point in points:
        x, is_answer = plot.x(point["nodes"]), point["nodes"] == enough
        tone = "ink" if is_answer else "ink-3"
        number = label(x, floor + 11, str(point["nodes"]), size=7.5, colour=tone, bold=is_answer, anchor="middle")
        shapes.append(number)
        if highest and point["cost_per_hour"]:
            high = tall * point["cost_per_hour"] / highest
            shapes.append(rect(x - half, floor - high, 2 * half, high, fill="c-estimate" if is_answer else "c-fill"))
            if is_answer:
                price = money(point["cost_per_hour"], purchases["currency"])
                shapes.append(label(x, floor - high - 3, price, size=8, colour="ink", bold=True, anchor="middle"))
