"""What Spark learned is noted, and proposed as a configuration where it differs enough from what agents have."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from agent.wire import REFINEMENTS, Frame, FrameKind, WireError, table_of
from apps.core.errors import Malformed
from apps.fleet.models import Cluster
from apps.refinement.checking import WORSE, drafts_check
from apps.refinement.choices import ConfigOrigin, ConfigState, RolloutState
from apps.refinement.differing import Difference, difference
from apps.refinement.documents import document_make, document_of_learned, learned_in, source_operators
from apps.refinement.giving import assignments_adapting, part_of
from apps.refinement.making import PartDraft, config_make, policy_locked
from apps.refinement.models import Learned, RefinedConfig, RefinedPart, Rollout
from apps.refinement.predicting import known_of
from apps.refinement.rolling import rollout_back, rollout_start
from apps.telemetry.configs import EPOCH_S, live_served
from apps.telemetry.models import Agent, Assignment, LiveQuery
from apps.telemetry.receiving import receiver
from engine.errors import DocumentError
from engine.jarvis.refined import Refined

__all__ = ["learned_receive", "proposal_make"]

_log = logging.getLogger(__name__)
_MOST_AHEAD = timedelta(hours=1)


@receiver(FrameKind.REFINED)
def _receive(frames: Sequence[Frame]) -> None:
    learned_receive(frames)


@transaction.atomic
def learned_receive(frames: Iterable[Frame], now: datetime | None = None) -> int:
    """Note what frames say of plans that run, and propose what is new; returns how many agents' figures were newer.

    Raises
    ------
    Malformed
        A body that is no Arrow stream or has another schema.
    """
    now = now or timezone.now()
    lives = {live.key: live for live in live_served().select_related("query__cluster")}
    newer = 0
    clusters: dict[int, Cluster] = {}
    for frame in frames:
        rows = _rows(frame)
        live = lives.get(frame.query)
        if live is None or live.plan != frame.plan:
            continue
        clusters[live.query.cluster_id] = live.query.cluster
        newer += _note(live, rows, now)
    if newer:
        for _, cluster in sorted(clusters.items()):  # in one order, since each is locked
            proposal_make(cluster=cluster, now=now)
    return newer


def _rows(frame: Frame) -> list[dict[str, Any]]:
    try:
        table = table_of(frame.body)
    except WireError as error:
        raise Malformed(f"The refinements cannot be read: {error}.", [("body", str(error))]) from None
    if not table.schema.equals(REFINEMENTS):
        message = f"columns are {', '.join(table.column_names)[:300]}; allowed: {', '.join(REFINEMENTS.names)}"
        raise Malformed("The refinements have another schema.", [("body", message)])
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _note(live: LiveQuery, rows: Sequence[Mapping[str, Any]], now: datetime) -> int:
    """Keep what is known of all operators of an agent; what is older than what is known is left out."""
    by_agent: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_agent[row["agent"]].append(row)
    agents = {str(pk) for pk in Agent.objects.filter(cluster=live.query.cluster).values_list("pk", flat=True)}
    known = {str(one.agent_id): one for one in Learned.objects.filter(live=live)}
    wanted = [row["id"] for row in source_operators(live)]
    newest = round((now + _MOST_AHEAD).timestamp() * 1e6)
    noted = 0
    for agent, listed in by_agent.items():
        listed = sorted(listed, key=lambda row: row["entry"])
        measured_us = max(row["measured_us"] or 0 for row in listed)
        document = _document(listed) if [row["operator"] for row in listed] == wanted else None
        if agent not in agents or document is None or measured_us > newest or not _is_sound(live, document, now):
            continue
        before = known.get(agent)
        if before is not None and before.plan == live.plan and before.measured_us > measured_us:
            continue
        fields = {"plan": live.plan, "measured_us": measured_us, "document": document, "at": now}
        Learned.objects.update_or_create(live=live, agent_id=agent, defaults=fields)
        noted += 1
    return noted


def _is_sound(live: LiveQuery, document: Mapping[str, Any], now: datetime) -> bool:
    """Whether agents could read it: numbers are finite and in their ranges, the plan is one."""
    config = RefinedConfig(number=1, cluster=live.query.cluster)
    made = document_make(config=config, live=live, agent=None, settings={}, learned=document, now=now)
    try:
        Refined.parse(made)
    except DocumentError as error:
        _log.warning("what was learned of %s is left out: %s", live.key, error.message)
        return False
    return True


def _document(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """As refined documents hold it; None where a figure is missing."""
    needed = ("cost_s", "relay", "bytes_in", "bytes_out", "records")
    if any(row[name] is None for row in rows for name in needed):
        return None
    first = rows[0]
    fields = ("cost_s", "group_cost_s", "relay", "records", "standard_error")
    operators = [
        {"id": row["operator"], **{name: row[name] for name in fields}, "groups": row["groups"] or None} for row in rows
    ]
    return {
        "record_bytes": [first["bytes_in"], *(row["bytes_out"] for row in rows)],
        "operators": operators,
        "fitted": _fitted(first),
        "plan_prior": _plan(rows),
        "input_records": first["input_records"],
        "budget_s": first["budget_s"],
    }


def _fitted(row: Mapping[str, Any]) -> dict[str, Any] | None:
    records = [row["records_least"], row["records_most"]]
    cores = [row["budget_least_s"], row["budget_most_s"]]
    if None in records or None in cores:
        return None
    return {"records": records, "cores": [seconds / EPOCH_S for seconds in cores]}


def _plan(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    first = rows[0]
    factors = [row["load_factor"] for row in rows]
    if None in factors or first["lo"] is None or first["hi"] is None or first["theta"] is None:
        return None
    return {"lo": first["lo"], "hi": first["hi"], "theta": first["theta"], "load_factors": factors}


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
    queries = {one.live_id for one, _, told in found if told}
    drafts = [_draft(one, learned) for one, learned, _ in found if one.live_id in queries]
    if not drafts:
        return None
    words = _words([told for _, _, told in found if told], len({draft.agent.pk for draft in drafts if draft.agent}))
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


def _differences(cluster: Cluster) -> Iterable[tuple[Assignment, Learned, Difference | None]]:
    """Parts of which enough is known, with how they differ from what was last proposed or given."""
    rows = learned_in(cluster)
    for one in assignments_adapting(cluster):
        learned = rows.get((one.live_id, one.agent_id))
        known = known_of(learned.document, one.live) if learned else None
        if learned is None or known is None:
            continue
        before = _known(one)
        told = difference(
            known,
            known_of(before.document, one.live) if before else None,
            running=one.load_factors,
            budget_s=learned.document.get("budget_s") or 0.0,
            n_records=learned.document.get("input_records") or 0.0,
        )
        yield one, learned, told


def _known(one: Assignment) -> RefinedPart | None:
    """The newest figures that anything was made of, whatever became of it: what was rolled back is not tried again."""
    rows = RefinedPart.objects.filter(live=one.live, agent=one.agent, plan=one.live.plan)
    rows = rows.exclude(config__origin=ConfigOrigin.ROLLBACK).exclude(document__operators=[])
    return rows.order_by("-config__number").first()


def _draft(one: Assignment, learned: Learned) -> PartDraft:
    """What was learned, with the settings that are in force."""
    before = part_of(one)
    settings = before.document["settings"] if before else one.settings
    return PartDraft(one.live, one.agent, settings, document_of_learned(learned))


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
