"""Facts of a backtest: its periods, policies and outcomes in words, and its answer in rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.planning.backtest_records import RecordedReach, recorded_reaches
from apps.planning.models import BacktestRun
from apps.ui.charts import Chart, Series, time_axis
from apps.ui.marks import state_mark
from apps.ui.numbers import Quantity, percent, seconds
from apps.ui.times import short
from engine.backtest.policy import ReplayPolicy
from engine.backtest.result import (
    BacktestResult,
    MeasuredReplay,
    MovedOperator,
    ReplayedLoad,
    ReplayedRequest,
    ReplayResult,
    ReplayViolation,
)
from engine.words import counted, duration_words, listed

__all__ = ["BacktestFacts", "ReachFacts", "moment_of", "outcome_mark", "period_words", "policy_words"]


_OUTCOMES = {
    "admitted": ("applied", "Admitted"),
    "queued": ("queued", "Queued"),
    "review": ("awaiting", "Review"),
    "rejected": ("declined", "Rejected"),
    "not applied": ("preview", "Not applied"),
}
_ADMISSION = {"recorded": "as recorded", "everything": "everything admitted", "mace": "decided by the engine"}


def outcome_mark(outcome: str) -> SafeString:
    """Mark of a request's outcome."""
    state, label = _OUTCOMES[outcome]
    return state_mark(state, label)


def policy_words(policy: ReplayPolicy) -> str:
    """decided by the engine, 20% headroom, placed by search with at most 4 moves."""
    parts = [_ADMISSION[policy.admission]]
    if policy.admission == "mace":
        parts += ["at risk admitted"] if policy.at_risk == "admit" else []
        parts += ["assumed to review"] if policy.assumed == "review" else []
    if policy.headroom:
        parts.append(f"{100 * policy.headroom:.3g}% headroom")
    if policy.placement != "keep":
        limit = policy.max_moves
        placed = f"placed anew by {policy.placement}"
        parts.append(placed if limit is None else f"{placed} with at most {counted(limit, 'move')}")
    return ", ".join(parts)


def moment_of(at_s: float) -> datetime:
    """A moment of an answer."""
    return datetime.fromtimestamp(at_s, UTC)


def period_words(since: datetime, until: datetime) -> str:
    """14 Nov, 15:00 to today, 15:00."""
    return f"{day_words(since)} to {day_words(until)}"


def day_words(moment: datetime) -> str:
    """14 Nov, 15:00, or today, 15:00."""
    text = short(moment)
    return text if "," in text else f"today, {text}"


_KINDS = {"measured": "telemetry", "history": "load history"}


class ReachFacts:
    """Records that a backtest can replay."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @cached_property
    def found(self) -> list[RecordedReach]:
        return recorded_reaches(self.cluster)

    @property
    def sentence(self) -> str:
        if not self.found:
            return "Nothing was recorded of this cluster's arrivals yet."
        first, last = min(record.first for record in self.found), max(record.last for record in self.found)
        return f"Records reach from {period_words(first, last)}: {listed(self.kinds)}."

    @property
    def kinds(self) -> list[str]:
        """telemetry of 3 sources, load history of 10 sources."""
        parts = []
        for kind, words in _KINDS.items():
            sources = {record.source for record in self.found if record.kind == kind}
            if sources:
                parts.append(f"{words} of {counted(len(sources), 'source')}")
        return parts


@dataclass(frozen=True)
class SideRow:
    """A line of the comparison."""

    name: str
    recorded: str
    tested: str
    better: str = ""  # ok or bad, for the policy


@dataclass(frozen=True)
class Lane:
    """Stretches of a strip in which a query was over its objective, of 600."""

    parts: list[tuple[float, float]]
    label: str


@dataclass(frozen=True)
class LateRow:
    """A query that was over its objective under one of the two."""

    query: str
    bound_s: float
    tested: str
    recorded: str
    worst_s: float | None
    worst_recorded_s: float | None
    lanes: tuple[Lane, Lane]
    chosen: bool


class BacktestFacts:
    """The answer of a backtest, in the words and numbers of its page."""

    def __init__(self, row: BacktestRun, given: Mapping[str, str]) -> None:
        self.row, self.cluster, self._wanted = row, row.cluster, given.get("query", "")

    @cached_property
    def result(self) -> BacktestResult | None:
        return BacktestResult.parse(self.row.result) if self.row.result else None

    @property
    def answer(self) -> BacktestResult:
        """The result of a backtest that has one."""
        assert self.result is not None
        return self.result

    @property
    def title(self) -> str:
        words = policy_words(ReplayPolicy.parse(self.row.policy))
        return words[0].upper() + words[1:]

    @property
    def period(self) -> str:
        """The replayed period, or the one asked for while there is no answer."""
        if self.result is None:
            return period_words(self.row.since, self.row.until)
        return period_words(moment_of(self.result.since_s), moment_of(self.result.until_s))

    @property
    def is_shorter(self) -> bool:
        """Whether records reach only a part of what was asked for."""
        result = self.result
        if result is None:
            return False
        width_s = result.width_s
        is_late = result.since_s > self.row.since.timestamp() + width_s
        return is_late or result.until_s < self.row.until.timestamp() - width_s

    @property
    def segments(self) -> str:
        return f"{self.answer.segments} segments of {duration_words(self.answer.width_s)}"

    @property
    def requests(self) -> list[ReplayedRequest]:
        return self.result.requests if self.result else []

    # -- side by side

    @property
    def sides(self) -> list[SideRow]:
        new, old = self.answer.tested, self.answer.recorded
        busiest = [max((load.mean for load in side.loads.values()), default=0.0) for side in (old, new)]
        return [
            SideRow("Admitted", f"{old.admitted} of {old.asked}", f"{new.admitted} of {new.asked}"),
            SideRow("Queued", str(old.queued), str(new.queued)),
            SideRow("Left to a person", str(old.review), str(new.review)),
            SideRow("Rejected", str(old.rejected), str(new.rejected)),
            SideRow("Admitted, but not applied", str(old.left), "–"),
            _reduction("Queries over their objective", old.queries_over, new.queries_over, str),
            _reduction("Time over objectives, all queries", old.seconds_over, new.seconds_over, duration_words),
            _reduction("Time at risk besides, all queries", old.seconds_at_risk, new.seconds_at_risk, duration_words),
            SideRow("Operators moved", str(old.moves), str(new.moves)),
            SideRow("Busiest node, mean load", f"{busiest[0]:.2f}", f"{busiest[1]:.2f}"),
        ]

    @property
    def loads(self) -> list[tuple[str, ReplayedLoad, ReplayedLoad]]:
        """(node, as recorded, this policy), the busiest first."""
        new, old = self.answer.tested.loads, self.answer.recorded.loads
        return sorted(((node, old[node], new[node]) for node in new), key=lambda row: (-row[2].mean, row[0]))

    # -- violations

    @property
    def _sides(self) -> tuple[ReplayResult, ReplayResult]:
        return self.answer.tested, self.answer.recorded

    @cached_property
    def names(self) -> list[str]:
        """Queries whose latency can be drawn, those that were late first."""
        late = [violation.query for side in self._sides for violation in side.violations]
        late += [row.query for side in self._sides for row in side.at_risk]
        return list(dict.fromkeys([*late, *(query for side in self._sides for query in side.queries)]))

    @property
    def query(self) -> str:
        return self._wanted if self._wanted in self.names else self.names[0] if self.names else ""

    @cached_property
    def late(self) -> list[LateRow]:
        new, old = ({violation.query: violation for violation in side.violations} for side in self._sides)
        return [self._late_row(name, new.get(name), old.get(name)) for name in self.names if name in new or name in old]

    def _late_row(self, name: str, new: ReplayViolation | None, old: ReplayViolation | None) -> LateRow:
        row = new or old
        assert row is not None
        return LateRow(
            query=name,
            bound_s=row.bound_s,
            tested=_late_words(new, self.answer.tested, name),
            recorded=_late_words(old, self.answer.recorded, name),
            worst_s=new.worst_s if new else None,
            worst_recorded_s=old.worst_s if old else None,
            lanes=(self._lane(new, "This policy"), self._lane(old, "As recorded")),
            chosen=name == self.query,
        )

    def _lane(self, violation: ReplayViolation | None, label: str) -> Lane:
        count = self.answer.segments
        parts = [(600.0 * i / count, 600.0 / count) for i in (violation.segments if violation else [])]
        return Lane(parts, f"{label}: {counted(len(parts), 'segment')} over")

    @property
    def at_risk(self) -> str:
        """Queries that may have missed their objectives where their medians held, under this policy."""
        rows = self.answer.tested.at_risk
        return listed([f"{row.query} for {duration_words(row.seconds_at_risk)}" for row in rows], 5)

    @property
    def charts(self) -> list[Chart]:
        return [self._chart(self.query)] if self.query else []

    def _chart(self, name: str) -> Chart:
        result = self.answer
        new, old = (side.queries.get(name) for side in self._sides)
        known = new or old
        assert known is not None
        lines = []
        if new:
            low, high = ([value or 0.0 for value in values] for values in (new.latency_s, new.high_s))
            lines.append(Series("band", "Up to 95% of the time", low=low, high=high))
            lines.append(Series("estimate", "This policy", y=new.latency_s))
        if old:
            lines.append(Series("alt", "As recorded", y=old.latency_s))
        measured = next((row for row in result.measured if row.query == name), None)
        if measured:
            points = [(i, value) for i, value in enumerate(measured.series_s) if value is not None]
            xs = [(i + 0.5) * result.width_s for i, _ in points]
            lines.append(Series("measured", "Measured", y=[value for _, value in points], x=xs))
        worst = max((value for value in known.latency_s if value is not None), default=None)
        axis = time_axis(moment_of(result.since_s), result.width_s, result.segments)
        finding = f"{name}: at most {seconds(worst)}, against {seconds(known.bound_s)}."
        return Chart("backtest-latency", finding, "s", axis, lines, objective_s=known.bound_s)

    # -- the rest

    @property
    def moves(self) -> list[tuple[str, MovedOperator]]:
        """(when, move)."""
        return [(short(moment_of(move.at_s)), move) for move in self.answer.tested.moved]

    @property
    def measured(self) -> list[tuple[MeasuredReplay, Quantity]]:
        """Measured latencies with the share of segments that measured no more than was replayed."""
        return [(row, percent(row.within / row.segments)) for row in self.answer.measured]

    @property
    def sources(self) -> list[tuple[str, str]]:
        """(what arrivals are of, sources)."""
        by_reason: dict[str, list[str]] = {}
        for name, source in self.answer.sources.items():
            counts = {
                "of telemetry": source.measured,
                "of load history": source.history,
                "filled in": source.filled,
            }
            parts = [f"{counted(count, 'segment')} {text}" for text, count in counts.items() if count]
            by_reason.setdefault(", ".join(parts), []).append(name)
        return [(text, ", ".join(names)) for text, names in by_reason.items()]

    @property
    def rest_body(self) -> dict[str, object]:
        """The call that asks the same."""
        period = {"since": self.row.since.isoformat(), "until": self.row.until.isoformat()}
        return {"cluster": self.cluster.slug, **period, "policy": self.row.policy, "ask": self.row.ask}


def _late_words(violation: ReplayViolation | None, side: ReplayResult, query: str) -> str:
    return duration_words(violation.seconds_over) if violation else "held" if query in side.queries else "–"


def _reduction(name: str, old: float, new: float, words: Any) -> SideRow:
    """A line of which less is better."""
    better = "" if new == old else "ok" if new < old else "bad"
    return SideRow(name, words(old), words(new), better)
