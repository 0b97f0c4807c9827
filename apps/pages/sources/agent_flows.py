"""Records and bytes of agents by query and operator, and the bytes that other splits would have sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Q, Sum

from apps.fleet.models import Cluster
from apps.measurements.models import StatisticsWindow
from apps.rollouts.predictions import SavedBytes
from apps.telemetry.models import LiveQuery
from apps.ui.numbers import byte_rate, count, percent, seconds, significant

__all__ = [
    "RECENT",
    "AgentFlow",
    "AgentQueryFlow",
    "OperatorFlow",
    "SplitComparison",
    "flows_of",
    "processed_share",
    "saved_share",
]

#: Event time over which rates are taken.
RECENT = timedelta(seconds=60)


@dataclass(frozen=True)
class OperatorFlow:
    """Rates of one operator at one agent."""

    operator: str
    in_eps: float
    processed_eps: float
    drained_eps: float
    out_eps: float
    in_bytes_s: float
    out_bytes_s: float
    drained_bytes_s: float
    cpu_cores: float

    @property
    def share(self) -> float | None:
        """Records processed here of those that came."""
        return self.processed_eps / self.in_eps if self.in_eps else None


@dataclass(frozen=True)
class AgentQueryFlow:
    """One query at one agent, operator by operator in the order of its pipeline."""

    query_id: int
    operators: Sequence[OperatorFlow]
    measured_at: datetime

    @property
    def in_eps(self) -> float:
        return self.operators[0].in_eps if self.operators else 0.0

    @property
    def processed(self) -> float:
        """Share of the records that are processed here, as a mean over the operators that may be."""
        through, total = 1.0, 0.0
        for operator in self.operators:
            through *= operator.share or 0.0
            total += through
        return total / len(self.operators) if self.operators else 0.0

    @property
    def in_bytes_s(self) -> float:
        """Bytes per second if every record were sent."""
        return self.operators[0].in_bytes_s if self.operators else 0.0

    @property
    def sent_eps(self) -> float:
        """Records that leave: drained on the way, and what comes out at the end."""
        return sum(operator.drained_eps for operator in self.operators) + (
            self.operators[-1].out_eps if self.operators else 0.0
        )

    @property
    def saved(self) -> float | None:
        """Share of its bytes that stay at the source, against sending everything."""
        return 1 - self.sent_bytes_s / self.in_bytes_s if self.in_bytes_s else None

    @property
    def cpu_cores(self) -> float:
        return sum(operator.cpu_cores for operator in self.operators)

    @property
    def sent_bytes_s(self) -> float:
        last = self.operators[-1].out_bytes_s if self.operators else 0.0
        return sum(operator.drained_bytes_s for operator in self.operators) + last


@dataclass
class AgentFlow:
    """All queries of one agent."""

    queries: dict[int, AgentQueryFlow] = field(default_factory=dict)

    @property
    def in_eps(self) -> float:
        return sum(query.in_eps for query in self.queries.values())

    @property
    def in_bytes_s(self) -> float:
        return sum(query.in_bytes_s for query in self.queries.values())

    @property
    def sent_bytes_s(self) -> float:
        return sum(query.sent_bytes_s for query in self.queries.values())

    @property
    def saved(self) -> float | None:
        return saved_share([self])


def saved_share(flows: Iterable[AgentFlow]) -> float | None:
    """The share of bytes that stay at the source, against sending everything."""
    listed = list(flows)
    whole = sum(flow.in_bytes_s for flow in listed)
    return 1 - sum(flow.sent_bytes_s for flow in listed) / whole if whole else None


def processed_share(flows: Iterable[AgentFlow]) -> float | None:
    """The share of records that are processed before they leave the source."""
    queries = [query for flow in flows for query in flow.queries.values()]
    came = sum(query.in_eps for query in queries)
    return sum(query.in_eps * query.processed for query in queries) / came if came else None


_SUMMED = ("records_in", "records_processed", "records_drained", "records_overflow", "records_out")
_SUMMED += ("bytes_in", "bytes_out", "bytes_drained", "cpu_ns")


def flows_of(cluster: Cluster, lives: Sequence[LiveQuery], place: str | None = None) -> dict[str, AgentFlow]:
    """By the agent's id: its rates over the newest minute of each live query's telemetry."""
    recent = _recent({live.query_id: live for live in lives})
    if recent is None:
        return {}
    rows = StatisticsWindow.objects.filter(recent, cluster=cluster).exclude(place="stream")
    if place is not None:
        rows = rows.filter(place=place)
    summed = rows.values("place", "query_id", "operator").order_by()
    flows_by_part: dict[tuple[str, int], dict[str, OperatorFlow]] = {}
    newest: dict[tuple[str, int], datetime] = {}
    sums = {name: Sum(name) for name in _SUMMED}
    for row in summed.annotate(**sums, n=Count("starts_at", distinct=True), width=Max("width_s"), at=Max("starts_at")):
        key = row["place"], row["query_id"]
        flows_by_part.setdefault(key, {})[row["operator"]] = _operator(row)
        newest[key] = max(row["at"], newest.get(key, row["at"]))
    order = {live.query_id: [operator["id"] for operator in live.pipeline["operators"]] for live in lives}
    flows: dict[str, AgentFlow] = {}
    for (agent, query_id), by_operator in flows_by_part.items():
        operators = [by_operator[name] for name in order[query_id] if name in by_operator]
        flow = AgentQueryFlow(query_id, operators, newest[agent, query_id])
        flows.setdefault(agent, AgentFlow()).queries[query_id] = flow
    return flows


def _recent(lives: Mapping[int, LiveQuery]) -> Q | None:
    """Rows of the plans that run now, of the newest minute of each: sources may replay another year."""
    plans = {live.plan for live in lives.values()}
    newest = StatisticsWindow.objects.filter(query__in=lives, plan__in=plans).exclude(place="stream")
    condition: Q | None = None
    for query_id, plan, at in newest.values_list("query_id", "plan").annotate(at=Max("starts_at")).order_by():
        if lives[query_id].plan == plan:
            query = Q(query_id=query_id, plan=plan, starts_at__gt=at - RECENT)
            condition = query if condition is None else condition | query
    return condition


def _operator(row: Any) -> OperatorFlow:
    span_s = row["n"] * row["width"] or 1.0
    return OperatorFlow(
        operator=row["operator"],
        in_eps=row["records_in"] / span_s,
        processed_eps=row["records_processed"] / span_s,
        drained_eps=(row["records_drained"] + row["records_overflow"]) / span_s,
        out_eps=row["records_out"] / span_s,
        in_bytes_s=row["bytes_in"] / span_s,
        out_bytes_s=row["bytes_out"] / span_s,
        drained_bytes_s=row["bytes_drained"] / span_s,
        cpu_cores=row["cpu_ns"] / 1e9 / span_s,
    )


@dataclass(frozen=True)
class SplitBytes:
    """One way of splitting the work between source and cluster."""

    name: str
    words: str
    sent: float | None
    share: float  #: of the most that any sends, for its bar
    saved: str  #: `65% less`: what is sent now, against it
    evidence: str
    is_now: bool = False

    @property
    def rate(self) -> str:
        return (
            str(byte_rate(self.sent)) if self.sent is not None else "not known yet: the cost of an operator is missing"
        )


class SplitComparison:
    """Ways from the most that is sent to the least."""

    def __init__(self, found: SavedBytes) -> None:
        self.found = found

    @property
    def ways(self) -> list[SplitBytes]:
        saved = self.found
        rows = [
            ("All-SP", "everything is drained", saved.all_sp, "measured"),
            ("Filter-Src", "filters alone run here", saved.filter_src, "predicted"),
            ("Best-OP", "whole operators, as many as fit", saved.best_op, "predicted"),
            ("All-Src", "everything runs here", saved.all_src, "predicted"),
        ]
        highest = max([saved.sent, *(row[2] or 0.0 for row in rows)]) or 1.0
        splits = [self._way(name, words, sent, highest, evidence) for name, words, sent, evidence in rows]
        now = self._way("Now", "load factors as they were", saved.sent, highest, "measured", is_now=True)
        known = sorted((split for split in splits if split.sent is not None), key=lambda split: -(split.sent or 0.0))
        return [*known, now, *(split for split in splits if split.sent is None)]

    def _way(
        self, name: str, words: str, sent: float | None, highest: float, evidence: str, *, is_now: bool = False
    ) -> SplitBytes:
        span_s = self.found.span_s or 1.0
        saved = "" if is_now or sent is None else _share_words(self.found.saved(sent) or 0.0)
        rate = sent / span_s if sent is not None else None
        return SplitBytes(name, words, rate, (sent or 0.0) / highest, saved, evidence, is_now)

    @property
    def sentence(self) -> str:
        """`71% less than All-SP, 12% less than Best-OP`."""
        ways = {"All-SP": self.found.all_sp, "Filter-Src": self.found.filter_src, "Best-OP": self.found.best_op}
        shares = [(name, self.found.saved(sent)) for name, sent in ways.items()]
        parts = [_against_words(name, share) for name, share in shares if share is not None]
        return f"It sent {', '.join(parts)}." if parts else ""

    @property
    def basis(self) -> str:
        return f"Of {count(self.found.records)} records over the last {seconds(self.found.span_s)}."


def _against_words(name: str, share: float) -> str:
    words = _share_words(share)
    return f"{words} as {name}" if words.endswith("as much") else f"{words} than {name}"


def _share_words(share: float) -> str:
    """`65% less`, `12% more`, `7.8 times as much`."""
    if abs(share) < 0.005:
        return "as much"
    if share < -1:
        return f"{significant(1 - share)} times as much"
    return f"{percent(share)} less" if share > 0 else f"{percent(-share)} more"
