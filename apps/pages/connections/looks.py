"""Places and jobs as an engine showed them last."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from django.utils.safestring import SafeString

from apps.connections.looks import KeptJob, KeptOperator
from apps.connections.models import Connection, ImportedJob
from apps.fleet.models import Node
from apps.pages.context import url_of
from apps.ui.marks import Mark
from apps.ui.numbers import MISSING, Quantity, bytes_size, count, percent, seconds
from apps.ui.sentences import sentence
from engine.connectors.picture import Place
from engine.words import counted, duration_words, listed

__all__ = ["RUNNING", "JobLook", "Look", "MarkerLine", "NodePlace", "OperatorLook", "job_mark", "place_of_node"]

_MAX_OPERATORS = 200  # shown of a job
RUNNING = "running"  #: state of a job that can be imported
_ENDED = Mark("close", "", "")
_JOB_MARKS = {
    RUNNING: Mark("ok", "ok", "Running"),
    "restarting": Mark("jobs", "watch", "Restarting"),
    "failing": Mark("bad", "bad", "Failing"),
    "failed": Mark("bad", "bad", "Failed"),
}
_BASES = {
    None: "busy time",
    "thread_stacks": "looks at its threads",
    "cpu_time": "CPU time, the least",
    "load_step": "a step of load",
}
_PLACES = {"flink": "TaskManager,TaskManagers", "spark": "executor,executors"}


@dataclass(frozen=True)
class OperatorLook:
    """An operator as the engine showed it."""

    operator: KeptOperator

    @property
    def inputs(self) -> str:
        """orders (hash), payments (hash)."""
        named = [f"{entry.upstream} ({entry.strategy})" for entry in self.operator.inputs]
        return listed(named, 3) if named else MISSING

    @property
    def places(self) -> str:
        return listed(self.operator.places, 2) if self.operator.places else MISSING

    @property
    def has_sample(self) -> bool:
        return bool(self.operator.span_s)

    @property
    def cost(self) -> Quantity:
        return seconds(self.operator.cost_s)

    @property
    def basis(self) -> str:
        """By what the cost was told, and what one more event costs, if several loads tell; empty without a cost."""
        if self.operator.cost_s is None or not self.has_sample:
            return ""
        told, marginal = f"by {_BASES[self.operator.cost_by]}", self.operator.marginal
        if marginal is None or not marginal.is_measured:
            return told
        more = seconds(self.operator.cost_s * marginal.share)
        return f"{told}; {more} for one more, by {counted(marginal.loads, 'load')}"

    @property
    def events(self) -> str:
        return count(self.operator.events) if self.has_sample else MISSING

    @property
    def span(self) -> str:
        return duration_words(self.operator.span_s) if self.has_sample else MISSING

    @property
    def contended_share(self) -> float:
        """Share of the measured time in which the host was so busy that costs are too high."""
        return self.operator.contended_s / self.operator.span_s if self.has_sample else 0.0

    @property
    def contended(self) -> str:
        return f"{percent(self.contended_share)} of it contended" if self.contended_share else ""


@dataclass(frozen=True)
class JobLook:
    """A job as the engine showed it; `url` is the page of the query that it is here."""

    job: KeptJob
    url: str = ""

    @property
    def mark(self) -> Mark:
        return job_mark(self.job.state)

    @property
    def started_at(self) -> datetime:
        return _moment(self.job.started_at_s)

    @property
    def operators(self) -> list[OperatorLook]:
        return [OperatorLook(operator) for operator in self.job.operators[:_MAX_OPERATORS]]

    @property
    def hidden(self) -> int:
        """Operators that are not shown."""
        return max(len(self.job.operators) - _MAX_OPERATORS, 0)

    @property
    def threads(self) -> int:
        return sum(operator.parallelism for operator in self.job.operators)

    @property
    def measured(self) -> str:
        """7 polls over 1 min, 5,200 events; 12% contended."""
        sampled = [OperatorLook(operator) for operator in self.job.operators if operator.span_s]
        polls = counted(self.job.polls, "poll")
        if not sampled:
            return f"{polls}; statistics need two" if self.job.polls < 2 else f"{polls}, no events between them"
        span_s = max(line.operator.span_s for line in sampled)
        events = sum(line.operator.events for line in sampled)
        return f"{polls} over {duration_words(span_s)}, {count(events)} events"

    @property
    def markers(self) -> MarkerLine | None:
        return _marker_line(self.job)

    @property
    def contended(self) -> str:
        """Worst share of contended time of its operators."""
        share = max((OperatorLook(operator).contended_share for operator in self.job.operators), default=0.0)
        return f"{percent(share)}" if share else ""


@dataclass(frozen=True)
class MarkerLine:
    """Latency of Flink's markers: events take at least as long."""

    p99_s: float
    mean_s: float

    @property
    def p99(self) -> Quantity:
        return seconds(self.p99_s, apart_from=self.mean_s)

    @property
    def mean(self) -> Quantity:
        return seconds(self.mean_s, apart_from=self.p99_s)


def _marker_line(job: KeptJob | None) -> MarkerLine | None:
    """Markers of a job of a look; None where it has none."""
    return MarkerLine(job.markers.p99_s, job.markers.mean_s) if job and job.markers else None


class Look:
    """Places and jobs of the last look."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._kept = connection.kept_look

    def __bool__(self) -> bool:
        return self._kept is not None

    @property
    def at(self) -> datetime:
        assert self._kept is not None
        return _moment(self._kept.at_s)

    @property
    def version(self) -> str:
        return self._kept.version if self._kept else ""

    @property
    def places(self) -> list[Place]:
        return sorted(self._kept.places if self._kept else (), key=lambda place: place.name)

    @property
    def jobs(self) -> tuple[KeptJob, ...]:
        return self._kept.jobs if self._kept else ()

    def markers_of(self, job: ImportedJob) -> MarkerLine | None:
        """Markers of the run of an imported job that it shows."""
        return _marker_line(next((row for row in self.jobs if row.id == job.engine_id), None))

    @property
    def running(self) -> list[KeptJob]:
        """Jobs that can be imported."""
        return [job for job in self.jobs if job.state == RUNNING]

    @property
    def place_nouns(self) -> str:
        """Noun of a place of this engine, one and several."""
        return _PLACES.get(self.connection.engine, "place,places")

    @property
    def place_noun(self) -> str:
        return self.place_nouns.partition(",")[0]

    @property
    def slots(self) -> int:
        return sum(place.slots for place in self.places)

    @property
    def cores(self) -> float:
        return sum(place.cores for place in self.places)

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/connections/sentences/look.html", look=self)


def job_mark(state: str) -> Mark:
    """Shape, colour and word of a job's state."""
    known = _JOB_MARKS.get(state)
    return known or Mark(_ENDED.drawing, _ENDED.tone, state.replace("_", " ").capitalize() or "Not known")


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, timezone.get_current_timezone())


@dataclass(frozen=True)
class NodePlace:
    """Place of an engine that a node is."""

    connection: Connection
    noun: str
    place: Place

    @property
    def memory(self) -> Quantity:
        return bytes_size(self.place.memory_bytes)

    @property
    def cpu_load(self) -> Quantity:
        return percent(self.place.cpu_load)

    @property
    def url(self) -> str:
        return url_of("pages:connection", self.connection.cluster.slug, self.connection.pk)

    @property
    def at(self) -> datetime:
        return Look(self.connection).at


def place_of_node(node: Node) -> NodePlace | None:
    """The TaskManager or executor that a node is; None for a machine that no engine brought."""
    rows = node.cluster.connections.select_related("cluster").defer("findings")
    connection = next((row for row in rows if row.pool_name == node.pool.name), None)
    if connection is None:
        return None
    look = Look(connection)
    known = {place.id: place for place in look.places}
    ids = (job.places.get(node.name) for job in connection.jobs.only("places"))
    place = next((known[place_id] for place_id in ids if place_id in known), None)
    return NodePlace(connection, look.place_noun, place) if place is not None else None
