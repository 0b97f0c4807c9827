"""Predictions of a configuration on recorded epochs, and the check of one before its rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.rollouts.models import RefinedConfig, RolloutPolicy
from apps.rollouts.versions import (
    PartDraft,
    ScheduleDraft,
    learned_in,
    part_of,
)
from apps.telemetry.epochs import recorded_epochs
from apps.telemetry.models import Assignment, LiveQuery
from apps.telemetry.selectors import assignments_adapting
from engine.jarvis.baselines import SourcePipeline
from engine.jarvis.refined_config import LearnedFigures, OperatorPrior
from engine.jarvis.settings import AdaptationSettings
from engine.jarvis.wire_bytes import PartialRows
from engine.kinds import Enumeration
from engine.records import Record, Words
from engine.rollouts.measures import EPOCH_S, EPOCH_US, EpochRow
from engine.words import percent_words

__all__ = [
    "GOOD",
    "WORSE",
    "ConfigCheck",
    "KnownOperators",
    "QueryCheck",
    "SavedBytes",
    "config_check_of",
    "drafts_check",
    "known_operators",
    "predict",
    "saved_bytes",
]


@dataclass(frozen=True)
class KnownOperators:
    """Learned operators of a query at a source; `kinds` as in the pipeline."""

    operators: tuple[OperatorPrior, ...]
    sizes: tuple[float, ...]  #: bytes of a record before the first operator and after each
    kinds: tuple[str, ...]
    window_s: float | None = None  #: from one window's end to the next, where the last operator is their aggregate

    def at(self, records: float) -> SourcePipeline:
        """The pipeline at so many records an epoch: the cost of groups is spread over them, and rows go by groups."""
        costs, n = [], records
        for operator in self.operators:
            costs.append(operator.cost_at(n))
            n *= operator.relay
        relay = [operator.relay for operator in self.operators]
        return SourcePipeline(relay, costs, self.sizes, self.kinds, self._partials())

    def _partials(self) -> PartialRows | None:
        """Rows of an aggregate over windows by its groups; None where they are not known."""
        groups = self.operators[-1].groups
        if self.window_s is None or groups is None:
            return None
        return PartialRows(groups, self.sizes[-1], self.window_s / EPOCH_S)


@dataclass
class PredictedSums:
    """Sums over epochs."""

    records: float = 0.0
    bytes_sent: float = 0.0
    cpu_s: float = 0.0
    overflow: float = 0.0  #: records
    epochs: int = 0

    def add(self, other: PredictedSums) -> None:
        """Add the sums of other epochs."""
        for name in ("records", "bytes_sent", "cpu_s", "overflow", "epochs"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


def known_operators(figures: LearnedFigures, live: LiveQuery) -> KnownOperators | None:
    """The learned operators of a live query; None where there are none, or others."""
    part = live.source_part
    if not figures.operators or len(figures.operators) != len(part.kinds):
        return None
    return KnownOperators(figures.operators, figures.record_bytes, part.kinds, part.window_s)


def predict(
    operators: KnownOperators,
    settings: AdaptationSettings,
    epochs: Iterable[EpochRow],
    *,
    planned: KnownOperators | None = None,
) -> PredictedSums:
    """Replay recorded epochs, with their records and budgets.

    Methods that adapt count as settled. `planned` is what they believe in, where that is not what holds.
    """
    sums = PredictedSums()
    for epoch in epochs:
        if epoch.records_in <= 0:
            continue
        n = float(epoch.records_in)
        factors = (planned or operators).at(n).settled(settings, epoch.budget_s, n)
        outcome = operators.at(n).epoch(factors, epoch.budget_s, n)
        sums.add(PredictedSums(n, outcome.bytes_sent, outcome.cpu_s, outcome.overflow, 1))
    return sums


@dataclass(frozen=True)
class SavedBytes:
    """Bytes sent over a span, and those the baselines would have sent of the same records."""

    records: int
    sent: float
    all_sp: float
    all_src: float | None = None  #: None, like those below, while costs are unknown
    filter_src: float | None = None
    best_op: float | None = None
    span_s: float = 0.0

    def saved(self, other: float | None) -> float | None:
        """Share of a baseline's bytes that was saved."""
        return None if not other else 1.0 - self.sent / other


_BASELINES = {name: AdaptationSettings(method=name) for name in ("all-src", "filter-src", "best-op")}
_MAX_EPOCHS = 30  # of a query are replayed and scaled up


def saved_bytes(cluster: Cluster, agents: Iterable[Any] | None = None, last_s: float = 300.0) -> dict[str, SavedBytes]:
    """Saved bytes by id of agents that adapt: bytes sent of the last epochs' records, and those of the baselines.

    All-SP is what came in; the other baselines are None where an operator's cost is not known yet.
    """
    ids = None if agents is None else {str(pk) for pk in agents}
    parts = [
        assignment for assignment in assignments_adapting(cluster) if ids is None or str(assignment.agent_id) in ids
    ]
    recorded = recorded_epochs({part.agent for part in parts}, timezone.now(), last_s)
    learned = learned_in(cluster)
    sums: dict[str, list[SavedBytes]] = {}
    for part in parts:
        rows = recorded.get(str(part.agent_id), {}).get(part.live.key, [])
        if rows:
            row = learned.get((part.live_id, part.agent_id))
            operators = known_operators(row.figures, part.live) if row else None
            sums.setdefault(str(part.agent_id), []).append(_of_query(rows, operators))
    return {agent: _saved_sum(listed) for agent, listed in sums.items()}


def _of_query(rows: Sequence[EpochRow], operators: KnownOperators | None) -> SavedBytes:
    records = sum(row.records_in for row in rows)
    return SavedBytes(
        records=records,
        sent=sum(row.bytes_sent for row in rows),
        all_sp=sum(row.bytes_in for row in rows),
        span_s=(rows[-1].epoch_us - rows[0].epoch_us + EPOCH_US) / 1e6,
        **_baselines(rows, operators, records),
    )


def _baselines(rows: Sequence[EpochRow], operators: KnownOperators | None, records: int) -> Mapping[str, float | None]:
    """Bytes of each baseline on some of the epochs, scaled up to all of them."""
    if operators is None:
        return {}
    step = -(-len(rows) // _MAX_EPOCHS)
    baselines = {}
    for name, settings in _BASELINES.items():
        sums = predict(operators, settings, rows[::step])
        baselines[name.replace("-", "_")] = sums.bytes_sent / sums.records * records if sums.records else None
    return baselines


def _saved_sum(listed: Sequence[SavedBytes]) -> SavedBytes:
    sums: dict[str, float | None] = {}
    for name in ("all_src", "filter_src", "best_op"):
        values = [getattr(saved, name) for saved in listed]
        sums[name] = None if None in values else sum(values)
    return SavedBytes(
        records=sum(saved.records for saved in listed),
        sent=sum(saved.sent for saved in listed),
        all_sp=sum(saved.all_sp for saved in listed),
        span_s=max(saved.span_s for saved in listed),
        **sums,
    )


GOOD, WORSE, UNKNOWN = "good", "worse", "unknown"
_RECORDED_S = 300.0
_MAX_PARTS = 200  # are predicted, the first by query and agent
_MAX_CHECKED = 40  # of a query at an agent are replayed and scaled up
_SAVES = 0.02  # relative fall of bytes that justifies more CPU time


@dataclass(frozen=True)
class QueryCheck(Record):
    """Predicted change of a query by a configuration, per record."""

    bytes_before: float
    bytes_after: float
    bytes_rel: Annotated[float | None, Words("Relative change.")]
    cpu_before_s: float
    cpu_after_s: float
    cpu_rel: Annotated[float | None, Words("Relative change.")]
    overflow_pp: Annotated[float, Words("Change in percentage points.")]
    agents: int
    epochs: int


@dataclass(frozen=True)
class ConfigCheck(Record):
    """Replay of recent recorded epochs under a configuration."""

    health: Annotated[str, Enumeration((GOOD, WORSE, UNKNOWN))]
    reasons: tuple[str, ...]
    queries: Mapping[str, QueryCheck]
    parts: Annotated[int, Words("Queries at agents that it is for.")]
    predicted_parts: Annotated[int, Words("Of these, how many could be predicted.")]
    epochs: int
    at: str


def config_check_of(config: RefinedConfig) -> ConfigCheck | None:
    """The check that a configuration was stored with."""
    return ConfigCheck.parse(config.checked) if config.checked else None


@dataclass
class _BeforeAndAfter:
    """Predictions of a query, under the configuration in force and under the new one."""

    now: PredictedSums
    then: PredictedSums
    agents: int = 0


def drafts_check(
    cluster: Any,
    drafts: Sequence[PartDraft],
    policy: RolloutPolicy,
    now: datetime,
    schedules: Sequence[ScheduleDraft] = (),
) -> ConfigCheck:
    """Predict a configuration against the one in force.

    `health` is unknown where nothing was learned of the operators yet, or nothing is recorded: the canaries decide.
    Schedules are judged at the canaries alone; a replay of recorded arrivals is a job of its own
    (`apps.rollouts.replays`).
    """
    by_part = {(draft.live.pk, draft.agent.pk if draft.agent else None): draft for draft in drafts}
    parts = [
        (part, draft)
        for part in assignments_adapting(cluster)
        if (draft := by_part.get((part.live_id, part.agent_id)) or by_part.get((part.live_id, None)))
    ][:_MAX_PARTS]
    recorded = recorded_epochs({part.agent for part, _ in parts}, now, _RECORDED_S)
    queries: dict[str, _BeforeAndAfter] = {}
    learned = learned_in(cluster)
    for part, draft in parts:
        epochs = recorded.get(str(part.agent_id), {}).get(part.live.key, [])
        epochs = epochs[:: -(-len(epochs) // _MAX_CHECKED) or 1]
        row = learned.get((part.live_id, part.agent_id))
        figures = draft.learned if draft.learned.operators or row is None else row.figures
        if both := _predicted(part, draft, figures, epochs):
            sums = queries.setdefault(part.live.query.name, _BeforeAndAfter(PredictedSums(), PredictedSums()))
            sums.now.add(both.now)
            sums.then.add(both.then)
            sums.agents += 1
    check = _check_of(queries, policy, now, len(parts))
    if schedules and not drafts:
        return replace(check, reasons=("schedules are judged at their canaries; a replay predicts them",))
    return check


def _predicted(
    part: Assignment, draft: PartDraft, figures: LearnedFigures, epochs: Sequence[EpochRow]
) -> _BeforeAndAfter | None:
    """Both predictions on the same epochs, by the learned operators."""
    operators = known_operators(figures, part.live)
    if operators is None or not any(epoch.records_in for epoch in epochs):
        return None
    before = part_of(part)
    settings = AdaptationSettings.parse(before.document["settings"] if before else part.settings)
    planned = known_operators(before.figures, part.live) if before else None
    now = predict(operators, settings, epochs, planned=planned)
    return _BeforeAndAfter(now, predict(operators, AdaptationSettings.parse(dict(draft.settings)), epochs))


def _check_of(queries: Mapping[str, _BeforeAndAfter], policy: RolloutPolicy, now: datetime, parts: int) -> ConfigCheck:
    reasons: list[str] = []
    shown = {}
    for query, both in queries.items():
        shown[query] = _query_check(both)
        reasons += [f"{query}: {reason}" for reason in _reasons(shown[query], policy)]
    health = WORSE if reasons else GOOD if queries else UNKNOWN
    if not queries:
        reasons = ["no prediction: nothing was learned of these operators yet, or no epochs are recorded"]
    return ConfigCheck(
        health=health,
        reasons=tuple(reasons),
        queries=shown,
        parts=parts,
        predicted_parts=sum(both.agents for both in queries.values()),
        epochs=sum(both.then.epochs for both in queries.values()),
        at=now.isoformat(),
    )


def _query_check(both: _BeforeAndAfter) -> QueryCheck:
    now, then = both.now, both.then
    return QueryCheck(
        bytes_before=now.bytes_sent / now.records,
        bytes_after=then.bytes_sent / then.records,
        bytes_rel=then.bytes_sent / now.bytes_sent - 1 if now.bytes_sent else None,
        cpu_before_s=now.cpu_s / now.records,
        cpu_after_s=then.cpu_s / then.records,
        cpu_rel=then.cpu_s / now.cpu_s - 1 if now.cpu_s else None,
        overflow_pp=100 * (then.overflow / then.records - now.overflow / now.records),
        agents=both.agents,
        epochs=then.epochs,
    )


def _reasons(check: QueryCheck, policy: RolloutPolicy) -> list[str]:
    """Measures that are predicted beyond their limits."""
    bytes_rel, cpu_rel, overflow_pp = check.bytes_rel or 0.0, check.cpu_rel or 0.0, check.overflow_pp
    reasons = []
    if overflow_pp > policy.overflow_pp:
        reasons.append(f"{overflow_pp:.3g} points more records would overflow (limit {policy.overflow_pp:g})")
    if bytes_rel > policy.bytes_rel:
        reasons.append(f"{percent_words(bytes_rel)} more bytes per record (limit {percent_words(policy.bytes_rel)})")
    if cpu_rel > policy.cpu_rel and bytes_rel > -_SAVES:
        limit = percent_words(policy.cpu_rel)
        reasons.append(f"{percent_words(cpu_rel)} more CPU time that saves no bytes (limit {limit})")
    return reasons
