"""What Spark learned is proposed as a configuration where it differs enough from what agents have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.refinement.checking import WORSE, drafts_check
from apps.refinement.choices import ConfigOrigin, ConfigState, RolloutState
from apps.refinement.differing import Difference, difference, watermarks_difference
from apps.refinement.documents import document_of_learned, figures_of, learned_in
from apps.refinement.giving import assignments_adapting, assignments_refined
from apps.refinement.making import PartDraft, config_make, policy_locked
from apps.refinement.models import Learned, RefinedConfig, RefinedPart, Rollout
from apps.refinement.predicting import Known, known_of
from apps.refinement.rolling import rollout_back, rollout_start
from apps.refinement.watermarks import watermarks_for, watermarks_in
from apps.telemetry.models import Assignment

__all__ = ["proposal_make"]


@transaction.atomic
def proposal_make(*, cluster: Cluster, now: datetime | None = None) -> RefinedConfig | None:
    """Propose what was learned where it differs enough, at most once in `propose_every_s`; None where nothing does.

    Of a query that differs at one agent, all agents of which enough is known get their figures. A proposal replaces
    one of Spark's that nobody has yet.
    """
    now = now or timezone.now()
    policy = policy_locked(cluster)
    made = RefinedConfig.objects.filter(cluster=cluster, origin=ConfigOrigin.SPARK).first()
    if made is not None and now - made.created_at < timedelta(seconds=policy.propose_every_s):
        return None
    found = list(_differences(cluster))
    queries = {one.assignment.live_id for one in found if one.told}
    drafts = [one.draft() for one in found if one.assignment.live_id in queries]
    if not drafts:
        return None
    words = _words([one.told for one in found if one.told], len({draft.agent.pk for draft in drafts if draft.agent}))
    config = config_make(
        cluster=cluster, origin=ConfigOrigin.SPARK, drafts=drafts, now=now, words=words,
        checked=drafts_check(cluster, drafts, policy, now),
    )  # fmt: skip
    _replace_older(config, now)
    if config.checked["health"] == WORSE:
        config.state = ConfigState.REFUSED
        config.save(update_fields=["state", "updated_at"])
    elif policy.automatic:
        rollout_start(config=config, now=now)
    return config


@dataclass(frozen=True)
class _Found:
    """What is known of a part, and how it differs from what was last proposed."""

    assignment: Assignment
    had: RefinedPart | None  #: what the agent is to have now
    figures: Mapping[str, Any]  #: all that it would be given
    told: Difference | None

    def draft(self) -> PartDraft:
        """The figures, with the settings that are in force."""
        one = self.assignment
        return PartDraft(one.live, one.agent, self.had.document["settings"] if self.had else one.settings, self.figures)


def _differences(cluster: Cluster) -> Iterable[_Found]:
    """Parts of which something is known."""
    rows, watermarks = learned_in(cluster), watermarks_in(cluster)
    assignments = assignments_adapting(cluster)
    parts = _parts_of(assignments)
    for one in assignments:
        had, operators, sweeps = parts[one.pk]
        learned = rows.get((one.live_id, one.agent_id))
        known = known_of(learned.document, one.live) if learned else None
        expected = watermarks_for(watermarks, one.live, one.agent_id)
        told = _operators_differ(one, learned, known, operators) if learned and known else None
        told = told or watermarks_difference(expected.get("watermarks", ()), sweeps.document if sweeps else None)
        if known is not None or told is not None:
            kept = figures_of(had.document) if had else {}
            yield _Found(one, had, {**kept, **(document_of_learned(learned) if known else {}), **expected}, told)


def _operators_differ(one: Assignment, learned: Learned, known: Known, before: RefinedPart | None) -> Difference | None:
    return difference(
        known,
        known_of(before.document, one.live) if before else None,
        running=one.load_factors,
        budget_s=learned.document.get("budget_s") or 0.0,
        n_records=learned.document.get("input_records") or 0.0,
    )


def _parts_of(assignments: Iterable[Assignment]) -> dict[int, list[RefinedPart | None]]:
    """By assignment's key the part that the agent is to have now, and those with the operators' figures and with the
    watermarks that were proposed last."""
    rows = assignments_refined(Assignment.objects.filter(pk__in=[one.pk for one in assignments]))
    rows = rows.annotate(**{name: _proposed(name) for name in ("operators", "watermarks")})
    found = {pk: ids for pk, *ids in rows.values_list("pk", "part_id", "operators", "watermarks")}
    parts = RefinedPart.objects.in_bulk({pk for ids in found.values() for pk in ids if pk is not None})
    return {pk: [parts.get(one) for one in ids] for pk, ids in found.items()}


def _proposed(what: str) -> Subquery:
    """Key of the newest part with such figures that was made, whatever became of it: what was rolled back is not tried
    again."""
    rows = RefinedPart.objects.filter(live=OuterRef("live"), agent=OuterRef("agent"), plan=OuterRef("live__plan"))
    rows = rows.exclude(config__origin=ConfigOrigin.ROLLBACK).filter(document__has_key=what)
    return Subquery(rows.exclude(**{f"document__{what}": []}).order_by("-config__number").values("pk")[:1])


def _words(told: Sequence[Difference], agents: int) -> str:
    largest = max(told, key=lambda one: one.size)
    where = f"{agents} agent{'s' if agents != 1 else ''}"
    return f"Figures learned at {where}: {largest.words}"[:200]


def _replace_older(config: RefinedConfig, now: datetime) -> None:
    older = RefinedConfig.objects.filter(
        cluster=config.cluster, origin=ConfigOrigin.SPARK, number__lt=config.number,
        state__in=(ConfigState.DRAFT, ConfigState.REFUSED),
    )  # fmt: skip
    for rollout in Rollout.objects.filter(config__in=older, state=RolloutState.WAITING).select_related("config"):
        rollout_back(rollout=rollout, reason=f"{config.name} replaces it", now=now)
    older.update(state=ConfigState.STOPPED)
