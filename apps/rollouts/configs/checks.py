"""Check of a configuration before its rollout: a prediction on recorded epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.rollouts.configs.parts import part_of
from apps.rollouts.configs.versions import PartDraft, ScheduleDraft
from apps.rollouts.documents import document_of_learned, learned_in
from apps.rollouts.models import RolloutPolicy
from apps.rollouts.predictions import PredictedSums, known_operators, predict
from apps.telemetry.ingest.epochs import recorded_epochs
from apps.telemetry.models import Assignment
from apps.telemetry.selectors import assignments_adapting
from engine.jarvis.settings import AdaptationSettings
from engine.rollouts.epochs import EpochRow
from engine.words import percent_words

__all__ = ["GOOD", "UNKNOWN", "WORSE", "drafts_check"]

GOOD, WORSE, UNKNOWN = "good", "worse", "unknown"
_RECORDED_S = 300.0
_MAX_PARTS = 200  # are predicted, the first by query and agent
_MAX_EPOCHS = 40  # of a query at an agent are replayed and scaled up
_SAVES = 0.02  # relative fall of bytes that justifies more CPU time


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
) -> dict[str, Any]:
    """Predict a configuration against the one in force: {"health", "reasons", "queries", "agents", "epochs", "at"}.

    `health` is unknown where nothing was learned of the operators yet, or nothing is recorded: the canaries decide.
    Schedules are judged at the canaries alone; a replay of recorded arrivals is a job of its own
    (`apps.rollouts.schedule.replays`).
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
        epochs = epochs[:: -(-len(epochs) // _MAX_EPOCHS) or 1]
        row = learned.get((part.live_id, part.agent_id))
        figures = draft.learned if draft.learned and draft.learned.get("operators") else None
        document = figures or (document_of_learned(row) if row else None)
        if both := _predicted(part, draft, document, epochs):
            sums = queries.setdefault(part.live.query.name, _BeforeAndAfter(PredictedSums(), PredictedSums()))
            sums.now.add(both.now)
            sums.then.add(both.then)
            sums.agents += 1
    check = _check_document(queries, policy, now, len(parts))
    if schedules and not drafts:
        check["reasons"] = ["schedules are judged at their canaries; a replay predicts them"]
    return check


def _predicted(
    part: Assignment, draft: PartDraft, document: Mapping[str, Any] | None, epochs: Sequence[EpochRow]
) -> _BeforeAndAfter | None:
    """Both predictions on the same epochs, by the operators in the document."""
    operators = known_operators(document, part.live)
    if operators is None or not any(epoch.records_in for epoch in epochs):
        return None
    before = part_of(part)
    settings = AdaptationSettings.parse(before.document["settings"] if before else part.settings)
    planned = known_operators(before.document, part.live) if before else None
    now = predict(operators, settings, epochs, planned=planned)
    return _BeforeAndAfter(now, predict(operators, AdaptationSettings.parse(dict(draft.settings)), epochs))


def _check_document(
    queries: Mapping[str, _BeforeAndAfter], policy: RolloutPolicy, now: datetime, parts: int
) -> dict[str, Any]:
    reasons: list[str] = []
    shown = {}
    for query, both in queries.items():
        figures = _figures(both)
        shown[query] = {**figures, "agents": both.agents, "epochs": both.then.epochs}
        reasons += [f"{query}: {reason}" for reason in _reasons(figures, policy)]
    predicted_parts = sum(both.agents for both in queries.values())
    health = WORSE if reasons else GOOD if queries else UNKNOWN
    if not queries:
        reasons = ["no prediction: nothing was learned of these operators yet, or no epochs are recorded"]
    epochs = sum(both.then.epochs for both in queries.values())
    return {
        "health": health,
        "reasons": reasons,
        "queries": shown,
        "parts": parts,
        "predicted_parts": predicted_parts,
        "epochs": epochs,
        "at": now.isoformat(),
    }


def _figures(both: _BeforeAndAfter) -> dict[str, float | None]:
    """Changes of bytes and CPU time (relative) and of overflow (percentage points), and the sums behind them."""
    now, then = both.now, both.then
    return {
        "bytes_before": now.bytes_sent / now.records,
        "bytes_after": then.bytes_sent / then.records,
        "bytes_rel": then.bytes_sent / now.bytes_sent - 1 if now.bytes_sent else None,
        "cpu_before_s": now.cpu_s / now.records,
        "cpu_after_s": then.cpu_s / then.records,
        "cpu_rel": then.cpu_s / now.cpu_s - 1 if now.cpu_s else None,
        "overflow_pp": 100 * (then.overflow / then.records - now.overflow / now.records),
    }


def _reasons(figures: Mapping[str, float | None], policy: RolloutPolicy) -> list[str]:
    """Measures that are predicted beyond their limits."""
    bytes_rel, cpu_rel, overflow_pp = figures["bytes_rel"] or 0.0, figures["cpu_rel"] or 0.0, figures["overflow_pp"]
    reasons = []
    if overflow_pp is not None and overflow_pp > policy.overflow_pp:
        reasons.append(f"{overflow_pp:.3g} points more records would overflow (limit {policy.overflow_pp:g})")
    if bytes_rel > policy.bytes_rel:
        reasons.append(f"{percent_words(bytes_rel)} more bytes per record (limit {percent_words(policy.bytes_rel)})")
    if cpu_rel > policy.cpu_rel and bytes_rel > -_SAVES:
        limit = percent_words(policy.cpu_rel)
        reasons.append(f"{percent_words(cpu_rel)} more CPU time that saves no bytes (limit {limit})")
    return reasons
