"""Moves of a proposal, applied and undone batch by batch: one run at a time per cluster."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from django.db import transaction
from django.db.models import Max, Min

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Fault, Malformed, Stale, fault_count
from apps.core.events import announce
from apps.core.limits import MAX_NOTE
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobOutcome, JobReporter
from apps.jobs.services import job_cancel, job_heartbeat, job_submit, on_unanswered
from apps.ledger.entries import decision_recorded
from apps.planning.choices import APPLYING_STATES, UNDOABLE_STATES, MoveState, RunState
from apps.planning.models import Evacuation, PlacementMove, PlacementRun
from apps.planning.placement_search import PLACEMENT
from apps.queries.models import Query
from apps.queries.services import placement_move
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot, snapshot_changes
from apps.queries.snapshots.parts import PartsRead, parts_read, parts_renew
from apps.telemetry.selectors import queries_driven
from engine.document.elements import Replica
from engine.words import counted, listed

__all__ = [
    "BATCH_SIZE",
    "MAX_BATCH_SIZE",
    "MAX_PACE",
    "BatchDone",
    "act_recorded",
    "apply_moves",
    "batch_apply",
    "batch_pause_s",
    "changes_since",
    "is_driven",
    "moves_finish",
    "placement_abort",
    "placement_apply",
    "placement_done",
    "placement_return",
    "placement_undo",
    "plan_batches",
]

BATCH_SIZE = 5
MAX_BATCH_SIZE = 200
_PAUSE_S = 30.0  # nobody watches one batch for longer
_TOTAL_S = 300.0  # of all pauses: a job must end before the broker gives it to another worker
MAX_PACE = 10.0
_SHOWN = 5
_LOOK_EVERY_S = 0.5


def plan_batches(moves: Iterable[PlacementMove], size: int) -> list[list[PlacementMove]]:
    """Moves in order, cut where one needs what an earlier one of its batch leaves or takes: a node that both touch.

    At most `size` to a batch.
    """
    batches: list[list[PlacementMove]] = []
    touched: set[str] = set()
    for move in moves:
        nodes = {part["node"] for part in (*move.before, *move.after)}
        if not batches or len(batches[-1]) >= size or touched & nodes:
            batches.append([])
            touched = set()
        batches[-1].append(move)
        touched |= nodes
    return batches


def batch_pause_s(moves: Iterable[PlacementMove], *, pace: float, batches: int) -> float:
    """Seconds to wait after a batch: as long as the slowest of its moves takes, times `pace`, within limits."""
    slowest_s = max((move.duration_s for move in moves), default=0.0)
    return min(pace * slowest_s, _PAUSE_S, _TOTAL_S / max(batches, 1))


@dataclass(frozen=True)
class BatchDone:
    """A batch that was applied: its number, the number of batches, and its number of moves."""

    number: int
    batches: int
    moves: int


@transaction.atomic
def placement_apply(
    *, run: PlacementRun, user: User | None, pace: float = 1.0, batch_size: int = BATCH_SIZE
) -> tuple[PlacementRun, Job]:
    """Begin to apply the moves of a proposal.

    Parameters
    ----------
    pace : float
        Pause after each batch as a multiple of its estimated duration, 0 for none.
    batch_size : int
        At most so many moves at a time.

    Raises
    ------
    Stale
        The cluster has moved since the search looked at it; `data["changed"]` says what.
    Conflict
        The run is no proposal, or another one is being applied.
    """
    _check_numbers(pace, batch_size)
    run = _lock_run(run)
    if run.state != RunState.PROPOSED:
        raise Conflict(f"The run is {_state_words(run)}; only a proposal can be applied.", code="wrong_state")
    moves = list(run.moves.all())
    if not moves:
        raise Conflict("The proposal moves nothing: what runs now is its answer.", code="nothing_to_move")
    _require_no_other_run(run)
    _require_same_cluster(run, run.snapshot, run.snapshot_parts, "the search looked at it")
    batches = plan_batches(moves, batch_size)
    for number, batch in enumerate(batches, start=1):
        for move in batch:
            move.batch = number
    PlacementMove.objects.bulk_update(moves, ["batch"], batch_size=500)
    run.batches, run.pace, run.applied_by, run.applied_at = len(batches), pace, user, shared_now()
    run.expected, run.expected_parts = run.snapshot, run.snapshot_parts
    return _begin_moves(run, RunState.APPLYING, user, "Move")


@transaction.atomic
def placement_undo(*, run: PlacementRun, user: User | None) -> tuple[PlacementRun, Job]:
    """Begin to undo the moves of a run, the last batch first. Refused if anything else has moved since."""
    run = _lock_run(run)
    if run.state not in UNDOABLE_STATES:
        raise Conflict(f"The run is {_state_words(run)}; only one that was applied can be undone.", code="wrong_state")
    if not run.moves.filter(state=MoveState.DONE).exists():
        raise Conflict("The run has moved nothing; there is nothing to undo.", code="nothing_to_undo")
    _require_no_other_run(run)
    _require_same_cluster(run, run.expected, run.expected_parts, "this run left it")
    return _begin_moves(run, RunState.UNDOING, user, "Move back")


@transaction.atomic
def placement_return(*, run: PlacementRun, user: User | None) -> tuple[PlacementRun, Job | None, list[str]]:
    """Begin to move back what stands where a run put it, whatever else has moved since.

    Returns the run, its job (None where nothing is left to move back), and the operators that are elsewhere or gone,
    or whose node is not there.
    """
    run = _lock_run(run)
    if run.state not in UNDOABLE_STATES:
        raise Conflict(f"The run is {_state_words(run)}; only one that was applied can be undone.", code="wrong_state")
    _require_no_other_run(run)
    present = cluster_snapshot(run.cluster)
    placed = {operator.id: operator.replicas for operator in present.deployment.operators}
    done = list(run.moves.filter(state=MoveState.DONE))
    nodes = {node.id for node in present.deployment.nodes}
    gone = [
        move
        for move in done
        if placed.get(move.operator) != tuple(Replica(**part) for part in move.after)
        or not nodes.issuperset(part["node"] for part in move.before)
    ]
    for move in gone:
        move.state = MoveState.SKIPPED
    PlacementMove.objects.bulk_update(gone, ["state"])
    elsewhere = [move.operator for move in gone]
    if len(gone) == len(done):
        return run, None, elsewhere
    run.expected, run.expected_parts = present.digest, present.parts
    return *_begin_moves(run, RunState.UNDOING, user, "Move back"), elsewhere


@transaction.atomic
def placement_done(*, run: PlacementRun, note: str, user: User | None) -> PlacementRun:
    """Say that an engine made the moves of an applied run, which are recorded here alone: once, with how.

    Raises
    ------
    Malformed
        There is no note, or it is too long.
    Conflict
        The run was not applied, was said to be done before, or agents make its moves (`wrong_state`).
    """
    note = note.strip()
    if not 0 < len(note) <= MAX_NOTE:
        given = f"it has {len(note)} characters" if note else "it is empty"
        raise Malformed("note: say how it was done.", [Fault("note", f"{given}; allowed: 1 to {MAX_NOTE} characters")])
    run = _lock_run(run)
    if run.state != RunState.APPLIED:
        message = f"The run is {_state_words(run)}; only one that was applied can be said to be done."
        raise Conflict(message, code="wrong_state")
    if run.done_at is not None:
        raise Conflict("The run is said to be done already.", code="wrong_state")
    if is_driven(run):
        raise Conflict("Agents and stream processor make the moves of this run by themselves.", code="wrong_state")
    act_recorded(run, "done")
    run.done_at, run.done_by, run.done_note = shared_now(), user, note
    run.save(update_fields=["done_at", "done_by", "done_note"])
    _announce(run)
    return run


def is_driven(run: PlacementRun) -> bool:
    """Whether agents and stream processor execute a query that moves: else it moves in the books alone."""
    names = run.moves.values_list("query", flat=True)
    return bool(queries_driven(list(run.cluster.queries.filter(name__in=list(names)).values_list("pk", flat=True))))


@transaction.atomic
def placement_abort(*, run: PlacementRun) -> PlacementRun:
    """Abort after the current batch. What was moved stays where it is."""
    # The job before the run, as the end of a job takes them: the other way round the two would block each other.
    job = Job.objects.select_for_update().filter(pk=run.moves_job_id).first()
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
    if run.state not in APPLYING_STATES or job is None:
        raise Conflict(
            f"The run is {_state_words(run)}; only one that is being applied can be aborted.", code="wrong_state"
        )
    job_cancel(job)
    run.refresh_from_db()
    PLACEMENT.announce(run)
    return run


@transaction.atomic
def batch_apply(*, run: PlacementRun, job: Job) -> BatchDone | list[str] | None:
    """Apply the next batch, whole or not at all.

    Returns
    -------
    BatchDone, or None if none is left. A list: the cluster is not as the last batch left it, so that nothing was made
    and the run has ended; the list says what moved.
    """
    job_heartbeat(job)  # takes the job's row: an attempt that was given up moves nothing
    run = _lock_run(run)
    moves = _next_batch(run)
    if not moves:
        return None
    present = parts_read(run.cluster)
    if present.digest != run.expected:
        return _stop_as_stale(run, present)
    _apply_moves(run, moves)
    left = parts_read(run.cluster)
    run.expected, run.expected_parts = left.digest, dict(left.parts)
    pause_s = batch_pause_s(moves, pace=run.pace, batches=run.batches)
    run.resume_at = shared_now() + timedelta(seconds=pause_s)
    run.save(update_fields=["expected", "expected_parts", "resume_at", "updated_at"])
    _announce(run)
    transaction.on_commit(partial(parts_renew, run.cluster), robust=True)  # this run left the cluster so
    return BatchDone(moves[0].batch, run.batches, len(moves))


def moves_finish(*, run: PlacementRun, state: str, message: str = "") -> PlacementRun:
    """End applying or undoing; moves whose turn did not come are skipped. A run that ended already stays as it is."""
    run = PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
    if run.state not in APPLYING_STATES:
        return run
    run.state, run.finished_at, run.resume_at, run.message = state, shared_now(), None, message[:500]
    run.save(update_fields=["state", "finished_at", "resume_at", "message", "updated_at"])
    run.moves.filter(state=MoveState.PENDING).update(state=MoveState.SKIPPED)
    _announce(run)
    return run


def changes_since(digest: str, parts: Mapping[str, str], present: Snapshot | PartsRead) -> list[str]:
    """Changes of the cluster against a snapshot, in words; empty without any."""
    return [] if present.digest == digest else snapshot_changes(parts, present.parts) or ["the cluster"]


def _lock_run(run: PlacementRun) -> PlacementRun:
    """Lock cluster and run: one decision at a time per cluster, admissions included."""
    Cluster.objects.select_for_update().get(pk=run.cluster_id)
    return PlacementRun.objects.select_for_update(of=("self",)).select_related("cluster", "job").get(pk=run.pk)


def act_recorded(run: PlacementRun | Evacuation, state: str) -> None:
    """Put what a person has done with a run into the ledger, before its state changes."""
    kind, name = "placement", str(run.pk)[:8]
    if isinstance(run, Evacuation):
        kind, name = "evacuation", ", ".join(run.nodes[:5])
    decision_recorded(
        kind=kind,
        key=run.pk,
        name=name,
        cluster=run.cluster,
        before={"state": run.state},
        after={"state": state},
    )


def _begin_moves(run: PlacementRun, state: RunState, user: User | None, verb: str) -> tuple[PlacementRun, Job]:
    act_recorded(run, state)
    run.state, run.message, run.finished_at, run.resume_at = state, "", None, None
    run.moves_job = job_submit(
        kind=JobKind.MOVES,
        title=f"{verb} operators of {run.cluster.slug}",
        params={"placement": str(run.pk)},
        cluster=run.cluster,
        user=user,
    )
    run.save()
    _announce(run)
    return run, run.moves_job


def _next_batch(run: PlacementRun) -> list[PlacementMove]:
    """The first batch not applied yet; when undoing, the last one not undone."""
    if run.state not in APPLYING_STATES:
        return []
    is_back = run.state == RunState.UNDOING
    rows = run.moves.filter(state=MoveState.DONE if is_back else MoveState.PENDING)
    number = rows.aggregate(n=Max("batch") if is_back else Min("batch"))["n"]
    return list(rows.filter(batch=number).order_by("number"))


def _apply_moves(run: PlacementRun, moves: Sequence[PlacementMove]) -> None:
    is_back = run.state == RunState.UNDOING
    by_query: dict[str, dict[str, object]] = {}
    for move in moves:
        by_query.setdefault(move.query, {})[move.operator] = move.before if is_back else move.after
    queries = {query.name: query for query in Query.objects.filter(cluster=run.cluster, name__in=by_query)}
    for name, placement in by_query.items():
        placement_move(query=queries[name], placement=placement)
    now = shared_now()
    for move in moves:
        move.state, move.applied_at = MoveState.UNDONE if is_back else MoveState.DONE, now
    PlacementMove.objects.bulk_update(moves, ["state", "applied_at"])


def _stop_as_stale(run: PlacementRun, present: Snapshot | PartsRead) -> list[str]:
    changed = changes_since(run.expected, run.expected_parts, present)
    is_back, total = run.state == RunState.UNDOING, counted(run.moves.count(), "move")
    count = run.moves.filter(state=MoveState.UNDONE if is_back else MoveState.DONE).count()
    made = f"{count} of {total} made; the others were not begun."
    if is_back:
        made = f"{count} of {total} taken back; the others were not begun."
    message = f"The cluster has changed meanwhile: {listed(changed, _SHOWN + 1)}. {made}"
    moves_finish(run=run, state=RunState.STALE, message=message)
    return changed


def _require_no_other_run(run: PlacementRun) -> None:
    other = PlacementRun.objects.filter(cluster=run.cluster, state__in=APPLYING_STATES).exclude(pk=run.pk).first()
    if other is not None:
        raise Conflict(
            f"Another run is {_state_words(other)} in {run.cluster.slug}; wait until it has ended, or abort it.",
            code="busy",
            data={"placement": str(other.pk)},
        )


def _require_same_cluster(run: PlacementRun, digest: str, parts: Mapping[str, str], since: str) -> None:
    changed = changes_since(digest, parts, parts_read(run.cluster))
    if changed:
        raise Stale(
            f"The cluster has moved since {since}: {', '.join(changed[:_SHOWN])}. Search again.",
            [("snapshot", change) for change in changed],
            data={"changed": changed},
        )


def _check_numbers(pace: float, batch_size: int) -> None:
    faults = []
    if isinstance(pace, bool) or not 0 <= pace <= MAX_PACE:
        faults.append(Fault("pace", f"pace is {pace}; allowed: from 0 to {MAX_PACE:g}"))
    if isinstance(batch_size, bool) or not 1 <= batch_size <= MAX_BATCH_SIZE:
        faults.append(Fault("batch_size", f"batch_size is {batch_size}; allowed: from 1 to {MAX_BATCH_SIZE}"))
    if faults:
        raise Malformed(f"There is {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)


def _state_words(run: PlacementRun) -> str:
    return run.get_state_display().lower()


def _announce(run: PlacementRun) -> None:
    PLACEMENT.announce(run)
    announce(f"cluster:{run.cluster.slug}")


def _end_moves(job: Job) -> None:
    """End the moves of a job that ended without an answer."""
    run = PLACEMENT.run_of(job)
    if run is not None:
        moves_finish(run=run, state=PLACEMENT.state_after(job), message=PLACEMENT.message_after(job))


on_unanswered(JobKind.MOVES, _end_moves)


def apply_moves(report: JobReporter) -> JobOutcome:
    """Apply the run's batches, one transaction each, with a pause after each so that a person can watch and abort.

    Done again after its worker was lost, it goes on with the batch that comes next.
    """
    run = PlacementRun.objects.select_related("cluster").get(pk=report.job.params["placement"])
    is_back = run.state == RunState.UNDOING
    _pause(run, report, is_back)
    while (outcome := batch_apply(run=run, job=report.job)) is not None:
        if not isinstance(outcome, BatchDone):
            message = PlacementRun.objects.values_list("message", flat=True).get(pk=run.pk)
            raise Stale(message, [("snapshot", change) for change in outcome], data={"changed": outcome})
        _pause(run, report, is_back)

    def store(job: Job) -> JobOutcome:
        ended = moves_finish(run=run, state=RunState.UNDONE if is_back else RunState.APPLIED)
        return JobOutcome(PLACEMENT.facts(ended), PLACEMENT.page(ended), PLACEMENT.address(ended))

    return JobOutcome(store=store)


def _pause(run: PlacementRun, report: JobReporter, is_back: bool) -> None:
    """Wait until the next batch is due; raises when the job is cancelled."""
    run.refresh_from_db(fields=["resume_at", "batches", "state"])
    moves = list(run.moves.values_list("state", "batch"))
    done = {batch for state, batch in moves if state == MoveState.DONE}
    count = run.batches - len(done) if is_back else len(done)
    words = f"Batch {count} of {run.batches} is moved back" if is_back else f"Batch {count} of {run.batches} is made"
    if not count:
        words = "Begins to move"
    while True:
        report(count / max(run.batches, 1), words)
        left_s = (run.resume_at - shared_now()).total_seconds() if run.resume_at else 0.0
        if left_s <= 0 or count >= run.batches:
            return
        time.sleep(min(left_s, _LOOK_EVERY_S))
