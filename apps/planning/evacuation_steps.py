"""Evacuations carried out: confirmed, begun at their time, step by step, and stopped and taken back."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Impossible, SluiceError
from apps.fleet.choices import ABSENT, NodeState
from apps.fleet.services import cluster_locked, node_activate, node_drain
from apps.jobs.services import job_cancel
from apps.planning.choices import (
    APPLYING_STATES,
    OPEN_EVACUATION_STATES,
    UNDOABLE_STATES,
    EvacuationOrder,
    EvacuationStepState,
    MoveState,
    RunState,
)
from apps.planning.evacuation_guards import stop_reason
from apps.planning.evacuations import EVACUATION, queries_moving, run_by_engine, stored_plan
from apps.planning.models import Evacuation, EvacuationStep, PlacementRun
from apps.planning.placement_moves import act_recorded, placement_abort, placement_apply, placement_return
from apps.planning.placement_search import PLACEMENT, stored_proposal
from apps.queries.models import Placement
from apps.queries.snapshots.elements import operator_id
from engine.words import counted, duration_words, listed

__all__ = [
    "evacuation_advance",
    "evacuation_confirm",
    "evacuation_finish",
    "evacuation_obstacle",
    "evacuation_stop",
    "evacuations_advance",
]

_log = logging.getLogger(__name__)
_TRIES = 5  # searches of a step that move nothing: each meets the cluster as it is then
_SEARCH_S = 2.0
_NAMED = 6


@transaction.atomic
def evacuation_confirm(*, run: Evacuation, user: User | None, accept_late: bool = False) -> Evacuation:
    """Confirm a plan: it is carried out from its beginning on.

    Parameters
    ----------
    accept_late : bool
        Whether the queries that the plan breaks or makes late for a time may be so.

    Raises
    ------
    Conflict
        It is no plan that waits for this; the time is too short; another evacuation overlaps; queries would be late.
    Impossible
        A node cannot be emptied, or a connected engine runs what has to move.
    """
    run = _locked(run)
    cluster_locked(run.cluster).get()  # of two that are confirmed at once, the second sees the first
    plan = stored_plan(run)
    if run.state != RunState.PROPOSED or plan is None:
        raise Conflict(f"The evacuation is {_words(run)}; only a plan can be confirmed.", code="wrong_state")
    if obstacle := evacuation_obstacle(run):
        raise obstacle
    late = list(dict.fromkeys([*run.facts["breaks"], *run.facts.get("risks", ()), *run.facts["late"]]))
    if late and not accept_late:
        raise Conflict(
            f"{listed(late, _NAMED)} would be late, or that is not known; say that they may.",
            [("accept_late", f"{query} is late, or that is not known") for query in late],
        )
    act_recorded(run, RunState.SCHEDULED)
    run.state, run.confirmed_by, run.confirmed_at = RunState.SCHEDULED, user, shared_now()
    run.save(update_fields=["state", "confirmed_by", "confirmed_at", "updated_at"])
    EVACUATION.announce(run)
    return run


def evacuation_obstacle(run: Evacuation) -> SluiceError | None:
    """Why a plan cannot be confirmed, whatever is accepted with it; None if it can, and of what is no such plan."""
    plan = stored_plan(run)
    if run.state != RunState.PROPOSED or plan is None:
        return None
    refused = [step for step in plan.steps if step.refusal is not None]
    if refused:
        faults = [
            (fault["path"], fault["message"]) for step in refused if step.refusal for fault in step.refusal.faults
        ]
        return Impossible(f"{listed(refused[0].nodes, _NAMED)} cannot be emptied: {faults[0][1]}.", faults)
    foreign = run_by_engine(run.cluster, queries_moving(plan))
    if foreign:
        message = _foreign_words(foreign)
        return Impossible(f"{message}: follow the commands of the plan instead.", [("", message)])
    if reason := stop_reason(run, shared_now()):
        return Conflict(f"{reason} Plan it anew.", [("nodes", reason)])
    late = _time_fault(run)
    if late and run.ends_at is not None:
        return Conflict(f"{late} Plan it anew.", [("ends_at", f"{run.ends_at.isoformat()} is too early")])
    other = _overlapping(run)
    if other is not None:
        return Conflict(
            f"The evacuation of {listed(other.nodes, _NAMED)} is {_words(other)} at that time.",
            code="busy",
            data={"evacuation": str(other.pk)},
        )
    return None


@transaction.atomic
def evacuation_stop(*, run: Evacuation, message: str = "A person stopped it.") -> Evacuation:
    """Stop an evacuation: what it moved is taken back, and its nodes take operators again."""
    run = _locked(run)
    if run.state not in {RunState.SCHEDULED, RunState.RUNNING}:
        raise Conflict(f"The evacuation is {_words(run)}; only one under way is stopped.", code="wrong_state")
    act_recorded(run, RunState.STOPPING)
    return _stop(run, message)


@transaction.atomic
def evacuation_finish(*, run: Evacuation) -> Evacuation:
    """End the time that the nodes are away now: they are back, and their operators return where that was asked."""
    run = _locked(run)
    if run.state != RunState.RUNNING or not run.steps.filter(state=EvacuationStepState.AWAY).exists():
        raise Conflict("No node of the evacuation is away; there is nothing to end.", code="wrong_state")
    act_recorded(run, RunState.DONE)
    for step in run.steps.filter(state=EvacuationStepState.AWAY):
        _bring_back(run, step, run.back, shared_now())
    EVACUATION.announce(run)
    return run


def evacuations_advance(now: datetime | None = None) -> int:
    """Advance every evacuation under way; returns how many took a step. A failing one does not hold up others."""
    count = 0
    waiting = Q(state=RunState.SCHEDULED, starts_at__gt=now or shared_now())
    for run in Evacuation.objects.filter(state__in=OPEN_EVACUATION_STATES).exclude(waiting):
        try:
            count += evacuation_advance(run=run, now=now)
        except Exception:
            _log.exception("evacuation %s cannot be advanced", run.pk)
    return count


@transaction.atomic
def evacuation_advance(*, run: Evacuation, now: datetime | None = None) -> bool:
    """Advance an evacuation by what is known now; returns whether it took a step."""
    now, run = now or shared_now(), _locked(run)
    before = (run.state, *run.steps.values_list("state", "placement", "tries"))
    if run.state == RunState.SCHEDULED and (run.starts_at is None or now >= run.starts_at):
        _begin(run, now)
    elif run.state == RunState.RUNNING:
        reason = stop_reason(run, now)
        _stop(run, reason) if reason else _carry_out(run, now)
    elif run.state == RunState.STOPPING:
        _take_back(run, now)
    changed = before != (run.state, *run.steps.values_list("state", "placement", "tries"))
    if changed:
        EVACUATION.announce(run)
    return changed


def _begin(run: Evacuation, now: datetime) -> None:
    """Begin, unless a guard trips, or the time is not enough any more, as after an outage."""
    if reason := stop_reason(run, now):
        _end(run, RunState.STOPPED, f"{reason} Nothing was moved.")
        return
    if late := _time_fault(run):
        _end(run, RunState.STOPPED, late)
        return
    run.state, run.begun_at = RunState.RUNNING, now
    run.save(update_fields=["state", "begun_at", "updated_at"])


def _carry_out(run: Evacuation, now: datetime) -> None:
    step = run.steps.exclude(state=EvacuationStepState.BACK).select_related("placement").first()
    if step is None:
        _end(run, RunState.DONE, _notes(run))
    elif step.state == EvacuationStepState.WAITING:
        _drain(run, step, now)
    elif step.state == EvacuationStepState.EMPTYING:
        _empty(run, step, now)
    elif step.state == EvacuationStepState.AWAY:
        due = run.ends_at
        if run.order != EvacuationOrder.TOGETHER:
            due = (step.emptied_at or now) + timedelta(seconds=run.hold_s)
        if due is not None and now >= due:
            _bring_back(run, step, run.back, now)
    elif step.state == EvacuationStepState.RETURNING:
        _return_next(run, step, now)


def _drain(run: Evacuation, step: EvacuationStep, now: datetime) -> None:
    for node in run.cluster.nodes.filter(name__in=step.nodes, state=NodeState.ACTIVE):
        node_drain(node=node)
    step.state, step.begun_at = EvacuationStepState.EMPTYING, now
    step.save(update_fields=["state", "begun_at"])
    _search(run, step, now)


def _search(run: Evacuation, step: EvacuationStep, now: datetime) -> None:
    """Search places for what is on a step's nodes; without anything there they are empty already."""
    placed = Placement.objects.filter(node__cluster=run.cluster, operator__version__running_as__cluster=run.cluster)
    rows = list(placed.values_list("operator__version__query__name", "operator__name", "node__name"))
    leaving = [operator_id(query, name) for query, name, node in rows if node in step.nodes]
    if not leaving:
        _is_away(step, now)
        return
    foreign = run_by_engine(run.cluster, {query for query, _, node in rows if node in step.nodes})
    if foreign:  # come since it was confirmed: what Sluice writes down as moved would stay where it is
        _stop(run, f"{_foreign_words(foreign)}.")
        return
    if step.tries >= _TRIES:
        _stop(run, f"The cluster moved during each of {_TRIES} searches for {listed(step.nodes, _NAMED)}.")
        return
    try:
        step.placement, _ = PLACEMENT.request(
            cluster=run.cluster,
            user=run.confirmed_by,
            budget_s=_SEARCH_S,
            constraints={**run.constraints, "max_moves": len(leaving)},
            fixed=sorted({operator_id(query, name) for query, name, _ in rows} - {*leaving}),
            parent=step.placement,
        )
    except SluiceError as error:
        _stop(run, error.message)
        return
    step.tries += 1
    step.save(update_fields=["placement", "tries"])


def _foreign_words(queries: Sequence[str]) -> str:
    run = "runs" if len(queries) == 1 else "run"
    return f"{listed(queries, _NAMED)} {run} in a connected engine, where Sluice moves nothing"


def _is_away(step: EvacuationStep, now: datetime) -> None:
    step.state, step.emptied_at, step.tries = EvacuationStepState.AWAY, now, 0
    step.save(update_fields=["state", "emptied_at", "tries"])


def _empty(run: Evacuation, step: EvacuationStep, now: datetime) -> None:
    """Follow the search and the moves of a step."""
    placement = step.placement
    if placement is None:
        _stop(run, f"The placement that empties {listed(step.nodes, _NAMED)} was deleted.")
    elif placement.state == RunState.PROPOSED:
        _apply(run, step, placement, now)
    elif placement.state in (RunState.APPLIED, RunState.STALE):
        # What was placed there meanwhile, or was not begun since the cluster moved, is looked for anew: as often as it
        # takes where something was moved, since measurements move the cluster every few seconds.
        if placement.moves.filter(state=MoveState.DONE).exists():
            step.tries = 0
        _search(run, step, now)
    elif placement.state in (RunState.FAILED, RunState.ABORTED):
        said = f": {placement.message}" if placement.message else ""
        _stop(run, f"Emptying {listed(step.nodes, _NAMED)} was {_words(placement)}{said}"[:300])


def _apply(run: Evacuation, step: EvacuationStep, placement: PlacementRun, now: datetime) -> None:
    """Apply what was found, unless it is worse than what was confirmed."""
    proposal, plan = stored_proposal(placement), stored_plan(run)
    if proposal is None or plan is None or not proposal.moves:
        _search(run, step, now)
        return
    turned = {q.query for q in proposal.queries if q.after_state == "breached" and q.before_state != "breached"}
    worse = sorted(turned - {*plan.breaks})
    if worse:
        _stop(run, f"As things stand now, {listed(worse, _NAMED)} would be late, which the plan did not say.")
        return
    try:
        placement_apply(run=placement, user=run.confirmed_by, pace=run.pace, batch_size=run.batch_size)
    except SluiceError as error:
        _log.info("evacuation %s searches again: %s", run.pk, error)
        _search(run, step, now)


def _bring_back(run: Evacuation, step: EvacuationStep, with_operators: bool, now: datetime) -> None:
    """Have the nodes of a step take operators again, and begin to move its own back."""
    for node in run.cluster.nodes.filter(name__in=step.nodes, state=NodeState.DRAINING):
        node_activate(node=node)
    present = run.cluster.nodes.filter(name__in=step.nodes).exclude(state__in=ABSENT)
    there = set(present.values_list("name", flat=True))
    if missing := [name for name in step.nodes if name not in there]:
        _note(step, f"{listed(missing, _NAMED)} did not come back.")
    run.watched = sorted({*run.watched, *there})
    run.save(update_fields=["watched", "updated_at"])
    step.state, step.tries = EvacuationStepState.RETURNING, 0
    step.save(update_fields=["state", "tries"])
    if with_operators:
        _return_next(run, step, now)
    else:
        _is_back(step, now)


def _return_next(run: Evacuation, step: EvacuationStep, now: datetime) -> None:
    """Move back what the newest run of a step moved that stands; the step has ended when there is none."""
    for placement in _runs_of(step):
        if placement.state in APPLYING_STATES:
            return
        if placement.state not in UNDOABLE_STATES or not placement.moves.filter(state=MoveState.DONE).exists():
            continue
        if step.tries >= _TRIES + placement.moves.count():  # a stale one has moved some back, mostly
            left = placement.moves.filter(state=MoveState.DONE).count()
            _note(step, f"{counted(left, 'operator')} did not return: {placement.message}")
            break
        try:
            _, job, elsewhere = placement_return(run=placement, user=run.confirmed_by)
        except Conflict:
            return  # somebody else moves operators; it is tried again
        except SluiceError as error:  # as of a cluster where nothing runs any more: no later try would be another
            _note(step, f"What it moved did not return: {error.message}")
            break
        if elsewhere:
            why = "moved or stopped meanwhile, or the node is not there"
            _note(step, f"{listed(elsewhere, _NAMED)} did not return: {why}.")
        if job is not None:
            step.tries += 1
            step.save(update_fields=["tries"])
            return
    plan = stored_plan(run)
    if step.placement is None and plan is not None and plan.steps[step.number - 1].moves:
        _note(step, f"The record of what left {listed(step.nodes, _NAMED)} was deleted: operators stay where they are.")
    _is_back(step, now)


def _is_back(step: EvacuationStep, now: datetime) -> None:
    step.state, step.ended_at = EvacuationStepState.BACK, now
    step.save(update_fields=["state", "ended_at"])


def _note(step: EvacuationStep, text: str) -> None:
    step.note = f"{step.note} {text}".strip()[:300]
    step.save(update_fields=["note"])


def _runs_of(step: EvacuationStep) -> Iterator[PlacementRun]:
    """Runs that moved what was on a step's nodes, the newest first: a stale one is followed by another."""
    placement = step.placement
    while placement is not None:
        yield placement
        placement = placement.parent


def _stop(run: Evacuation, message: str) -> Evacuation:
    run.state, run.message = RunState.STOPPING, message[:500]
    run.save(update_fields=["state", "message", "updated_at"])
    EVACUATION.announce(run)
    return run


def _take_back(run: Evacuation, now: datetime) -> None:
    """Undo what a step that has begun did, the last first; ended when every one is back."""
    for step in run.steps.exclude(state__in=(EvacuationStepState.BACK, EvacuationStepState.WAITING)).order_by(
        "-number"
    ):
        placement = step.placement
        if placement is not None and placement.state == RunState.SEARCHING and placement.job is not None:
            job_cancel(placement.job)
        if placement is not None and placement.state == RunState.APPLYING:
            placement_abort(run=placement)
        elif step.state == EvacuationStepState.RETURNING:
            _return_next(run, step, now)
        else:
            _bring_back(run, step, True, now)
        if step.state != EvacuationStepState.BACK:
            return
    _end(run, RunState.STOPPED, f"{run.message} {_notes(run)}".strip())


def _end(run: Evacuation, state: RunState, message: str) -> None:
    run.state, run.message, run.finished_at = state, message[:500], shared_now()
    run.save(update_fields=["state", "message", "finished_at", "updated_at"])
    EVACUATION.announce(run)


def _notes(run: Evacuation) -> str:
    return " ".join(note for note in run.steps.values_list("note", flat=True) if note)


def _time_fault(run: Evacuation) -> str:
    """Why the time of a plan is over, or too short to empty the nodes and bring them back; empty where it is not."""
    if run.ends_at is None:
        return ""
    now = shared_now()
    left_s = (run.ends_at - max(run.starts_at or now, now)).total_seconds()
    need_s = run.facts["needed_s"] + run.hold_s * run.steps.count()
    if left_s >= need_s:
        return ""
    rest = f"{duration_words(left_s)} are left" if left_s > 0 else "its end is past"
    return f"The time is too short: it takes about {duration_words(need_s)}, and {rest}."


def _overlapping(run: Evacuation) -> Evacuation | None:
    """Another confirmed evacuation of the cluster whose time overlaps; one without an end lasts until it is told."""
    begin = run.starts_at or shared_now()
    others = Evacuation.objects.filter(cluster=run.cluster, state__in=OPEN_EVACUATION_STATES).exclude(pk=run.pk)
    for other in others:
        starts = other.begun_at or other.starts_at or other.confirmed_at or begin
        ends_before = other.ends_at is not None and other.ends_at <= begin
        if not ends_before and not (run.ends_at is not None and run.ends_at <= starts):
            return other
    return None


def _locked(run: Evacuation) -> Evacuation:
    return Evacuation.objects.select_for_update(of=("self",)).select_related("cluster", "confirmed_by").get(pk=run.pk)


def _words(run: Evacuation | PlacementRun) -> str:
    return str(run.get_state_display()).lower()
