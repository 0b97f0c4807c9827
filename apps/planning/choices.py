"""States of planning runs, and the options each kind of run takes."""

from django.db import models

__all__ = [
    "BUCKETS",
    "BUSY",
    "ENDED",
    "UNDOABLE",
    "BacktestState",
    "ComparisonReason",
    "ComparisonState",
    "Find",
    "HistoryOrigin",
    "MoveKind",
    "MoveState",
    "PlacementAlgorithm",
    "PlacementObjective",
    "PlacementState",
    "PlanPlacement",
    "RequestTiming",
    "ScenarioPlacement",
    "WhatIfState",
]


class PlacementState(models.TextChoices):
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
BUSY = frozenset({PlacementState.APPLYING, PlacementState.UNDOING})
# From these, what was moved can be moved back
UNDOABLE = frozenset({PlacementState.APPLIED, PlacementState.ABORTED, PlacementState.FAILED, PlacementState.STALE})
# Nothing works on it
ENDED = frozenset(set(PlacementState) - BUSY - {PlacementState.SEARCHING})


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


class PlacementAlgorithm(models.TextChoices):
    """How a placement is looked for."""

    SEARCH = "search", "Search"
    MACE_HC = "mace-hc", "Mace-HC as published"
    RANDOM = "random", "Random"
    BASELINE = "baseline", "Baseline"
    CORR = "corr", "Corr"
    GREEDY = "greedy", "Greedy"


class PlacementObjective(models.TextChoices):
    """What a search makes small."""

    WORST = "worst", "Worst case of the whole cluster"
    OBJECTIVES = "objectives", "Largest latency against its objective"


class ComparisonReason(models.TextChoices):
    """What a comparison was made for."""

    ASKED = "asked", "Asked for"  #: somebody, or a program, wanted it
    SCHEDULED = "scheduled", "Scheduled"  #: the last one had become old
    DRIFT = "drift", "Statistics drifted"  #: they differ significantly from those of the last one


class ComparisonState(models.TextChoices):
    """Where a comparison is in its life."""

    COMPUTING = "computing", "Computing"  #: a job is at work or will be
    DONE = "done", "Done"  #: there is a ranking
    FAILED = "failed", "Failed"  #: its job failed; the message says why
    CANCELLED = "cancelled", "Cancelled"  #: its job was cancelled


class PlanPlacement(models.TextChoices):
    """Where plans are placed to be judged."""

    KEEP = "keep", "Operators that run stay where they are"
    FREE = "free", "All operators are placed anew"


class Find(models.TextChoices):
    """What an answer looks for."""

    COMPARE = "compare", "Compare scenarios"
    SWEEP = "sweep", "Latency and cost by number of nodes"
    SMALLEST_POOL = "smallest_pool", "Smallest pool"
    CHEAPEST_MIX = "cheapest_mix", "Cheapest mix"
    PARETO = "pareto", "Cost against latency"
    SURVIVAL = "survival", "Survival of a lost node"
    GROWTH = "growth", "Room to grow"


class ScenarioPlacement(models.TextChoices):
    """What becomes of the placement when a scenario changes the fleet."""

    KEEP = "keep", "Keep"  #: nothing moves; what would lose its node is a refusal
    FILL = "fill", "Fill"  #: what has no node gets one, the rest stays
    SEARCH = "search", "Search"  #: everything may move


class WhatIfState(models.TextChoices):
    """Where a what-if is in its life."""

    ASKED = "asked", "Asked"  #: its job waits or runs
    ANSWERED = "answered", "Answered"  #: result stored
    FAILED = "failed", "Failed"  #: its job failed; the job says why
    CANCELLED = "cancelled", "Cancelled"  #: stopped on request


# Each divides the next, so that finer histories can be added up to coarser ones.
BUCKETS = (900, 1800, 3600, 10_800, 21_600, 43_200, 86_400)


class HistoryOrigin(models.TextChoices):
    """How a history came here."""

    UPLOAD = "upload", "Upload"  #: a file
    GENERATOR = "generator", "Generator"  #: made up
    ARRIVALS = "arrivals", "Arrivals' file"  #: kept when the file's busiest stretch became a source's arrivals


class BacktestState(models.TextChoices):
    """Where a backtest is in its life."""

    ASKED = "asked", "Asked"  #: its job waits or runs
    ANSWERED = "answered", "Answered"  #: result stored
    FAILED = "failed", "Failed"  #: its job failed; the job says why
    CANCELLED = "cancelled", "Cancelled"  #: stopped on request


class RequestTiming(models.TextChoices):
    """When requests are asked in the replay."""

    RECORDED = "recorded", "When they were made"
    START = "start", "All at the beginning of the period"
