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
from apps.ui.numbers import percent, seconds
from apps.ui.times import short
from engine.words import counted, duration_words, listed

__all__ = [
    "BacktestFacts",
    "Lane",
    "LateRow",
    "ReachFacts",
    "SideRow",
    "day_words",
    "moment_of",
    "outcome_mark",
    "period_words",
    "policy_words",
]


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


def policy_words(policy: Mapping[str, Any]) -> str:
    """decided by the engine, 20% headroom, placed by search with at most 4 moves."""
    parts = [_ADMISSION[policy["admission"]]]
    if policy["admission"] == "mace":
        parts += ["at risk admitted"] if policy["at_risk"] == "admit" else []
        parts += ["assumed to review"] if policy["assumed"] == "review" else []
    if policy["headroom"]:
        parts.append(f"{100 * policy['headroom']:.3g}% headroom")
    if policy["placement"] != "keep":
        limit = policy["max_moves"]
        placed = f"placed anew by {policy['placement']}"
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

    @property
    def topic(self) -> str:
        return f"backtest:{self.row.pk}"

    @cached_property
    def result(self) -> dict[str, Any] | None:
        return self.row.result

    @property
    def title(self) -> str:
        words = policy_words(self.row.policy)
        return words[0].upper() + words[1:]

    @property
    def period(self) -> str:
        """The replayed period, or the one asked for while there is no answer."""
        if self.result is None:
            return period_words(self.row.since, self.row.until)
        return period_words(moment_of(self.result["since_s"]), moment_of(self.result["until_s"]))

    @property
    def is_shorter(self) -> bool:
        """Whether records reach only a part of what was asked for."""
        result = self.result
        if result is None:
            return False
        width_s = result["width_s"]
        is_late = result["since_s"] > self.row.since.timestamp() + width_s
        return is_late or result["until_s"] < self.row.until.timestamp() - width_s

    @property
    def segments(self) -> str:
        assert self.result is not None
        return f"{self.result['segments']} segments of {duration_words(self.result['width_s'])}"

    @property
    def tested(self) -> dict[str, Any]:
        assert self.result is not None
        return self.result["tested"]

    @property
    def recorded(self) -> dict[str, Any]:
        assert self.result is not None
        return self.result["recorded"]

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.result["requests"] if self.result else []

    # -- side by side

    @property
    def sides(self) -> list[SideRow]:
        new, old = self.tested, self.recorded
        busiest = [max((load["mean"] for load in side["loads"].values()), default=0.0) for side in (old, new)]
        return [
            SideRow("Admitted", f"{old['admitted']} of {old['asked']}", f"{new['admitted']} of {new['asked']}"),
            SideRow("Queued", str(old["queued"]), str(new["queued"])),
            SideRow("Left to a person", str(old["review"]), str(new["review"])),
            SideRow("Rejected", str(old["rejected"]), str(new["rejected"])),
            SideRow("Admitted, but not applied", str(old["left"]), "–"),
            _reduction("Queries over their objective", old["queries_over"], new["queries_over"], str),
            _reduction("Time over objectives, all queries", old["seconds_over"], new["seconds_over"], duration_words),
            _reduction("Time at risk besides, all queries", _at_risk_s(old), _at_risk_s(new), duration_words),
            SideRow("Operators moved", str(old["moves"]), str(new["moves"])),
            SideRow("Busiest node, mean load", f"{busiest[0]:.2f}", f"{busiest[1]:.2f}"),
        ]

    @property
    def loads(self) -> list[tuple[str, dict[str, float], dict[str, float]]]:
        """(node, as recorded, this policy), the busiest first."""
        new, old = self.tested["loads"], self.recorded["loads"]
        return sorted(((node, old[node], new[node]) for node in new), key=lambda row: (-row[2]["mean"], row[0]))

    # -- violations

    @cached_property
    def names(self) -> list[str]:
        """Queries whose latency can be drawn, those that were late first."""
        late = [violation["query"] for side in (self.tested, self.recorded) for violation in side["violations"]]
        late += [row["query"] for side in (self.tested, self.recorded) for row in side.get("at_risk", ())]
        return list(dict.fromkeys([*late, *self.tested["queries"], *self.recorded["queries"]]))

    @property
    def query(self) -> str:
        return self._wanted if self._wanted in self.names else self.names[0] if self.names else ""

    @cached_property
    def late(self) -> list[LateRow]:
        sides = [
            {violation["query"]: violation for violation in side["violations"]} for side in (self.tested, self.recorded)
        ]
        names = [name for name in self.names if name in sides[0] or name in sides[1]]
        return [self._late_row(name, sides[0].get(name), sides[1].get(name)) for name in names]

    def _late_row(self, name: str, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None) -> LateRow:
        row = new or old
        assert row is not None
        return LateRow(
            query=name,
            bound_s=row["bound_s"],
            tested=duration_words(new["seconds_over"]) if new else "held" if name in self.tested["queries"] else "–",
            recorded=duration_words(old["seconds_over"])
            if old
            else "held"
            if name in self.recorded["queries"]
            else "–",
            worst_s=new["worst_s"] if new else None,
            worst_recorded_s=old["worst_s"] if old else None,
            lanes=(self._lane(new, "This policy"), self._lane(old, "As recorded")),
            chosen=name == self.query,
        )

    def _lane(self, latency: Mapping[str, Any] | None, label: str) -> Lane:
        assert self.result is not None
        count = self.result["segments"]
        parts = [(600.0 * i / count, 600.0 / count) for i in (latency["segments"] if latency else [])]
        return Lane(parts, f"{label}: {counted(len(parts), 'segment')} over")

    @property
    def at_risk(self) -> str:
        """Queries that may have missed their objectives where their medians held, under this policy."""
        rows = self.tested.get("at_risk", ())
        return listed([f"{row['query']} for {duration_words(row['seconds_at_risk'])}" for row in rows], 5)

    @property
    def charts(self) -> list[Chart]:
        return [self._chart(self.query)] if self.query else []

    def _chart(self, name: str) -> Chart:
        assert self.result is not None
        result, count = self.result, self.result["segments"]
        new, old = (side["queries"].get(name) for side in (self.tested, self.recorded))
        known = new or old
        assert known is not None
        lines = []
        if new and new.get("high_s"):
            upper = [None if value is None else float(value) for value in new["high_s"]]
            low = [0.0 if value is None else value for value in new["latency_s"]]
            lines.append(Series("band", "Up to 95% of the time", low=low, high=[value or 0.0 for value in upper]))
        if new:
            lines.append(Series("estimate", "This policy", y=new["latency_s"]))
        if old:
            lines.append(Series("alt", "As recorded", y=old["latency_s"]))
        measured = next((query for query in result["measured"] if query["query"] == name), None)
        if measured:
            points = [(i, value) for i, value in enumerate(measured["series_s"]) if value is not None]
            xs = [(i + 0.5) * result["width_s"] for i, _ in points]
            lines.append(Series("measured", "Measured", y=[value for _, value in points], x=xs))
        worst = max((value for value in known["latency_s"] if value is not None), default=None)
        axis = time_axis(moment_of(result["since_s"]), result["width_s"], count)
        finding = f"{name}: at most {seconds(worst)}, against {seconds(known['bound_s'])}."
        return Chart("backtest-latency", finding, "s", axis, lines, objective_s=known["bound_s"])

    # -- the rest

    @property
    def moves(self) -> list[dict[str, Any]]:
        return [{**move, "at": short(moment_of(move["at_s"]))} for move in self.tested["moved"]]

    @property
    def measured(self) -> list[dict[str, Any]]:
        assert self.result is not None
        return [{**query, "share": percent(query["within"] / query["segments"])} for query in self.result["measured"]]

    @property
    def sources(self) -> list[tuple[str, str]]:
        """(what arrivals are of, sources)."""
        assert self.result is not None
        words = (("measured", "of telemetry"), ("history", "of load history"), ("filled", "filled in"))
        by_reason: dict[str, list[str]] = {}
        for name, source in self.result["sources"].items():
            parts = [f"{counted(source[key], 'segment')} {text}" for key, text in words if source[key]]
            by_reason.setdefault(", ".join(parts), []).append(name)
        return [(text, ", ".join(names)) for text, names in by_reason.items()]

    @property
    def rest_path(self) -> str:
        return f"/api/v1/backtests/{self.row.pk}"

    @property
    def rest_body(self) -> dict[str, Any]:
        """The call that asks the same."""
        period = {"since": self.row.since.isoformat(), "until": self.row.until.isoformat()}
        return {"cluster": self.cluster.slug, **period, "policy": self.row.policy, "ask": self.row.ask}


def _at_risk_s(side: Mapping[str, Any]) -> float:
    """Seconds in which an upper end is over an objective and the median is not, over all queries."""
    return float(sum(row["seconds_at_risk"] for row in side.get("at_risk", ())))


def _reduction(name: str, old: float, new: float, words: Any) -> SideRow:
    """A line of which less is better."""
    better = "" if new == old else "ok" if new < old else "bad"
    return SideRow(name, words(old), words(new), better)
