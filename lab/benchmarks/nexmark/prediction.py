"""Answers about a query from its light load alone: shape, load, capacity by three rules, rescale and latencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from engine.capacity.saturation import ClusterSaturation
from engine.connectors.document import ImportedPool, ImportedQuery, import_picture
from engine.connectors.flink import read_flink
from engine.connectors.flink_polls import poll_flink
from engine.connectors.picture import CounterPoll, EngineJob, EnginePicture, JobSample
from engine.connectors.statistics import sample_job
from engine.connectors.thread_stacks import with_look
from engine.document.deployment import Deployment
from engine.document.unknown_costs import unknown_grounds
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import estimate
from engine.estimation.loads import loads_of
from engine.parallelism.autoscaler import AutoscalerOptions
from engine.parallelism.job import JobOperator, JobPlace, ScalableJob, document_job, feed_of
from engine.parallelism.plan import plan_parallelism
from engine.parallelism.question import ParallelismQuestion
from lab.benchmarks.nexmark.runs import LOADS, LoadPhase

__all__ = ["Interval", "JobShape", "NexmarkAnswer", "busiest_factor", "predict_query"]

_HORIZON_S, _STEPS = 120, 10
_STATISTICS = ("worst", "q0.99", "mean")
_SERVER_CPS = 1e9
_WAITING = "threads_are_servers"  # finding on a place whose threads mostly wait
#: Ground on which the console tells no latency, which is true of every run: the light load is shorter than it wants.
_STILL_MEASURING = "latency.still_measuring"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 90 % interval; without one where an end is None."""

    estimate: float
    low: float | None
    high: float | None

    def holds(self, value: float) -> bool | None:
        """Whether a value lies in it; None where there is no interval."""
        return None if self.low is None or self.high is None else self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class JobShape:
    """Vertices and edges of a job."""

    vertices: int
    edges: int


@dataclass(frozen=True)
class NexmarkAnswer:
    """All that is said of a query.

    Attributes
    ----------
    shape, imported : JobShape
        Of the plan that Flink answers, and of the document that came of it.
    busy : dict of str to (float, float or None)
        By operator, the share of a thread's time that it is busy: by the document, and by Flink's counters, which do
        not tell it of a chain that a source of the old interface begins.
    capacity : Interval or None
        As a multiple of the light load; None where it is unknown.
    two_loads : Interval or None
        The same where a second load was watched as well; None where none was, or it is unknown.
    at_most : float or None
        Multiple of the light load that measured costs alone allow, where the capacity is unknown.
    ds2, autoscaler : float or None
        The multiple by their rules; None where no operator tells its busy time.
    latencies_s : dict of int to dict of str to Interval
        By multiple of the load and statistic.
    latency_grounds : str or None
        Kind of the ground on which no latency is told: a cost that is unknown, or a part of the plan that nobody read.
        That the light load was short is no ground here.
    gain : Interval or None
        Largest rate with twice the subtasks over that of now; None where it is unknown.
    """

    shape: JobShape
    imported: JobShape
    busy: dict[str, tuple[float, float | None]]
    capacity: Interval | None
    at_most: float | None
    limit: str | None
    ds2: float | None
    autoscaler: float | None
    latencies_s: dict[int, dict[str, Interval]]
    findings: tuple[str, ...] = ()
    latency_grounds: str | None = None
    gain: Interval | None = None
    two_loads: Interval | None = None


def predict_query(
    phase: LoadPhase,
    *,
    second: LoadPhase | None = None,
    has_beats: bool = True,
    links: Sequence[Mapping[str, object]] = (),
) -> NexmarkAnswer:
    """Everything that the light load tells, by the code that a connection runs.

    `second`: another load that was watched, as an attempt of before: of it only how the largest rate is told better.
    `has_beats`: whether events come at the beginning of each second, as datagen has them, or at any time within it.
    `links`: between nodes, as a deployment document has them.

    Raises
    ------
    engine.errors.DocumentError
        The answers could not be read, or the document that they came to was refused.
    """
    picture, job, polls = _watched(phase)
    sample = sample_job(job, polls, places=picture.places)
    pool = import_picture(picture, {job.id: sample})
    query = next(query for query in pool.queries if query.job == job.id)
    plan = phase.picture[f"/jobs/{job.id}"]["plan"]["nodes"]
    read = [entry["from"] for operator in query.body["operators"] for entry in operator["inputs"]]
    steps = _STEPS if has_beats else 1
    deployment = _deployment(pool, sample, 1, steps, links)
    own = {name: sample.operators[vertex] for name, vertex in query.vertices.items()}
    shares = {name: None if found.cost_by else found.busy_share for name, found in own.items()}
    busiest = busiest_factor(shares.values())
    capacity, at_most, limit = _capacity(deployment, query.name)
    grounds = unknown_grounds(deployment, query.name)
    return NexmarkAnswer(
        shape=JobShape(len(plan), sum(len(node.get("inputs", ())) for node in plan)),
        imported=JobShape(len(query.body["operators"]), sum(name not in query.sources for name in read)),
        busy={name: (share, shares[name]) for name, share in _busy(deployment, query.vertices).items()},
        capacity=capacity,
        at_most=at_most,
        limit=limit,
        ds2=busiest,
        autoscaler=None if busiest is None else AutoscalerOptions().utilisation * busiest,
        latencies_s={times: _latencies(_deployment(pool, sample, times, steps, links)) for times in LOADS},
        findings=tuple(sorted({f.code for f in (*query.findings, *sample.findings)})),
        latency_grounds=None if grounds is None or grounds.kind == _STILL_MEASURING else grounds.kind,
        two_loads=_two_loads(phase, second, sample, steps, links),
        gain=_gain(deployment, _scalable_job(deployment, query, job, picture, pool)),
    )


def _watched(phase: LoadPhase) -> tuple[EnginePicture, EngineJob, list[CounterPoll]]:
    """Picture, job and polls that a connection was told in a phase."""
    picture = read_flink(phase.picture, phase.polls[-1][0])
    (job,) = (job for job in picture.jobs if f"/jobs/{job.id}/config" in phase.picture)
    # What watches the host of a Flink tells its load beside it; here the benchmark did.
    host_loads = {place.id: min(1.0, phase.load / place.cores) for place in picture.places}
    polls = [replace(poll_flink(answers, job.id, at_s), host_loads=host_loads) for at_s, answers in phase.polls]
    for i, answers in phase.looks:
        polls[i], _ = with_look(polls[i], job, answers)
    return picture, job, polls


def _two_loads(
    phase: LoadPhase, second: LoadPhase | None, light: JobSample, steps: int, links: Sequence[Mapping[str, object]]
) -> Interval | None:
    """Capacity by two loads, the second one seen before the light one that is there now."""
    if second is None or not second.polls:
        return None
    picture, job, polls = _watched(phase)
    before = _watched(second)[2]
    earlier_s = polls[0].at_s - before[-1].at_s - 60.0
    seen = [replace(poll, job=job.id, at_s=poll.at_s + earlier_s) for poll in before]
    sample = replace(sample_job(job, [*seen, *polls], places=picture.places), arrivals=light.arrivals)
    pool = import_picture(picture, {job.id: sample})
    query = next(query for query in pool.queries if query.job == job.id)
    return _capacity(_deployment(pool, sample, 1, steps, links), query.name)[0]


def busiest_factor(shares: Iterable[float | None]) -> float | None:
    """Largest multiple of the present load by DS2's rule: one over the largest share of time that a thread is busy.

    An operator that tells none is left out, as Flink's autoscaler leaves it out, too.
    """
    largest = max((share for share in shares if share is not None), default=0.0)
    return 1.0 / largest if largest > 0.0 else None


def _deployment(
    pool: ImportedPool, sample: JobSample, times: float, steps: int, links: Sequence[Mapping[str, object]]
) -> Deployment:
    """The job under a multiple of the sampled mean rates, all of a second's in the first of its steps."""
    query = next(query for query in pool.queries if query.job == sample.job)
    arrivals: Mapping[str, list[float]] = {
        name: [_rate(sample, vertex) * times, *[0.0] * (steps - 1)] * _HORIZON_S
        for name, vertex in query.sources.items()
    }
    return Deployment.parse(pool.to_deployment(arrivals, 1.0 / steps) | {"links": list(links)})


def _rate(sample: JobSample, vertex: str) -> float:
    counts = sample.arrivals.get(vertex)
    if counts is None:
        return 0.0
    known = [count for count in counts.counts if count is not None]
    return sum(known) / (len(known) * counts.step_s) if known else 0.0


def _busy(deployment: Deployment, names: Iterable[str]) -> dict[str, float]:
    loads = loads_of(deployment).operators().load.mean(axis=1) / (_SERVER_CPS * deployment.subinterval_s)
    return {name: float(loads[deployment.operator_index[name]]) for name in names}


def _latencies(deployment: Deployment) -> dict[str, Interval]:
    reports = estimate(deployment).queries
    if not reports:
        return {}
    (report,) = reports.values()
    if report.noise is None:
        return {}
    statistics = report.noise.statistics
    return {
        name: Interval(one.estimate_s, one.low_s, one.high_s) for name in _STATISTICS for one in (statistics[name],)
    }


def _scalable_job(
    deployment: Deployment, query: ImportedQuery, job: EngineJob, picture: EnginePicture, pool: ImportedPool
) -> ScalableJob:
    """The query as its engine told of it, as the console has it; slots that it does not use are free."""
    told, vertices = document_job(deployment, query.name), {vertex.id: vertex for vertex in job.vertices}
    operators = {}
    for name, id_ in query.vertices.items():
        vertex, element = vertices[id_], deployment.operators[deployment.operator_index[name]]
        feed = feed_of([exchange.strategy for exchange in vertex.inputs], element)
        operators[name] = JobOperator(
            feed, vertex.parallelism, vertex.max_parallelism, slot_group=vertex.slot_group or ""
        )
    waiting = {finding.subject for finding in pool.findings if finding.code == _WAITING}
    places = {place.id: place for place in picture.places}
    used = {
        id_: max(sum(subtask.place == id_ for subtask in vertex.subtasks) for vertex in job.vertices) for id_ in places
    }
    return replace(
        told,
        operators=operators,
        places={
            node.name: JobPlace(
                slots=place.slots,
                free=max(0, place.slots - used[place.id]),
                host=place.host or place.id,
                host_cores=place.cores,
                waits=place.name in waiting,
            )
            for node in pool.nodes
            if (place := places.get(node.place)) is not None
        },
        is_engine_known=True,
    )


def _gain(deployment: Deployment, job: ScalableJob) -> Interval | None:
    """Gain in the largest rate of twice the subtasks of all that can have more; None where it is unknown."""
    scaled = [row.parallelism for name, row in job.operators.items() if job.grounds(name) is None]
    if not scaled:
        return None
    twice = 2 * max(scaled)
    question = ParallelismQuestion(parallelism=(twice,))
    choice = plan_parallelism(EstimateBase.of(deployment), job, question).choice(twice)
    return None if choice is None or choice.gain is None else Interval(choice.gain, choice.gain_low, choice.gain_high)


def _capacity(deployment: Deployment, query: str) -> tuple[Interval | None, float | None, str | None]:
    """Multiple of the light load that is sustained, what it is at most where that is unknown, and what limits it."""
    answer = ClusterSaturation(deployment).of_query(query)
    limit = answer.limit.operator if answer.limit else None
    at_most = None if answer.at_most_per_s is None or not answer.now_per_s else answer.at_most_per_s / answer.now_per_s
    if answer.rate_per_s is None or not answer.now_per_s:
        return None, at_most, limit
    low, high = answer.low_per_s, answer.high_per_s
    interval = Interval(
        answer.rate_per_s / answer.now_per_s,
        None if low is None else low / answer.now_per_s,
        None if high is None else high / answer.now_per_s,
    )
    return interval, at_most, limit
