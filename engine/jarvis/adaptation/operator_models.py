"""Models of a source's operators, learned from epochs: cost, groups, relay ratio, record sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.jarvis.adaptation.control import EpochObservation, OperatorEpoch, SourceOperator
from engine.jarvis.group_law import GroupLaw, distinct
from engine.jarvis.refined_config import OperatorPrior, RefinedAdaptation
from engine.measurement.sums import GROUP_OVER_RECORD, SPREAD, separate_costs

__all__ = ["MIN_RECORDS", "PipelineModel"]

MIN_RECORDS = 30  # that an operator must have worked on, for them to teach something
_FORGETTING = 0.7  # of ratios, with each epoch: three of them weigh most
_SLOW = 0.97  # of how the cost is made up of records and groups, which is seen when the load moves
_JUMP = 1.25  # of a ratio against what was thought: it has changed, older epochs say nothing of it
_COMPARABLE = 0.1  # of the records behind a ratio, for an epoch that may contradict all of them


class _Ratio:
    """Sums of two counts, older ones forgotten; a jump starts anew."""

    def __init__(self) -> None:
        self.above = self.below = 0.0

    def add(self, above: float, below: float) -> float:
        """Add counts; returns the factor of a jump of the ratio, else 1."""
        known = self.value
        jump = above / below / known if known else 1.0
        if 1 / _JUMP < jump < _JUMP or below < _COMPARABLE * self.below:
            self.above = _FORGETTING * self.above + above
            self.below = _FORGETTING * self.below + below
            return 1.0
        self.above, self.below = above, below
        return jump

    @property
    def value(self) -> float | None:
        return self.above / self.below if self.below > 0 else None


class _Cost:
    """T = level (a n + b g): how records and groups make it up is learned slowly, its level fast.

    The normal equations are solved where groups per record have varied enough; until then, and where noise makes one of
    the two negative, their proportion stays what it was.
    """

    def __init__(self) -> None:
        self._a, self._b = 1.0, GROUP_OVER_RECORD
        self._apart = False
        self._n = self._g = self._t = 0.0
        self._equations = (0.0, 0.0, 0.0, 0.0, 0.0)  # wn2, wng, wg2, wnt, wgt

    @property
    def known(self) -> bool:
        return self._n > 0

    def seconds(self, records: float, groups: float) -> float:
        """CPU time of an epoch; 0 while nothing is known."""
        unit = self._a * self._n + self._b * self._g
        return self._t / unit * (self._a * records + self._b * groups) if unit > 0 else 0.0

    def seed(self, cost_s: float, group_cost_s: float | None, groups_per_record: float) -> None:
        """Seed from learned figures: the proportion, unless seen here; the level, where nothing is known."""
        if group_cost_s is not None and cost_s + group_cost_s > 0 and not self._apart:
            self._a, self._b = cost_s, group_cost_s
        if not self.known:
            self._n, self._g = MIN_RECORDS, MIN_RECORDS * groups_per_record
            self._t = cost_s * self._n + (group_cost_s or 0.0) * self._g

    def observe(self, records: float, groups: float, cpu_s: float) -> None:
        if self.known:
            self._settle(records, groups, cpu_s)
        self._n = _FORGETTING * self._n + records
        self._g = _FORGETTING * self._g + groups
        self._t = _FORGETTING * self._t + cpu_s
        share, cost = groups / records, cpu_s / records
        new = (1.0, share, share * share, cost, share * cost)
        self._equations = tuple(_SLOW * old + added for old, added in zip(self._equations, new, strict=True))  # type: ignore[assignment]
        both = separate_costs(*self._equations)
        if both and sum(both) > 0:
            (self._a, self._b), self._apart = both, True

    def _settle(self, records: float, groups: float, cpu_s: float) -> None:
        """Forget a level that this epoch contradicts; at an unchanged load it is the operator that has changed."""
        thought = self.seconds(records, groups)
        jump = cpu_s / thought if thought > 0 else 1.0
        telling = records >= _COMPARABLE * self._n or cpu_s >= _COMPARABLE * self._t
        if 1 / _JUMP < jump < _JUMP or not telling:
            return
        usual = self._g / self._n
        if abs(groups / records - usual) <= SPREAD**0.5 * usual:
            wn2, wng, wg2, wnt, wgt = self._equations
            self._equations = (wn2, wng, wg2, wnt * jump, wgt * jump)
        self._n = self._g = self._t = 0.0


class _Blocks:
    """Records into and rows out of a windowed aggregate over whole windows in which no load factor changed."""

    def __init__(self, epochs_per_window: float) -> None:
        self.windows, self.epochs = _whole(epochs_per_window)
        self._begin()

    def _begin(self, wait: int = 0) -> None:
        self._passed, self._records, self._rows = -wait, 0, 0

    def add(self, seen: OperatorEpoch, *, steady: bool) -> tuple[float, float] | None:
        """An epoch; returns records and rows of a window once a block is whole."""
        if not steady:
            self._begin(wait=self.epochs)  # what comes out next began under other load factors
        self._passed += 1
        if self._passed <= 0:
            return None
        self._records += seen.processed
        self._rows += seen.records_out
        if self._passed < self.epochs:
            return None
        block = self._records / self.windows, self._rows / self.windows
        self._begin()
        return block


def _whole(epochs_per_window: float) -> tuple[int, int]:
    """Smallest numbers of windows and of epochs that nearly span the same time."""
    for windows in range(1, 10):
        epochs = windows * epochs_per_window
        if epochs >= 1 and abs(epochs - round(epochs)) <= 0.05 * epochs:
            return windows, round(epochs)
    return 10, max(round(10 * epochs_per_window), 1)


class OperatorModel:
    """One operator; records are those that it works on in an epoch."""

    def __init__(self, operator: SourceOperator) -> None:
        self.operator = operator
        self.relay, self.size, self.cost = _Ratio(), _Ratio(), _Cost()
        self.law, self.window_law = GroupLaw(), GroupLaw()
        self._blocks: _Blocks | None = None
        self._waiting = (0.0, 0.0, 0.0, 0.0, 0.0)  # epochs, records, groups, rows, CPU seconds: too few yet
        self._windows = (0, 0.0, 0.0)  # windows, records, rows: too few yet
        self._rare = False  # it took several epochs to see enough records: nothing of groups is to be seen in one

    @property
    def known(self) -> bool:
        """Whether it was observed here, or known from a prior; where records are rare, for whole windows."""
        seen_windows = not self.operator.window_s or self.window_law.groups is not None
        return self.cost.known and (seen_windows or not self._rare)

    def cpu_s(self, records: float) -> float:
        """CPU seconds of an epoch."""
        return self.cost.seconds(records, self.law.distinct(records) if self.law.groups else 0.0)

    def rows(self, records: float, epoch_s: float) -> float:
        """Records put out for these, of a windowed aggregate on average over its windows."""
        if self.law.groups is None:
            ratio = self.relay.value
            return records if ratio is None else records * ratio
        if not self.operator.window_s:
            return self.law.distinct(records)
        epochs = max(self.operator.window_s / epoch_s, 1.0)
        law = self.law if self.window_law.groups is None else self.window_law
        return law.distinct(records * epochs) / epochs

    def observe(self, seen: OperatorEpoch, epoch_s: float, *, steady: bool) -> None:
        """An epoch; `steady` where it ran with the load factors of the one before."""
        if seen.records_out > 0:
            self.size.add(seen.bytes_out, seen.records_out)
        if self.operator.window_s:
            self._observe_window(seen, epoch_s, steady=steady)
        if seen.processed <= 0:
            return
        new = (1, seen.processed, seen.groups, seen.records_out, seen.cpu_s)
        epochs, records, groups, rows, cpu_s = (old + added for old, added in zip(self._waiting, new, strict=True))
        if records < MIN_RECORDS:
            self._waiting = (epochs, records, groups, rows, cpu_s)
            return
        self._waiting, self._rare = (0.0, 0.0, 0.0, 0.0, 0.0), epochs > 1
        groups = min(groups, records)
        self.relay.add(rows, records)
        self.law.observe(records / epochs, groups / epochs)
        self.cost.observe(records, groups, cpu_s)

    def _observe_window(self, seen: OperatorEpoch, epoch_s: float, *, steady: bool) -> None:
        if self._blocks is None:
            self._blocks = _Blocks((self.operator.window_s or epoch_s) / epoch_s)
        if not steady:
            self._windows = (0, 0.0, 0.0)
        block = self._blocks.add(seen, steady=steady)
        if block is None:
            return
        windows, records, rows = self._windows[0] + 1, self._windows[1] + block[0], self._windows[2] + block[1]
        self._windows = (windows, records, rows)
        if records >= MIN_RECORDS:
            self._windows = (0, 0.0, 0.0)
            if 0 < rows <= records:
                self.window_law.observe(records / windows, rows / windows)

    def seed(self, prior: OperatorPrior, record_bytes: float, records: float) -> None:
        """Seed from figures learned elsewhere at about so many records an epoch, where nothing is known here."""
        groups = prior.groups if self.operator.stateful else None
        per_record = distinct(records, groups) / records if groups and records > 0 else 0.0
        self.cost.seed(prior.cost_s, prior.group_cost_s, per_record)
        if groups:
            self.law.seed(groups)
        if self.relay.value is None:
            self.relay.above, self.relay.below = prior.relay * MIN_RECORDS, MIN_RECORDS
        if self.size.value is None:
            self.size.above, self.size.below = record_bytes, 1.0


@dataclass(frozen=True, slots=True)
class EpochForecast:
    """Forecast of an epoch under given load factors."""

    cpu_s: float
    sent: float  #: bytes, or records drained


class PipelineModel:
    """A pipeline of operators at one source."""

    def __init__(self, operators: Sequence[SourceOperator]) -> None:
        self.operators = tuple(OperatorModel(operator) for operator in operators)
        self.record_bytes = _Ratio()
        self.epoch_s = 1.0
        self._factors: tuple[float, ...] = ()

    def observe(self, observation: EpochObservation) -> None:
        """Learn from an epoch that has ended."""
        self.epoch_s = observation.epoch_s
        factors = tuple(operator.load_factor for operator in observation.operators)
        steady, self._factors = factors == self._factors, factors
        first = observation.operators[0] if observation.operators else None
        if first and first.records_in:
            self.record_bytes.add(first.bytes_in, first.records_in)
        for model, seen in zip(self.operators, observation.operators, strict=True):
            model.observe(seen, observation.epoch_s, steady=steady)

    def seed(self, refined: RefinedAdaptation) -> None:
        """Seed from a refined configuration, where nothing is known here."""
        records = sum(refined.fitted.records) / 2 if refined.fitted is not None else 0.0
        if self.record_bytes.value is None and refined.operators:
            self.record_bytes.above, self.record_bytes.below = refined.record_bytes[0], 1.0
        for model, prior, size in zip(self.operators, refined.operators, refined.record_bytes[1:], strict=False):
            model.seed(prior, size, records or prior.records)
            records *= prior.relay

    def sizes(self) -> list[float]:
        """Bytes of a record before the first operator and after each; one that is not known changes nothing."""
        sizes = [self.record_bytes.value or 1.0]
        for model in self.operators:
            size = model.size.value
            sizes.append(sizes[-1] if size is None else size)
        return sizes

    def inputs(
        self, n_records: float, effective: Sequence[float] | None = None
    ) -> tuple[list[float], list[float], list[float]]:
        """Relay, cost in CPU seconds per record, and sizes, as `Frontier.of` takes them, for an epoch of `n_records`.

        `effective` is the share of the input that gets through to each operator, all of it where not given: groups, and
        with them relay and cost per record, depend on how much of the input an operator sees.
        """
        relay, cost, reaching = [], [], 1.0
        for k, model in enumerate(self.operators):
            records = max(n_records * reaching * (effective[k] if effective else 1.0), 1.0)
            rows = model.rows(records, self.epoch_s)
            relay.append(rows / records)
            cost.append(model.cpu_s(records) / records)
            reaching *= relay[-1]
        return relay, cost, self.sizes()

    def forecast(self, n_records: float, load_factors: Sequence[float], objective: str = "bytes") -> EpochForecast:
        """CPU time of an epoch of `n_records` and what it sends, output averaged over windows."""
        sizes = self.sizes() if objective == "bytes" else [*[1.0] * len(self.operators), 0.0]
        cpu_s, sent, comes = 0.0, 0.0, n_records
        for model, p, size in zip(self.operators, load_factors, sizes, strict=False):
            works = comes * p
            cpu_s += model.cpu_s(works)
            sent += (comes - works) * size
            comes = model.rows(works, self.epoch_s)
        return EpochForecast(cpu_s, sent + comes * sizes[-1])

    def sent_per_record(self, observation: EpochObservation) -> float:
        """Bytes that an epoch sent for each record, output averaged over windows."""
        if not observation.n_records:
            return 0.0
        drained = sum(operator.bytes_drained for operator in observation.operators)
        rows = self.operators[-1].rows(observation.operators[-1].processed, self.epoch_s)
        return (drained + rows * self.sizes()[-1]) / observation.n_records
