"""States of planning runs, and the options each kind of run takes."""

from django.db import models

__all__ = [
    "ANSWER_STATES",
    "APPLYING_STATES",
    "BUCKETS",
    "COMPARISON_STATES",
    "ENDED_STATES",
    "EVACUATION_STATES",
    "OPEN_EVACUATION_STATES",
    "PENDING_STATES",
    "PLACEMENT_STATES",
    "UNDOABLE_STATES",
    "ComparisonReason",
    "EvacuationOrder",
    "EvacuationStepState",
    "EventRepeat",
    "FactorOf",
    "Find",
    "HistoryJob",
    "HistoryOrigin",
    "MoveKind",
    "MoveState",
    "PlacementAlgorithm",
    "PlacementObjective",
    "PlanChoice",
    "PlanEngine",
    "PlanPlacement",
    "RequestTiming",
    "RunState",
    "ScenarioPlacement",
]


class RunState(models.TextChoices):
    """State of a planning run. A run begins as asked, searching or computing, by its kind; its job ends that."""

    ASKED = "asked", "Asked"  #: what-if, backtest: the job waits or runs
    SEARCHING = "searching", "Searching"  #: placement: the job looks for one
    COMPUTING = "computing", "Computing"  #: comparison: the job waits or runs
    ANSWERED = "answered", "Answered"  #: what-if, backtest: the result is stored
    PROPOSED = "proposed", "Proposed"  #: placement, evacuation: the plan is stored, nothing has moved
    SCHEDULED = "scheduled", "Scheduled"  #: evacuation: confirmed, it begins at its time
    RUNNING = "running", "Running"  #: evacuation: its steps are carried out, one after the other
    STOPPING = "stopping", "Stopping"  #: evacuation: what it did is being taken back
    STOPPED = "stopped", "Stopped"  #: evacuation: a guard or a person stopped it; the message says why
    DONE = "done", "Done"  #: comparison: the ranking is stored; evacuation: every step has ended
    APPLYING = "applying", "Applying"  #: placement: batches of moves are being made
    APPLIED = "applied", "Applied"  #: placement: every move is made
    UNDOING = "undoing", "Undoing"  #: placement: batches are being moved back
    UNDONE = "undone", "Undone"  #: placement: every move that was made is taken back
    ABORTED = "aborted", "Aborted"  #: placement: a person stopped it; what was moved until then stays
    FAILED = "failed", "Failed"  #: the job failed; the message says why
    STALE = "stale", "Stale"  #: placement: the cluster moved while it was applied; it stopped after a whole batch
    CANCELLED = "cancelled", "Cancelled"  #: the job was cancelled


def _choices(*states: RunState) -> list[tuple[str, str]]:
    return [(state.value, str(state.label)) for state in states]


# The states of each kind of run, as lists, filters and the REST schema show them
PLACEMENT_STATES = _choices(
    RunState.SEARCHING,
    RunState.PROPOSED,
    RunState.APPLYING,
    RunState.APPLIED,
    RunState.UNDOING,
    RunState.UNDONE,
    RunState.ABORTED,
    RunState.FAILED,
    RunState.STALE,
)
COMPARISON_STATES = _choices(RunState.COMPUTING, RunState.DONE, RunState.FAILED, RunState.CANCELLED)
EVACUATION_STATES = _choices(
    RunState.ASKED,
    RunState.PROPOSED,
    RunState.SCHEDULED,
    RunState.RUNNING,
    RunState.STOPPING,
    RunState.STOPPED,
    RunState.DONE,
    RunState.FAILED,
    RunState.CANCELLED,
)
ANSWER_STATES = _choices(RunState.ASKED, RunState.ANSWERED, RunState.FAILED, RunState.CANCELLED)

# A job is to answer the run
PENDING_STATES = frozenset({RunState.ASKED, RunState.SEARCHING, RunState.COMPUTING})
# One of these at a time in a cluster: it owns the cluster's placement
APPLYING_STATES = frozenset({RunState.APPLYING, RunState.UNDOING})
# A confirmed evacuation that has not ended
OPEN_EVACUATION_STATES = frozenset({RunState.SCHEDULED, RunState.RUNNING, RunState.STOPPING})
# From these, what was moved can be moved back
UNDOABLE_STATES = frozenset({RunState.APPLIED, RunState.ABORTED, RunState.FAILED, RunState.STALE})
# Nothing works on the run
ENDED_STATES = frozenset(set(RunState) - APPLYING_STATES - PENDING_STATES - OPEN_EVACUATION_STATES)


class MoveState(models.TextChoices):
    """State of a move."""

    PENDING = "pending", "Pending"
    DONE = "done", "Done"
    UNDONE = "undone", "Undone"
    SKIPPED = "skipped", "Skipped"  #: the run ended before its turn


class MoveKind(models.TextChoices):
    """Kind of a move."""

    MOVE = "move", "Move"  #: whole, from one core to another
    SPLIT = "split", "Split"  #: into replicas on several cores
    MERGE = "merge", "Merge"  #: replicas that met again become one
    PLACE = "place", "Place"  #: it had no place


class EvacuationOrder(models.TextChoices):
    """Order in which nodes are emptied."""

    TOGETHER = "together", "All at once"
    EACH = "each", "One node after the other"
    DOMAIN = "domain", "One failure domain after the other"


class EvacuationStepState(models.TextChoices):
    """State of a step of an evacuation."""

    WAITING = "waiting", "Waiting"
    EMPTYING = "emptying", "Emptying"  #: its nodes are draining, what is on them is being moved
    AWAY = "away", "Away"  #: its nodes are empty
    RETURNING = "returning", "Returning"  #: its nodes are back, their operators are being moved back
    BACK = "back", "Back"  #: it has ended


class PlacementAlgorithm(models.TextChoices):
    """Search algorithm of a placement."""

    SEARCH = "search", "Search"
    GREEDY = "greedy", "Greedy"


class PlacementObjective(models.TextChoices):
    """Objective that a placement search minimises."""

    WORST = "worst", "Worst case of the whole cluster"
    OBJECTIVES = "objectives", "Latency against its objective"


class ComparisonReason(models.TextChoices):
    """Reason of a comparison."""

    ASKED = "asked", "Asked for"  #: somebody, or a program, wanted it
    SCHEDULED = "scheduled", "Scheduled"  #: the last one had become old
    DRIFT = "drift", "Statistics drifted"  #: they differ significantly from those of the last one


class PlanPlacement(models.TextChoices):
    """Placement of plans for their comparison."""

    KEEP = "keep", "Operators that run stay where they are"
    FREE = "free", "All operators are placed anew"


class Find(models.TextChoices):
    """Kind of what-if."""

    COMPARE = "compare", "Compare scenarios"
    SWEEP = "sweep", "Latency and cost by number of nodes"
    SMALLEST_POOL = "smallest_pool", "Smallest pool"
    CHEAPEST_MIX = "cheapest_mix", "Cheapest mix"
    PARETO = "pareto", "Cost against latency"
    SURVIVAL = "survival", "Survival of a lost node"
    GROWTH = "growth", "Room to grow"


class ScenarioPlacement(models.TextChoices):
    """Treatment of the placement when a scenario changes the fleet."""

    KEEP = "keep", "Keep"  #: nothing moves; what would lose its node is a refusal
    FILL = "fill", "Fill"  #: what has no node gets one, the rest stays
    SEARCH = "search", "Search"  #: everything may move


#: Lengths of buckets that pages offer; `engine.forecasts.history.bucket_fault` says which there may be.
BUCKETS = (60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400)


class HistoryOrigin(models.TextChoices):
    """Origin of a load history."""

    UPLOAD = "upload", "Upload"  #: a file
    GENERATOR = "generator", "Generator"  #: made up
    ARRIVALS = "arrivals", "Arrivals' file"  #: kept when the file's busiest stretch became a source's arrivals
    TELEMETRY = "telemetry", "Telemetry"  #: counted by agents, out of the stream processor's history


class HistoryJob(models.TextChoices):
    """Batch job over the stream processor's history (`spark_jobs.history.jobs.JOBS`)."""

    COMPACT = "compact", "Compact"  #: few files of the many of each day; old days go
    STATISTICS = "statistics", "Statistics"  #: sums of operators over days
    COSTS = "costs", "Costs"  #: costs of records and groups, fitted anew
    ARRIVALS = "arrivals", "Arrivals"  #: counts by subinterval; load histories of sources
    CALIBRATION = "calibration", "Calibration"  #: factors of intervals


class RequestTiming(models.TextChoices):
    """Time of requests in the replay."""

    RECORDED = "recorded", "When they were made"
    START = "start", "All at the beginning of the period"


class PlanEngine(models.TextChoices):
    """Engine that a resource plan is made for."""

    MICROBATCH = "microbatch", "Spark micro-batches"  #: Structured Streaming with a processing-time trigger
    STAGE = "stage", "Map-reduce stage"  #: mappers and reducers with batch intervals of their own


class PlanChoice(models.TextChoices):
    """Settings of a resource plan that can be taken: the ends of its rate-latency curve, both of the smallest size."""

    THROUGHPUT = "throughput", "Most throughput"  #: settings of the largest rate under the constraint
    LATENCY = "latency", "Least latency at your rate"  #: settings of the least latency at the asked rate


class EventRepeat(models.TextChoices):
    """Interval at which an event comes."""

    ONCE = "once", "Once"
    WEEKLY = "weekly", "Every week"
    MONTHLY = "monthly", "Every month"
    YEARLY = "yearly", "Every year"


class FactorOf(models.TextChoices):
    """Owner of the load that a factor of an event is of."""

    SOURCE = "source", "Source"  #: all who read it
    TEAM = "team", "Team"  #: what its queries read, and nobody else
    CLASS = "class", "Class"  #: what the queries of one priority read, and nobody else
    REST = "rest", "Rest"  #: every source and query without a factor of its own
