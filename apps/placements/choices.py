"""The life of a placement run and of its moves, and what may be asked of a search."""

from django.db import models

__all__ = ["BUSY", "ENDED", "UNDOABLE", "Algorithm", "MoveKind", "MoveState", "Objective", "RunState"]


class RunState(models.TextChoices):
    """Where a run is in its life."""

    SEARCHING = "searching", "Searching"  #: its job looks for a placement
    PROPOSED = "proposed", "Proposed"  #: found, nothing moved
    APPLYING = "applying", "Applying"  #: batches of moves are being made
    APPLIED = "applied", "Applied"  #: every move is made
    UNDOING = "undoing", "Undoing"  #: batches are being moved back
    UNDONE = "undone", "Undone"  #: every move that was made is taken back
    ABORTED = "aborted", "Aborted"  #: a person stopped it; what was moved until then stays
    FAILED = "failed", "Failed"  #: its job failed; the job says why
    STALE = "stale", "Stale"  #: the cluster moved while it was being applied; it stopped after a whole batch


# One of these at a time in a cluster: it owns the cluster's placement
BUSY = frozenset({RunState.APPLYING, RunState.UNDOING})
# From these, what was moved can be moved back
UNDOABLE = frozenset({RunState.APPLIED, RunState.ABORTED, RunState.FAILED, RunState.STALE})
# Nothing works on it
ENDED = frozenset(set(RunState) - BUSY - {RunState.SEARCHING})


class MoveState(models.TextChoices):
    """What became of a move."""

    PENDING = "pending", "Pending"
    DONE = "done", "Done"
    UNDONE = "undone", "Undone"
    SKIPPED = "skipped", "Skipped"  #: the run ended before its turn


class MoveKind(models.TextChoices):
    """What a move does to its operator."""

    MOVE = "move", "Move"  #: whole, from one core to another
    SPLIT = "split", "Split"  #: into replicas on several cores
    MERGE = "merge", "Merge"  #: replicas that met again become one
    PLACE = "place", "Place"  #: it had no place


class Algorithm(models.TextChoices):
    """How a placement is looked for."""

    SEARCH = "search", "Search"
    MACE_HC = "mace-hc", "Mace-HC as published"
    RANDOM = "random", "Random"
    BASELINE = "baseline", "Baseline"
    CORR = "corr", "Corr"
    GREEDY = "greedy", "Greedy"


class Objective(models.TextChoices):
    """What a search makes small."""

    WORST = "worst", "Worst case of the whole cluster"
    OBJECTIVES = "objectives", "Largest latency against its objective"
