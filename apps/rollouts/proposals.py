"""Proposals: learned figures of Spark become a configuration where they differ enough from what agents have."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from django.db import transaction
from django.db.models import OuterRef, Subquery

from agent.wire import REFINEMENTS, WATERMARKS, Frame, FrameKind
from apps.core.clock import shared_now
from apps.fleet.models import Cluster
from apps.rollouts.learned_figures import (
    learned_operators_store,
    learned_watermarks_store,
    watermarks_for,
    watermarks_in,
)
from apps.rollouts.models import ConfigOrigin, ConfigState, Learned, RefinedConfig, RefinedPart, Rollout, RolloutState
from apps.rollouts.predictions import WORSE, KnownOperators, drafts_check, known_operators
from apps.rollouts.rollout_services import rollout_roll_back, rollout_start
from apps.rollouts.versions import (
    PartDraft,
    assignments_refined,
    config_store,
    learned_in,
    policy_locked,
)
from apps.telemetry.configs import live_served
from apps.telemetry.frames import frame_rows, receiver
from apps.telemetry.models import Assignment, LiveQuery
from apps.telemetry.selectors import assignments_adapting
from engine.jarvis.refined_config import LearnedFigures
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import WatermarkPrior
from engine.words import counted, percent_words

__all__ = ["learned_receive", "operators_difference", "proposal_create", "watermarks_receive"]

MIN_GAIN = 0.05  # of the bytes of an epoch
MIN_CHANGE = 0.20  # of a figure
MIN_CPU = 0.01  # of the budget, by which a cost has to change: small costs vary from hour to hour
MIN_RECORDS = 1000  # behind every figure
MIN_DELAY_S = 0.01  # watermarks are seen once in a tenth of an epoch
_Z = 1.645  # standard errors within chance


@dataclass(frozen=True)
class Difference:
    """Difference to the figures in force, and its size: a share of the bytes, or the relative change of a figure."""

    words: str
    size: float


def operators_difference(
    learned: KnownOperators,
    before: KnownOperators | None,
    *,
    running: Sequence[float],
    budget_s: float,
    n_records: float,
) -> Difference | None:
    """The difference that makes `learned` figures worth a configuration, or None.

    Parameters
    ----------
    before
        What the agent, or an earlier proposal, holds; None where it holds none.
    running
        The load factors that it runs with; they stand for what it knows where `before` is None.
    budget_s, n_records
        CPU seconds and records of an epoch, of late.
    """
    if any(operator.records < MIN_RECORDS for operator in learned.operators):
        return None
    gain = _gain(learned, before, running, budget_s, n_records)
    changed = _changed(learned, before, budget_s, n_records)
    if gain is not None and gain > MIN_GAIN:
        return Difference(f"{percent_words(gain)} fewer bytes predicted", gain)
    if changed is not None and changed.size > MIN_CHANGE:
        return changed
    return Difference("first figures of its operators", 0.0) if before is None else None


def watermarks_difference(learned: LearnedFigures, before: LearnedFigures | None) -> Difference | None:
    """The difference that makes learned watermarks worth a configuration, against those of `before`; or None.

    A period that is another one, a mean that moved by more than a deviation, a variance twice or half of what it was,
    or that they are known now where they were not.
    """
    had = {watermark.stream: watermark for watermark in (before and before.watermarks) or ()}
    differences = (_delay_differs(watermark, had.get(watermark.stream)) for watermark in learned.watermarks or ())
    return next((watermark for watermark in differences if watermark is not None), None)


def _delay_differs(new: WatermarkPrior, old: WatermarkPrior | None) -> Difference | None:
    if old is not None and not math.isclose(new.period_s, old.period_s, rel_tol=1e-6):
        return Difference(f"period of {new.stream} {old.period_s:.4g} → {new.period_s:.4g} s", 0.0)
    if new.mean_s is None:
        return None
    deviation_s = math.sqrt(new.variance_s2 or 0.0)
    text = f"{new.mean_s:.2g} ± {deviation_s:.2g} s"
    if old is None or old.mean_s is None:
        return Difference(f"watermarks of {new.stream} come after {text}", 0.0)
    had_s = math.sqrt(old.variance_s2 or 0.0)
    moved = abs(new.mean_s - old.mean_s) > max(had_s, MIN_DELAY_S)
    low, high = sorted((max(deviation_s, MIN_DELAY_S), max(had_s, MIN_DELAY_S)))
    if moved or high**2 > 2 * low**2:
        return Difference(f"watermarks of {new.stream} {old.mean_s:.2g} ± {had_s:.2g} → {text}", 0.0)
    return None


def _changed(
    learned: KnownOperators, before: KnownOperators | None, budget_s: float, n_records: float
) -> Difference | None:
    """The figure that certainly changed most; costs count if they matter to the budget."""
    if before is None:
        return None
    differences, records = [], n_records
    for new, old in zip(learned.operators, before.operators, strict=True):
        for name, label, scale, unit in (("cost_s", "cost", 1e6, " µs"), ("relay", "relay ratio", 1, "")):
            after, was = getattr(new, name), getattr(old, name)
            chance = _Z * math.hypot(new.standard_error or 0.0, old.standard_error or 0.0) if name == "cost_s" else 0.0
            felt = name != "cost_s" or abs(after - was) * records > MIN_CPU * budget_s
            if max(after, was) > 0 and felt:
                words = f"{label} of {new.id} {was * scale:.3g} → {after * scale:.3g}{unit}"
                differences.append(Difference(words, abs(after - was) / (was or after) - chance))
        records *= new.relay
    return max(differences, key=lambda difference: difference.size, default=None)


def _gain(
    learned: KnownOperators, before: KnownOperators | None, running: Sequence[float], budget_s: float, n_records: float
) -> float | None:
    """Share of an epoch's bytes that a plan by the new figures saves against one by the old."""
    operators = len(learned.operators)
    if n_records <= 0 or budget_s <= 0 or (before is None and len(running) != operators):
        return None
    settings, chain = AdaptationSettings(), learned.at(n_records)
    factors = before.at(n_records).settled(settings, budget_s, n_records) if before else running
    now, best = (chain.epoch(p, budget_s, n_records) for p in (factors, chain.settled(settings, budget_s, n_records)))
    return 1.0 - best.bytes_sent / now.bytes_sent if now.bytes_sent > 0 else None


@transaction.atomic
def proposal_create(*, cluster: Cluster, now: datetime | None = None) -> RefinedConfig | None:
    """Propose learned figures that differ enough, at most once in `propose_every_s`; None if none do.

    If a query differs at one agent, all agents with enough evidence get their figures. A proposal replaces an earlier
    one of Spark's that no agent has yet.
    """
    now = now or shared_now()
    policy = policy_locked(cluster)
    newest = RefinedConfig.objects.filter(cluster=cluster, origin=ConfigOrigin.SPARK).first()
    if newest is not None and now - newest.created_at < timedelta(seconds=policy.propose_every_s):
        return None
    proposals = list(_differences(cluster))
    queries = {proposal.assignment.live_id for proposal in proposals if proposal.told}
    drafts = [proposal.draft() for proposal in proposals if proposal.assignment.live_id in queries]
    if not drafts:
        return None
    words = _words(
        [proposal.told for proposal in proposals if proposal.told],
        len({draft.agent.pk for draft in drafts if draft.agent}),
    )
    checked = drafts_check(cluster, drafts, policy, now)
    config = config_store(
        cluster=cluster, origin=ConfigOrigin.SPARK, drafts=drafts, now=now, words=words, checked=checked.to_dict()
    )
    _replace_older(config, now)
    if checked.health == WORSE:
        config.state = ConfigState.REFUSED
        config.save(update_fields=["state", "updated_at"])
    elif policy.automatic:
        rollout_start(config=config, now=now)
    return config


@dataclass(frozen=True)
class _PartProposal:
    """Learned figures of an assignment, and their difference to the last proposal."""

    assignment: Assignment
    had: RefinedPart | None  #: in force at the agent
    figures: LearnedFigures  #: it would get
    told: Difference | None

    def draft(self) -> PartDraft:
        """The part with these figures, and the settings in force."""
        assignment = self.assignment
        return PartDraft(
            assignment.live,
            assignment.agent,
            self.had.document["settings"] if self.had else assignment.settings,
            self.figures,
        )


def _differences(cluster: Cluster) -> Iterable[_PartProposal]:
    """Assignments with learned figures."""
    rows, watermarks = learned_in(cluster), watermarks_in(cluster)
    assignments = assignments_adapting(cluster)
    parts = _parts_of(assignments)
    for assignment in assignments:
        had, operators, sweeps = parts[assignment.pk]
        learned = rows.get((assignment.live_id, assignment.agent_id))
        figures = known_operators(learned.figures, assignment.live) if learned else None
        expected = watermarks_for(watermarks, assignment.live, assignment.agent_id)
        difference = _operators_differ(assignment, learned, figures, operators) if learned and figures else None
        difference = difference or watermarks_difference(expected, sweeps.figures if sweeps else None)
        if figures is not None or difference is not None:
            kept = had.figures if had else LearnedFigures()
            kept = kept.with_operators(learned.figures) if learned and figures else kept
            yield _PartProposal(assignment, had, kept.with_watermarks(expected), difference)


def _operators_differ(
    assignment: Assignment, learned: Learned, figures: KnownOperators, before: RefinedPart | None
) -> Difference | None:
    return operators_difference(
        figures,
        known_operators(before.figures, assignment.live) if before else None,
        running=assignment.load_factors,
        budget_s=learned.figures.budget_s or 0.0,
        n_records=learned.figures.input_records or 0.0,
    )


def _parts_of(assignments: Iterable[Assignment]) -> dict[int, list[RefinedPart | None]]:
    """By assignment's key the part in force, and the parts with the last proposed operator figures and watermarks."""
    rows = assignments_refined(Assignment.objects.filter(pk__in=[assignment.pk for assignment in assignments]))
    rows = rows.annotate(**{name: _proposed(name) for name in ("operators", "watermarks")})
    ids_by_assignment = {pk: ids for pk, *ids in rows.values_list("pk", "part_id", "operators", "watermarks")}
    parts = RefinedPart.objects.in_bulk({pk for ids in ids_by_assignment.values() for pk in ids if pk is not None})
    return {pk: [parts.get(pk_) for pk_ in ids] for pk, ids in ids_by_assignment.items()}


def _proposed(what: str) -> Subquery:
    """Key of the newest part with such figures, in any state: rolled back figures are not proposed again."""
    rows = RefinedPart.objects.filter(live=OuterRef("live"), agent=OuterRef("agent"), plan=OuterRef("live__plan"))
    rows = rows.exclude(config__origin=ConfigOrigin.ROLLBACK).filter(document__has_key=what)
    return Subquery(rows.exclude(**{f"document__{what}": []}).order_by("-config__number").values("pk")[:1])


def _words(differences: Sequence[Difference], agents: int) -> str:
    largest = max(differences, key=lambda difference: difference.size)
    return f"Figures learned at {counted(agents, 'agent')}: {largest.words}"[:200]


def _replace_older(config: RefinedConfig, now: datetime) -> None:
    older = RefinedConfig.objects.filter(
        cluster=config.cluster, origin=ConfigOrigin.SPARK, number__lt=config.number,
        state__in=(ConfigState.DRAFT, ConfigState.REFUSED),
    )  # fmt: skip
    for rollout in Rollout.objects.filter(config__in=older, state=RolloutState.WAITING).select_related("config"):
        rollout_roll_back(rollout=rollout, reason=f"{config.name} replaces it", now=now)
    older.update(state=ConfigState.STOPPED)


Note = Callable[[LiveQuery, Sequence[Any], datetime], int]


@receiver(FrameKind.REFINED)
def _refined(frames: Sequence[Frame]) -> None:
    learned_receive(frames)


@receiver(FrameKind.WATERMARKS)
def _watermarks(frames: Sequence[Frame]) -> None:
    watermarks_receive(frames)


def learned_receive(frames: Iterable[Frame], now: datetime | None = None) -> int:
    """Store learned figures of operators from frames, and propose new ones; returns how many agents' figures were
    newer.

    Raises
    ------
    Malformed
        A body that is no Arrow stream or has another schema.
    """
    return _receive(frames, REFINEMENTS, "refinements", learned_operators_store, now)


def watermarks_receive(frames: Iterable[Frame], now: datetime | None = None) -> int:
    """The same for sweeping watermarks."""
    return _receive(frames, WATERMARKS, "watermarks", learned_watermarks_store, now)


@transaction.atomic
def _receive(frames: Iterable[Frame], schema: pa.Schema, what: str, note: Note, now: datetime | None) -> int:
    now = now or shared_now()
    lives = {live.key: live for live in live_served().select_related("query__cluster")}
    newer = 0
    clusters: dict[int, Cluster] = {}
    for frame in frames:
        rows = frame_rows(frame, schema, what)
        live = lives.get(frame.query)
        if live is None or live.plan != frame.plan:
            continue
        clusters[live.query.cluster_id] = live.query.cluster
        newer += note(live, rows, now)
    if newer:
        for _, cluster in sorted(clusters.items()):  # in a fixed order, since each is locked
            proposal_create(cluster=cluster, now=now)
    return newer
