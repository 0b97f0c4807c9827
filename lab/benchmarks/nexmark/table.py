"""Table of what was said of each query and what came, and the targets that were missed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from lab.benchmarks.nexmark.prediction import Interval, NexmarkAnswer
from lab.benchmarks.nexmark.queries import QUERIES
from lab.benchmarks.nexmark.runs import LOADS, LoadPhase, QueryRun

__all__ = ["ScoredQuery", "latency_table", "missed_targets", "rate_table", "row_json", "summary"]

_MEDIAN, _WORST, _COVERAGE = 0.10, 0.20, 0.85
_WORK = 0.10  # of the busy share, or so much of a thread's time, within which it is right
_IDLE = 0.005
_HELD = 0.93  # of the rate that was asked for: below, the load was not sustained
_UNKNOWN = "unknown"
_RULES = ("capacity", "two_loads", "ds2", "autoscaler")
#: By what a row's latency counts from: for a window it is that of its first event, the worst of the window.
_STATISTICS: dict[str, tuple[str, ...]] = {"event": ("q0.99", "mean"), "window": ("worst",), "none": ()}


@dataclass(frozen=True)
class ScoredQuery:
    """A query: what was run of it, and what was said; `failure` says why one of the two is missing or in part."""

    query: str
    run: QueryRun | None
    prediction: NexmarkAnswer | None
    failure: str = ""

    def saturated_per_s(self, parallelism: int = 1) -> float | None:
        """Rows per second that it did at most; None where it kept up with everything or was not driven there."""
        phase = self._phase(f"saturated {parallelism}")
        return phase.rate_per_s if phase and phase.rate_per_s < _HELD * phase.asked_per_s else None

    @property
    def light_per_s(self) -> float | None:
        phase = self._phase("load 1")
        return phase.rate_per_s if phase else None

    def rate_per_s(self, rule: str) -> Interval | None:
        """Largest rate that a rule promises, in rows per second: one of `_RULES`, the first two Sluice's."""
        light, said = self.light_per_s, self.prediction
        factor = None if said is None else getattr(said, rule)
        if light is None or factor is None:
            return None
        if not isinstance(factor, Interval):
            return Interval(factor * light, None, None)
        ends = [None if end is None else end * light for end in (factor.low, factor.high)]
        return Interval(factor.estimate * light, ends[0], ends[1])

    def error(self, rule: str) -> float | None:
        """Relative error of a rule's rate, with its sign."""
        measured, said = self.saturated_per_s(), self.rate_per_s(rule)
        return said.estimate / measured - 1.0 if measured and said else None

    @property
    def gain(self) -> float | None:
        """Rate at saturation of two subtasks over that of one."""
        one, two = self.saturated_per_s(1), self.saturated_per_s(2)
        return two / one if one and two else None

    @property
    def gain_error(self) -> float | None:
        """Relative error of the gain that was predicted, with its sign."""
        measured, said = self.gain, self.prediction.gain if self.prediction else None
        return said.estimate / measured - 1.0 if measured and said else None

    @property
    def is_shape_right(self) -> bool | None:
        return None if self.prediction is None else self.prediction.shape == self.prediction.imported

    @property
    def works(self) -> list[bool]:
        """For each operator that tells it, whether the document has it as busy as it was."""
        if self.prediction is None:
            return []
        known = [(said, told) for said, told in self.prediction.busy.values() if told is not None]
        return [abs(said - told) <= max(_WORK * told, _IDLE) for said, told in known]

    @property
    def statistics(self) -> tuple[str, ...]:
        """Statistics of its latencies that were measured."""
        return _STATISTICS[QUERIES[self.query].moment]

    def latency(self, times: int, statistic: str) -> tuple[Interval | None, float] | None:
        """Predicted, None where it is unknown, and measured, of a load that was sustained."""
        phase, said = self._phase(f"load {times}"), self.prediction
        if phase is None or said is None or not phase.rows or phase.rate_per_s < _HELD * phase.asked_per_s:
            return None
        quantile = {"worst": 100, "q0.99": 99}
        measured = phase.mean_s if statistic == "mean" else phase.latencies_s[quantile[statistic]]
        if measured is None:
            return None
        is_known = said.latency_grounds is None
        return said.latencies_s.get(times, {}).get(statistic) if is_known else None, measured

    def _phase(self, name: str) -> LoadPhase | None:
        return self.run.phases.get(name) if self.run else None


def rate_table(rows: Iterable[ScoredQuery]) -> str:
    """JobShape, work and rates of every query."""
    lines = [
        "| query | shape | busy as counted | light (rows/s) | max measured | Sluice (90 %) | error |"
        " by two loads | error | DS2 | error | autoscaler (70 %) | error | twice the subtasks: said / came | load |",
        "|" + " --- |" * 15,
    ]
    for row in rows:
        if row.prediction is None or row.run is None:
            lines.append(f"| {row.query} | {row.failure or 'not run'} |" + " |" * 13)
            continue
        shape = f"{row.prediction.imported.vertices}, {row.prediction.imported.edges}"
        cells = [
            row.query,
            shape if row.is_shape_right else f"**{shape}** of {row.prediction.shape}",
            f"{sum(row.works)} of {len(row.works)}",
            _number(row.light_per_s),
            _number(row.saturated_per_s()) if row.saturated_per_s() else _unsaturated(row),
        ]
        for rule in _RULES:
            cells += [_said(row, rule), _percent(row.error(rule))]
        loads = [phase.load for phase in row.run.phases.values()]
        cells += [_gain(row), f"{max(loads):.1f}" if loads else "-"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def latency_table(rows: Iterable[ScoredQuery]) -> str:
    """Predicted with its interval against measured, by load."""
    lines = [f"| query | statistic | {' | '.join(f'{times} times (s)' for times in LOADS)} |", "|" + " --- |" * 6]
    for row in rows:
        for statistic in row.statistics:
            cells = [_pair(row.latency(times, statistic)) for times in LOADS]
            if any(cell != "-" for cell in cells):
                lines.append(f"| {row.query} | {statistic} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[ScoredQuery]) -> str:
    """Errors of each rule over the queries for which it says something, and how many intervals hold."""
    lines = [
        "| rule | queries | median error | worst | within 10 % | interval holds | says nothing |",
        "|" + " --- |" * 7,
    ]
    driven = [row for row in rows if row.saturated_per_s()]
    for rule in _RULES:
        errors = [abs(error) for row in driven if (error := row.error(rule)) is not None]
        if errors:
            within = sum(error <= _MEDIAN for error in errors)
            held = _rates_held(driven, rule)
            holds = f"{sum(held)} of {len(held)}" if held else ""
            cells = [f"{median(errors):.0%}", f"{max(errors):.0%}", str(within), holds, str(len(driven) - len(errors))]
            lines.append(f"| {rule} | {len(errors)} | {' | '.join(cells)} |")
        else:
            lines.append(f"| {rule} | 0 | | | | | {len(driven)} |")
    all_held, unknown = _held(rows), [pair[0] is None for pair in _latencies(rows)]
    lines += ["", f"intervals that hold: {sum(all_held)} of {len(all_held)}"]
    lines.append(f"latencies that are said to be unknown: {sum(unknown)} of {len(unknown)}")
    return "\n".join([*lines, _gain_summary(rows)]) + "\n"


def missed_targets(rows: Sequence[ScoredQuery]) -> list[str]:
    """Targets that were missed, each with its figure."""
    missed = [f"{row.query}: {row.failure}" for row in rows if row.failure]
    missed += [f"{row.query}: the shape is not that of the plan" for row in rows if row.is_shape_right is False]
    errors = {row.query: abs(error) for row in rows if (error := row.error("capacity")) is not None}
    if errors and median(errors.values()) > _MEDIAN:
        missed.append(f"median error of the largest rate is {median(errors.values()):.0%}, {_MEDIAN:.0%} were aimed at")
    for row in rows:
        own, ds2 = errors.get(row.query), row.error("ds2")
        if own is not None and own > _WORST:
            missed.append(f"{row.query}: the largest rate is off by {own:.0%}, {_WORST:.0%} were aimed at")
        if own is not None and ds2 is not None and own > abs(ds2):
            missed.append(f"{row.query}: DS2's rule is closer, {abs(ds2):.0%} against {own:.0%}")
        if row.saturated_per_s() and row.query not in errors:
            missed.append(f"{row.query}: its largest rate is not known")
    gains = _gain_errors(rows)
    if gains and median(gains) > _MEDIAN:
        missed.append(f"median error of the gain is {median(gains):.0%}, {_MEDIAN:.0%} were aimed at")
    held = _held(rows)
    if held and sum(held) < _COVERAGE * len(held):
        missed.append(f"{sum(held)} of {len(held)} intervals hold, {_COVERAGE:.0%} were aimed at")
    return missed


def row_json(row: ScoredQuery) -> dict[str, object]:
    """A row with all of its figures, without the answers that they are from."""
    phases = {} if row.run is None else {name: asdict(phase) for name, phase in row.run.phases.items()}
    for phase in phases.values():
        del phase["picture"], phase["polls"]
    return {
        "query": row.query,
        "failure": row.failure,
        "phases": phases,
        "prediction": None if row.prediction is None else asdict(row.prediction),
        "saturated_per_s": row.saturated_per_s(),
        "errors": {rule: row.error(rule) for rule in _RULES},
        "gain": row.gain,
        "gain_error": row.gain_error,
    }


def _held(rows: Sequence[ScoredQuery]) -> list[bool]:
    """Of every interval, whether what was measured lies in it."""
    known = [said.holds(measured) for said, measured in _latencies(rows) if said is not None]
    return _rates_held(rows, "capacity") + [holds for holds in known if holds is not None]


def _rates_held(rows: Iterable[ScoredQuery], rule: str) -> list[bool]:
    """Of every interval of a largest rate, whether what came at saturation lies in it."""
    pairs = [(row.rate_per_s(rule), row.saturated_per_s()) for row in rows]
    known = [said.holds(measured) for said, measured in pairs if said is not None and measured is not None]
    return [holds for holds in known if holds is not None]


def _latencies(rows: Iterable[ScoredQuery]) -> list[tuple[Interval | None, float]]:
    """Latencies of every load and statistic that was measured."""
    pairs = [row.latency(times, name) for row in rows for times in LOADS for name in row.statistics]
    return [pair for pair in pairs if pair is not None]


def _gain_errors(rows: Iterable[ScoredQuery]) -> list[float]:
    return [abs(row.gain_error) for row in rows if row.gain_error is not None]


def _gain_summary(rows: Sequence[ScoredQuery]) -> str:
    errors, driven = _gain_errors(rows), [row for row in rows if row.gain is not None]
    if not errors:
        return f"gain of twice the subtasks: unknown of {len(driven)}"
    told = [row.prediction.gain.holds(row.gain) for row in driven if row.prediction and row.prediction.gain]
    return (
        f"gain of twice the subtasks: median error {median(errors):.0%}, worst {max(errors):.0%}, within 10 % in"
        f" {sum(error <= _MEDIAN for error in errors)} of {len(errors)}, in the interval in {sum(map(bool, told))},"
        f" unknown in {len(driven) - len(errors)}"
    )


def _said(row: ScoredQuery, rule: str) -> str:
    said = row.rate_per_s(rule)
    if said is not None:
        ends = "" if said.low is None or said.high is None else f" ({said.low:.0f}-{said.high:.0f})"
        return f"{said.estimate:.0f}{ends}"
    at_most, light = row.prediction.at_most if row.prediction else None, row.light_per_s
    is_bounded = rule == "capacity" and at_most is not None and light is not None
    return f"at most {at_most * light:.0f}" if is_bounded else _UNKNOWN  # type: ignore[operator]


def _unsaturated(row: ScoredQuery) -> str:
    phase = row.run.phases.get("saturated 1") if row.run else None
    return f"over {phase.rate_per_s:.0f}" if phase else "not driven"


def _gain(row: ScoredQuery) -> str:
    said = row.prediction.gain if row.prediction else None
    if row.gain is None:
        return f"{_spread(said)} / -" if said else "-"
    return f"{_spread(said)} / {row.gain:.2f} times"


def _pair(pair: tuple[Interval | None, float] | None) -> str:
    return "-" if pair is None else f"{_spread(pair[0])} / {pair[1]:.2f}"


def _spread(said: Interval | None) -> str:
    if said is None:
        return _UNKNOWN
    ends = "" if said.low is None or said.high is None else f" ({said.low:.2f}-{said.high:.2f})"
    return f"{said.estimate:.2f}{ends}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _percent(error: float | None) -> str:
    return "" if error is None else f"{error:+.0%}"
