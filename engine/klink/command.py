"""``slack``, ``memory``, ``pick`` and ``forwarding`` of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from engine.errors import DocumentError, Fault, join_path
from engine.kinds import Enumeration, Number, String
from engine.klink.policies import best_gain, gain_as_printed, pick_by_gain
from engine.klink.slack import SOURCE, forwarding_messages, loop_steps, looped_slack_ms, stream_slack_ms
from engine.klink.watermarks import MEAN_VARIANCE, SweepForecast, moments, normal_forecast
from engine.records import BAD, ItemCount, Record, Words

__all__ = ["forwarding_command", "memory_command", "pick_command", "slack_command"]

_FAR_MS = 1e15  # thirty thousand years: beyond, sums of times and squares are no longer exact
_MAX_STEPS = 1_000_000  # of Algorithm 1's loop
_ROUNDING = 1e-6  # relative: a mean square below the square of its mean by no more than this is rounding
_MAX_VALUE = 1e15  # events, times and ratios beyond it are a mistake

_Instant = Annotated[float, Number(least=-_FAR_MS, most=_FAR_MS)]
_Duration = Annotated[float, Number(least=0, most=_FAR_MS)]
_Square = Annotated[float, Number(least=0, most=_FAR_MS**2)]
_Positive = Annotated[float, Number(above=0)]
_Series = Annotated[tuple[Annotated[float, Number(least=0, most=_MAX_VALUE)], ...], ItemCount(1)]


@dataclass(frozen=True)
class _Stream(Record):
    TITLE: ClassVar[str] = "a stream"
    JUDGES_PARTS: ClassVar[bool] = True

    mu: Annotated[tuple[_Duration, ...], ItemCount(1), Words("mean delay of each finished epoch, oldest first")]
    chi: Annotated[tuple[_Square, ...], ItemCount(1), Words("their mean squared delay")]
    period: Annotated[_Positive, Words("from one window's deadline to the next")]
    last_swm_generated: Annotated[_Instant, Words("when the last sweeping watermark was generated")]
    pending_swm_ingested: Annotated[_Instant | None, Words("when one came that is not processed")] = None

    def find_faults(self) -> Iterator[Fault]:
        """Epochs of which one series has more than the other, and squares below those of their means."""
        if self.mu is BAD or self.chi is BAD:
            return
        if len(self.mu) != len(self.chi):
            means, squares = len(self.mu), len(self.chi)
            message = f"the history has {means} epochs in mu and {squares} in chi; allowed: as many of both"
            yield Fault("chi", message)
            return
        for epoch, (mean, square) in enumerate(zip(self.mu, self.chi, strict=True)):
            if mean is not BAD and square is not BAD and square < mean * mean * (1 - _ROUNDING):
                message = f"chi is {square:g}; allowed: the square of mu ({mean * mean:g}) or more"
                yield Fault(f"chi[{epoch}]", message)


@dataclass(frozen=True)
class _StreamsQuery(Record):
    TITLE: ClassVar[str] = "the query"
    JUDGES_PARTS: ClassVar[bool] = True

    cost: Annotated[_Duration, Words("CPU time of the work before the watermark")]
    streams: Annotated[tuple[_Stream, ...], ItemCount(1)]


@dataclass(frozen=True, kw_only=True)
class _SlackProblem(Record):
    TITLE: ClassVar[str] = "slack problem"
    JUDGES_PARTS: ClassVar[bool] = True

    t: Annotated[_Instant, Words("now")]
    r: Annotated[_Positive, Words("step of Algorithm 1's loop")]
    f: Annotated[_Positive, Words("confidence of the interval")]
    h: Annotated[int, Number(least=1, whole=True), Words("epochs that count")]
    var_mode: Annotated[
        str, Enumeration(("predictive", MEAN_VARIANCE)), Words("of one delay, or as printed (predictive)")
    ] = "predictive"
    z_mode: Annotated[str, Enumeration(("f", "two_sigma")), Words("width of the interval: by f, or as printed (f)")] = (
        "f"
    )
    query: _StreamsQuery

    def find_faults(self) -> Iterator[Fault]:
        """A confidence of 1, and watermarks that came later than now."""
        if self.f is not BAD and 1 + self.f >= 2:  # what rounds to 1 has no quantile either
            yield Fault("f", f"f is {self.f:g}; allowed: a finite number above 0 and below 1")
        if self.t is BAD or self.query is BAD or self.query.streams is BAD:
            return
        for index, stream in enumerate(self.query.streams):
            pending_ms = None if stream is BAD else stream.pending_swm_ingested
            if pending_ms is not None and pending_ms is not BAD and pending_ms > self.t:
                message = f"pending_swm_ingested is {pending_ms:g}; allowed: up to now (t), {self.t:g}"
                yield Fault(f"query.streams[{index}].pending_swm_ingested", message)

    def forecast(self, stream: _Stream) -> tuple[float, SweepForecast]:
        """Variance (ms2) and forecast of the next watermark; one that is here is certain."""
        pending_ms, mu, chi = stream.pending_swm_ingested, stream.mu[-self.h :], stream.chi[-self.h :]
        if pending_ms is not None:
            return 0.0, SweepForecast(pending_ms, 0.0, pending_ms, pending_ms, len(mu))
        mean, variance = moments(mu, chi, self.var_mode)
        forecast = normal_forecast(stream.last_swm_generated + stream.period, mean, variance, len(mu), self.f)
        if self.z_mode == "two_sigma":
            half_ms = 2 * forecast.deviation_ms
            least_ms, most_ms = forecast.mean_ms - half_ms, forecast.mean_ms + half_ms
            forecast = SweepForecast(forecast.mean_ms, forecast.deviation_ms, least_ms, most_ms, len(mu))
        return variance, forecast


@dataclass(frozen=True)
class _StreamSlack(Record):
    mean: float
    var: float
    tmin: float
    tmax: float
    epochs: int
    slack: float
    slack_alg1: float | None


@dataclass(frozen=True)
class _SlackAnswer(Record):
    streams: tuple[_StreamSlack, ...]
    slack: float
    slack_last: float


def slack_command(document: Any) -> _SlackAnswer:
    """Per stream mean, variance, interval and slack (ms); of the query the least, and that of the last stream."""
    asked = _SlackProblem.parse(document)
    forecasts = [(stream, *asked.forecast(stream)) for stream in asked.query.streams]
    steps = max(loop_steps(asked.t, forecast, asked.r) for _, _, forecast in forecasts)
    if steps > _MAX_STEPS:
        message = f"r is {asked.r:g}, which makes {steps:.0f} steps of an interval; allowed: {_MAX_STEPS:,} or fewer"
        raise DocumentError([Fault("r", message)], asked.TITLE)
    streams = tuple(_stream_slack(asked, *each) for each in forecasts)
    slacks = [stream.slack for stream in streams]
    return _SlackAnswer(streams, min(slacks), max(slacks))


def _stream_slack(asked: _SlackProblem, stream: _Stream, variance: float, forecast: SweepForecast) -> _StreamSlack:
    cost_ms, pending_ms = asked.query.cost, stream.pending_swm_ingested
    return _StreamSlack(
        mean=forecast.mean_ms,
        var=variance,
        tmin=forecast.least_ms,
        tmax=forecast.most_ms,
        epochs=forecast.epochs,
        slack=stream_slack_ms(asked.t, cost_ms, forecast, pending_ms),
        slack_alg1=None if pending_ms is not None else looped_slack_ms(asked.t, cost_ms, forecast, asked.r),
    )


@dataclass(frozen=True)
class _WaitingQuery(Record):
    TITLE: ClassVar[str] = "a query"
    JUDGES_PARTS: ClassVar[bool] = True

    queued: Annotated[_Series, Words("events before each operator")]
    selectivity: Annotated[_Series, Words("events out per event in")]
    cost_ms: Annotated[_Series, Words("CPU time of an event")]

    def length_faults(self, path: str) -> Iterator[Fault]:
        """Series of another number of operators than wait."""
        for name, series in (("selectivity", self.selectivity), ("cost_ms", self.cost_ms)):
            if self.queued is not BAD and series is not BAD and len(series) != len(self.queued):
                message = f"{name} has {len(series)} operators; allowed: {len(self.queued)}, as many as queued"
                yield Fault(join_path(path, name), message)


@dataclass(frozen=True)
class _MemoryProblem(Record):
    TITLE: ClassVar[str] = "memory problem"
    JUDGES_PARTS: ClassVar[bool] = True

    queries: Mapping[str, _WaitingQuery]
    slacks: Annotated[
        Mapping[str, Annotated[float, Number(least=-_MAX_VALUE, most=_MAX_VALUE)]], Words("of each query, ms")
    ]
    r: Annotated[_Positive, Words("length of a cycle, ms")]

    def find_faults(self) -> Iterator[Fault]:
        """Queries without a slack, their series that do not agree, and slacks of no query."""
        if self.queries is BAD:
            return
        if not self.queries:
            yield Fault("queries", "queries is empty; allowed: at least one query")
        for name, query in self.queries.items():
            if self.slacks is not BAD and name not in self.slacks:
                yield Fault(join_path("slacks", name), f"{name} has no slack; every query needs one")
            if query is not BAD:
                yield from query.length_faults(join_path("queries", name))
        for name in () if self.slacks is BAD else self.slacks:
            if name not in self.queries:
                yield Fault(join_path("slacks", name), f"{name} is not among the queries")


@dataclass(frozen=True)
class _MemoryAnswer(Record):
    gain: Mapping[str, tuple[float, int]]
    picked: str | None
    gain_as_printed: Mapping[str, tuple[float, int]]


def memory_command(document: Any) -> _MemoryAnswer:
    """Events each query can remove in a cycle, to which operator; the query that runs; the paper's formula beside."""
    asked = _MemoryProblem.parse(document)
    gains = {
        name: best_gain(query.queued, query.selectivity, query.cost_ms, asked.r)
        for name, query in asked.queries.items()
    }
    return _MemoryAnswer(
        gain=gains,
        picked=pick_by_gain({name: gain for name, (gain, _) in gains.items()}, asked.slacks),
        gain_as_printed={
            name: gain_as_printed(query.queued, query.selectivity) for name, query in asked.queries.items()
        },
    )


@dataclass(frozen=True)
class _PickProblem(Record):
    TITLE: ClassVar[str] = "pick problem"

    slacks: Annotated[Mapping[str, Annotated[float, Number()]], Words("of each query, ms")]

    def find_faults(self) -> Iterator[Fault]:
        """That there is no query."""
        if not self.slacks:
            yield Fault("slacks", "slacks is empty; allowed: at least one query")


def pick_command(document: Any) -> dict[str, str]:
    """The query that runs next: least slack, above 0 too; ties by id."""
    slacks = _PickProblem.parse(document).slacks
    return {"picked": min(slacks, key=lambda name: (slacks[name], name))}


@dataclass(frozen=True)
class _ForwardingProblem(Record):
    TITLE: ClassVar[str] = "forwarding problem"
    JUDGES_PARTS: ClassVar[bool] = True

    ops: Annotated[
        tuple[Annotated[tuple[Annotated[str, String()], ...], ItemCount(2, 2)], ...],
        ItemCount(1),
        Words("[name, node] in pipeline order"),
    ]
    watermark_at: Annotated[str, String(), Words("source, or the operator that makes watermarks")]

    def find_faults(self) -> Iterator[Fault]:
        """Operators of one name, and a maker of watermarks that there is not."""
        if self.ops is BAD:
            return
        names: list[str] = []
        for index, op in enumerate(self.ops):
            name: Any = BAD if op is BAD else op[0]
            if name is BAD:
                continue
            if name in names or name == SOURCE:
                other = "the name of what comes in" if name == SOURCE else "already an operator"
                yield Fault(f"ops[{index}][0]", f"{name} is {other}; allowed: names that differ")
            names.append(name)
        if self.watermark_at is not BAD and self.watermark_at not in (SOURCE, *names):
            allowed = ", ".join((SOURCE, *names))
            yield Fault("watermark_at", f"watermark_at is {self.watermark_at!r}; allowed: {allowed}")


def forwarding_command(document: Any) -> dict[str, list[list[object]]]:
    """Messages [from, to, [what]], sorted: `delay` of watermarks, `cost:NAME` of operators."""
    asked = _ForwardingProblem.parse(document)
    messages = forwarding_messages([(name, node) for name, node in asked.ops], asked.watermark_at)
    return {"messages": [list(message) for message in messages]}
