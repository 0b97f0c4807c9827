"""A query's curves over the horizon and over past runs, and its plan as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from apps.estimates.answers import curves_unpack
from apps.estimates.models import QueryEstimate
from apps.estimates.selectors import HistoryPoint
from apps.pages.queries.facts import QueryDetail
from apps.queries.models import ArrivalSeries, Operator, OperatorInput, Placement
from apps.ui.charts import Chart, ChartMark, Series, time_axis
from apps.ui.dag import DagEdge, DagNode, dag_picture
from apps.ui.numbers import Quantity, rate, seconds, significant
from apps.ui.svg.shapes import path, picture, rect, swatch
from engine.estimation.answer import Hop
from engine.words import counted, server_words

__all__ = ["PlanPicture", "Step", "history_chart", "latency_chart"]


# Two labels nearer to each other than this share of the picture's width would overlap.
_LABELS_APART = 0.2


def latency_chart(row: QueryEstimate) -> Chart | None:
    """The mean path in each subinterval, with the objective, and where the excess behind it builds up."""
    if row.series is None:
        return None
    curves = curves_unpack(row.series)
    times, path = curves["time_s"], curves["flow_s"]
    step_s = times[1] - times[0] if len(times) > 1 else row.run.subinterval_s
    series = [Series("estimate", "Mean path", y=path)]
    highest = seconds(max(path, default=0.0))
    finding = f"Mean path over the estimated horizon: at most {highest}."
    if row.bound_s:
        finding = f"Mean path over the estimated horizon: at most {highest}; the objective is {seconds(row.bound_s)}."
    return Chart(
        id="latency",
        finding=finding,
        unit="s",
        x=time_axis(row.run.created_at, step_s, len(path)),
        series=series,
        objective_s=row.bound_s or None,
        marks=_build_up(row),
    )


def _build_up(row: QueryEstimate) -> list[ChartMark]:
    """Marks where the bottleneck's excess begins to build up and where it is largest."""
    bottleneck = row.answer.bottleneck
    if bottleneck is None or not bottleneck.excess_s:
        return []
    width_s = row.run.subinterval_s
    begin_s, end_s = (bottleneck.from_p - 1) * width_s, bottleneck.to_p * width_s
    room_s = _LABELS_APART * row.run.horizon_s
    where = server_words(bottleneck.server)
    peak = ChartMark(end_s, f"excess of {where} peaks", side=_side(end_s, row.run.horizon_s, room_s))
    if end_s - begin_s >= room_s:
        return [ChartMark(begin_s, "excess builds up", side=_side(begin_s, end_s, room_s)), peak]
    if begin_s < room_s or peak.side == "left":
        return [peak]  # no place for a second label, and a line without one says nothing
    return [ChartMark(begin_s, "excess builds up", side="left"), replace(peak, side="right")]


def _side(at_s: float, span_s: float, room_s: float) -> str:
    """Side of its line on which a label has room."""
    return "right" if at_s < room_s / 2 else "left" if span_s - at_s < room_s / 2 else "center"


def history_chart(points: Sequence[HistoryPoint], bound_s: float | None) -> Chart | None:
    """Estimates of the past runs over real time."""
    if len(points) < 2:
        return None
    start = points[0].at
    x = [(point.at - start).total_seconds() for point in points]
    span_s = max(x[-1], 1.0)
    estimates, worst = [point.estimate_s for point in points], [point.worst_s for point in points]
    curves = [Series("estimate", "Estimate", y=estimates, x=x)]
    if worst != estimates:  # the objective is about another statistic
        curves.insert(0, Series("alt", "Worst case", y=worst, x=x))
    return Chart(
        id="history",
        finding=f"{len(points)} estimates, the newest {seconds(points[-1].estimate_s)}.",
        unit="s",
        x=time_axis(start, span_s, 1),
        series=curves,
        objective_s=bound_s or None,
        height=220,
        steps=True,
    )


_DETAIL_ROOM = 24  # letters of a block's second line


@dataclass(frozen=True)
class Step:
    """A stop on the worst path."""

    name: str
    server: str
    wait: Quantity
    tone: str


class PlanPicture:
    """Operators of a query's current version, each with its part of the newest estimate."""

    def __init__(self, detail: QueryDetail) -> None:
        self.detail = detail
        self.operators: list[Operator] = list(detail.version.operators.all())

    @cached_property
    def placements(self) -> dict[int, list[Placement]]:
        """Replicas by operator."""
        placements: dict[int, list[Placement]] = {}
        rows = Placement.objects.filter(operator__version=self.detail.version).select_related("node").order_by("pk")
        for row in rows:
            placements.setdefault(row.operator_id, []).append(row)
        return placements

    @cached_property
    def hops(self) -> list[Hop]:
        """Waits along the worst path; operators by their names within the query."""
        prefix = f"{self.detail.query.name}/"
        hops = self.detail.answer.hops if self.detail.answer else ()
        return [replace(hop, operator=hop.operator.removeprefix(prefix)) for hop in hops]

    @cached_property
    def waits_s(self) -> dict[str, float]:
        waits: dict[str, float] = {}
        for hop in self.hops:
            if _is_link(hop):
                continue
            waits[hop.operator] = waits.get(hop.operator, 0.0) + hop.wait_s
        return waits

    @cached_property
    def source_rates(self) -> dict[str, float]:
        """Mean events/s that the query reads of each source."""
        read = {entry.source_id for row in self.operators for entry in row.inputs.all() if entry.source_id}
        rows = ArrivalSeries.objects.filter(cluster=self.detail.cluster, source_id__in=read).defer("data")
        return {row.source_id: row.mean_eps * self.detail.query.rate_share for row in rows}

    @property
    def facts(self) -> str:
        nodes = {row.node_id for rows in self.placements.values() for row in rows}
        number, operators = self.detail.version.number, counted(len(self.operators), "operator")
        if not nodes:
            return f"Version {number}, {operators}, not placed"
        return f"Version {number}, {operators} on {counted(len(nodes), 'node')}"

    @cached_property
    def svg(self) -> SafeString:
        return dag_picture([*self._sources(), *map(self._node, self.operators)], self._edges(), self._label())

    def _label(self) -> str:
        sentences = [f"Operators of {self.detail.query.name}, from its sources to its results."]
        if self.detail.answer and self.hops:
            sentences.append(f"The worst path takes {seconds(self.detail.answer.worst_s)}.")
        if self.detail.is_server_busy and self.detail.bottleneck_operator:
            sentences.append(f"{self.detail.bottleneck_operator} is the bottleneck.")
        return " ".join(sentences)

    def _sources(self) -> list[DagNode]:
        names = dict.fromkeys(
            entry.source_id for row in self.operators for entry in row.inputs.all() if entry.source_id
        )
        on_path = self._first_on_path
        return [
            DagNode(_source_key(name), name, detail=self._source_detail(name), on_path=name in on_path)
            for name in names
        ]

    def _source_detail(self, name: str) -> str:
        known = self.source_rates.get(name)
        return "no arrivals yet" if known is None else f"source, {rate(known)}"

    @cached_property
    def _first_on_path(self) -> set[str]:
        """Sources read by the first operator of the worst path."""
        first = self.hops[0].operator if self.hops else ""
        rows = [row for row in self.operators if row.name == first]
        return {entry.source_id for row in rows for entry in row.inputs.all() if entry.source_id}

    def _node(self, row: Operator) -> DagNode:
        return DagNode(
            id=row.name,
            title=row.name,
            place=self._place(row),
            detail=_detail(row),
            load=self._load(row),
            wait_s=self.waits_s.get(row.name),
            on_path=row.name in self.waits_s,
            bottleneck=self.detail.is_server_busy and row.name == self.detail.bottleneck_operator,
        )

    def _place(self, row: Operator) -> str:
        names = list(dict.fromkeys(placement.node.name for placement in self.placements.get(row.pk, ())))
        return names[0] if len(names) == 1 else f"{len(names)} nodes" if names else ""

    def _load(self, row: Operator) -> float | None:
        """The operator's own highest load as a share of one core, on the core that has most of it."""
        load, placed = self.detail.operator_load(row.name), self.placements.get(row.pk)
        if load is None or not placed:
            return None
        return max(load.load_peak_cps * placement.fraction / placement.node.capacity_cps for placement in placed)

    def _edges(self) -> list[DagEdge]:
        path = [hop.operator for hop in self.hops]
        pairs = set(pairwise(path))
        edges = []
        for row in self.operators:
            for entry in row.inputs.all():
                tail = entry.upstream.name if entry.upstream else _source_key(entry.source_id)
                first = bool(path) and row.name == path[0] and not entry.upstream
                edges.append(DagEdge(tail, row.name, self._rate(entry), first or (tail, row.name) in pairs))
        return edges

    def _rate(self, entry: OperatorInput) -> float | None:
        if entry.upstream is None:
            return self.source_rates.get(entry.source_id)
        load = self.detail.operator_load(entry.upstream.name)
        return load.output_mean_eps if load else None

    # -- where the time goes
    @cached_property
    def steps(self) -> list[Step]:
        busiest = self.detail.bottleneck and self.detail.bottleneck.server
        return [
            Step(
                hop.server.replace("->", " → ") if _is_link(hop) else hop.operator,
                hop.server,
                seconds(hop.wait_s),
                _fill(index, hop.server == busiest),
            )
            for index, hop in enumerate(self.hops)
        ]

    @property
    def hidden_wait(self) -> str:
        """Sentence on a bottleneck that is not the server with the longest wait."""
        bottleneck = self.detail.bottleneck
        longest = max(self.hops, key=lambda hop: hop.wait_s, default=None)
        if bottleneck is None or longest is None or not bottleneck.excess_s or longest.server == bottleneck.server:
            return ""
        where, elsewhere = server_words(bottleneck.server, begins=True), server_words(longest.server)
        return (
            f"{where} is the bottleneck, although queries spend less time there: it has "
            f"{seconds(bottleneck.excess_s)} of work waiting at its peak; a shorter wait on {elsewhere} "
            "would only move there."
        )

    @property
    def waited_s(self) -> float:
        """Seconds of the worst subinterval on the mean path."""
        return float(sum(hop.wait_s for hop in self.hops))

    @property
    def waited(self) -> Quantity:
        return seconds(self.waited_s)

    @property
    def worst_at(self) -> str:
        """Time of the worst subinterval since the beginning of the horizon."""
        estimate = self.detail.estimate
        if estimate is None or not self.hops:
            return ""
        minutes, second = divmod(round((estimate.answer.worst_p - 1) * estimate.run.subinterval_s), 60)
        return f"{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"

    @cached_property
    def bound_s(self) -> float | None:
        """The objective, where it is about the worst case: only then do the bar and it compare."""
        row = self.detail.estimate
        return row.bound_s if row is not None and row.statistic == "worst" else None

    @cached_property
    def objective_at(self) -> str:
        """Place of the objective on the bar, in percent of its width."""
        return f"{100 * self.bound_s / self._scale_s:.2f}" if self.bound_s else ""

    @property
    def _scale_s(self) -> float:
        return max((self.bound_s or 0.0) * 1.2, self.waited_s * 1.02, 1e-9)

    @cached_property
    def bar(self) -> SafeString:
        """The waits of the worst subinterval one after the other, on the objective's scale."""
        shapes, x = [rect(0, 6, 1000, 18, fill="sunken")], 0.0
        for hop, step in zip(self.hops, self.steps, strict=True):
            width = 1000 * hop.wait_s / self._scale_s
            shapes.append(rect(x, 6, width, 18, fill=step.tone, stroke="surface", vector_effect="non-scaling-stroke"))
            x += width
        if self.bound_s:
            at = 10 * float(self.objective_at)
            shapes.append(path("M", at, 0, "V", 30, stroke="c-objective", stroke_width=2, fixed=True))
        label = "; ".join(f"{step.name} {step.wait}" for step in self.steps)
        return picture(1000, 30, label, shapes, css="wherebar", stretched=True)

    @property
    def bar_key(self) -> SafeString:
        return format_html_join(
            "",
            "<span>{}{} <b>{}</b></span>",
            ((swatch(step.tone), step.name, step.wait) for step in self.steps if step.wait.text != "0"),
        )


def _is_link(hop: Hop) -> bool:
    return "->" in hop.server


def _source_key(source_id: str) -> str:
    # an operator's name has no NUL, so a source of the same name stays another block
    return f"source\0{source_id}"


def _fill(index: int, is_bottleneck: bool) -> str:
    if is_bottleneck:
        return "watch"
    return "c-estimate" if index % 2 == 0 else "c-fill"


def _detail(row: Operator) -> str:
    """window 30 s; filter, selectivity 0.35."""
    window = row.extra.get("window") if isinstance(row.extra, Mapping) else None
    if window:
        size = (
            seconds(window.get("size"))
            if window.get("policy") == "time"
            else f"{significant(window.get('size'))} events"
        )
        return f"{row.kind}, {size}"
    entries: Sequence[OperatorInput] = list(row.inputs.all())
    text = f"selectivity {significant(entries[0].selectivity)}" if len(entries) == 1 else f"{len(entries)} inputs"
    return text if row.kind == "other" or len(row.kind) + len(text) > _DETAIL_ROOM else f"{row.kind}, {text}"
