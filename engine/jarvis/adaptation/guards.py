"""Guards of adaptation: failing operators, input in bursts, budgets that swing, plans that come and go."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise

from engine.jarvis.adaptation.control import EpochState, epoch_state
from engine.jarvis.adaptation.method import MethodEpoch
from engine.jarvis.adaptation.operator_models import MIN_RECORDS

__all__ = ["Conditions", "FailingOperators", "ObtainableBudget", "Polish", "Restraint", "Swings", "Volume"]

_ALIKE = 0.10  # relative difference of budgets, or of volumes, that are about the same


@dataclass
class _Rest:
    until: int  #: epoch from which on it is tried again
    pause: int
    proven: bool = False  #: it has worked since


class FailingOperators:
    """Operators that process no record although CPU time is left: they rest, longer each time."""

    FIRST_PAUSE, LONGEST_PAUSE = 8, 512  # epochs
    EPOCHS = 3  # in a row in which it worked on nothing; one, where it is being tried again

    def __init__(self) -> None:
        self.suspect: int | None = None  #: an operator that has left all of its records, not yet often enough to rest
        self._rests: dict[int, _Rest] = {}
        self._left: dict[int, tuple[int, int]] = {}  # epochs and records since it last worked on any

    def watch(self, epoch: MethodEpoch) -> None:
        """Take in an epoch that has ended."""
        observation, settings = epoch.observation, epoch.settings
        spare = observation.idle_s > 2 * settings.idle_thres * observation.budget_s
        self.suspect = None
        for k, operator in enumerate(observation.operators):
            tried_again = k in self._rests and not self._rests[k].proven
            if operator.processed and k in self._rests:
                self._rests[k].proven = True
            if operator.processed or not spare:
                self._left[k] = (0, 0)
            elif operator.overflow > (0 if tried_again else settings.drained_thres * operator.records_in):
                epochs, records = self._left.get(k, (0, 0))
                self._left[k] = (epochs + 1, records + operator.overflow)
                self._judge(k, epoch.number, tried_again=tried_again)

    def _judge(self, k: int, number: int, *, tried_again: bool) -> None:
        epochs, records = self._left[k]
        if self.resting(k, number):
            return
        if records >= MIN_RECORDS and (epochs >= self.EPOCHS or tried_again):
            self._rest(k, number)
        elif self.suspect is None:
            self.suspect = k

    def resting(self, k: int, number: int) -> int:
        """Epochs until operator `k` is tried again."""
        return max(self._rests[k].until - number, 0) if k in self._rests else 0

    def first(self, operators: int) -> int:
        """The first operator that rests or has not worked again since; `operators` where there is none."""
        return next((k for k in range(operators) if k in self._rests and not self._rests[k].proven), operators)

    def _rest(self, k: int, number: int) -> None:
        before = self._rests.get(k)
        again = before is not None and number < before.until + 4 * before.pause
        pause = min(2 * before.pause, self.LONGEST_PAUSE) if before and again else self.FIRST_PAUSE
        self._rests[k] = _Rest(number + pause, pause)
        self._left[k] = (0, 0)


class ObtainableBudget:
    """Obtainable share of the budget: smaller where records overflow though CPU time was left by the books.

    A machine that is busy with other things does not give a process its turn in time. What was missed comes back
    slowly.
    """

    LEAST, RETURN = 0.25, 0.2  # shares: at least of the budget; of what is missed, with each epoch without congestion

    def __init__(self) -> None:
        self.share = 1.0

    def add(self, epoch: MethodEpoch) -> MethodEpoch:
        """Take in an epoch that has ended; returns it judged by the obtainable budget."""
        seen = epoch.observation
        if epoch.state is not EpochState.CONGESTED:
            self.share += self.RETURN * (1 - self.share)
        elif seen.idle_s > epoch.settings.idle_thres * seen.budget_s:
            had = min(seen.used_s / seen.budget_s, self.share)
            self.share = max((self.share + had) / 2, self.LEAST)  # one stall is believed by half
        if self.share > 1 - epoch.settings.idle_thres:
            return epoch
        observation = replace(seen, budget_s=self.share * seen.budget_s)
        return replace(epoch, observation=observation, state=epoch_state(observation, epoch.settings))


class Volume:
    """Number of records to plan for: the last epoch's, or a burst's where records come in bursts."""

    EPOCHS, TURNS = 12, 3
    KEPT = 24  # epochs that a burst is remembered
    BURST = 1.3  # times as many, or as few, as in the epoch before

    def __init__(self) -> None:
        self._seen: deque[int] = deque(maxlen=self.KEPT)
        self._calm = self.KEPT
        self.planned = 0.0

    @property
    def bursts(self) -> bool:
        """Whether records come in bursts, or did recently."""
        return self._calm < self.KEPT

    def add(self, records: int) -> None:
        """Take in an epoch that has ended."""
        self._seen.append(records)
        latest = list(self._seen)[-self.EPOCHS :]
        ways = [after > before for before, after in pairwise(latest) if self._far(before, after)]
        turns = sum(a != b for a, b in pairwise(ways))
        self._calm = 0 if turns >= self.TURNS else self._calm + 1
        if self.bursts:
            self.planned = float(max(self._seen))
        elif self._far(self.planned, records):
            self.planned = float(records)
        else:
            self.planned += (records - self.planned) / 2

    def _far(self, before: float, after: float) -> bool:
        return not before / self.BURST <= after <= before * self.BURST


@dataclass(frozen=True, slots=True)
class Conditions:
    """Conditions of a finding: epoch, budget, records."""

    number: int  #: of the epoch
    budget_s: float
    volume: float

    def like(self, other: Conditions) -> bool:
        """Whether budget and volume are about the same."""
        return _is_alike(self.budget_s, other.budget_s) and _is_alike(self.volume, other.volume)


def _is_alike(a: float, b: float) -> bool:
    return max(a, b) - min(a, b) <= _ALIKE * max(a, b)


class Swings:
    """Swings of the budget: changes that were over after a few epochs, as of a host that schedules unevenly.

    A plan made for a swing comes an epoch late and holds when it is over. So a change is waited for as long as
    swings lasted lately; one that stays longer is a change, and the next is acted on at once again.
    """

    LONGEST, KEPT = 3, 100  # epochs: of a swing, as the paper's detection; for which one is remembered
    RARE = 0.25  # of those epochs; where swings are more, none is waited for

    def __init__(self) -> None:
        self._usual_s: float | None = None  # budget outside swings
        self._began: int | None = None  # first epoch of the change under way
        self._lasted: deque[tuple[int, int]] = deque()  # epochs in which swings were over, and how long they were

    def add(self, number: int, budget_s: float) -> int:
        """Take in an epoch that has ended; returns the epochs for which the plan waits yet, 0 to act."""
        while self._lasted and number - self._lasted[0][0] > self.KEPT:
            self._lasted.popleft()
        if self._usual_s is None or _is_alike(budget_s, self._usual_s):
            if self._began is not None:
                self._lasted.append((number, number - self._began))
            self._usual_s, self._began = budget_s, None
            return 0
        if self._began is None:
            self._began = number
        length = number - self._began + 1
        if length > self.LONGEST:
            self._usual_s, self._began = budget_s, None
            self._lasted.clear()
            return 0
        lasted = [epochs for _, epochs in self._lasted]
        if sum(lasted) > self.RARE * self.KEPT:
            return 0
        return max(max(lasted, default=0) + 1 - length, 0)


class Restraint:
    """Restraint of a plan that moves too often: the best one seen is held until conditions change."""

    MOVES, WITHIN = 8, 20  # epochs
    FIRST_HOLD, LONGEST_HOLD = 30, 480
    OTHER_EPOCHS = 3  # in a row, congested or under other conditions that stay, which end a hold

    def __init__(self) -> None:
        self._moves: deque[int] = deque(maxlen=self.MOVES)
        self._seen: deque[tuple[Conditions, tuple[float, ...], bool, float]] = deque(maxlen=self.WITHIN)
        self._until = self._hold = self._other = 0
        self._held: Conditions | None = None
        self._before: Conditions | None = None

    def watch(self, epoch: MethodEpoch, here: Conditions) -> None:
        """Take in an epoch that has ended."""
        congested = epoch.state is EpochState.CONGESTED
        stay = self._before is not None and here.like(self._before)
        other = stay and self._held is not None and not here.like(self._held)
        self._before = here
        self._other = self._other + 1 if congested or other else 0
        sent = epoch.model.sent_per_record(epoch.observation)
        self._seen.append((here, epoch.load_factors, congested, sent))
        if self._other >= self.OTHER_EPOCHS:
            self._until = min(self._until, epoch.number)

    def moved(self, number: int) -> None:
        """Record that the plan moves after this epoch."""
        self._moves.append(number)

    def held(self, number: int) -> int:
        """Epochs for which the plan is still held."""
        return max(self._until - number, 0)

    def hold(self, here: Conditions) -> tuple[float, ...] | None:
        """The load factors to hold from now on, where they moved too often; None where they did not."""
        number = here.number
        if len(self._moves) < self.MOVES or number - self._moves[0] > self.WITHIN or not self._seen:
            return None
        again = number < self._until + 2 * self._hold
        self._hold = min(2 * self._hold, self.LONGEST_HOLD) if again and self._hold else self.FIRST_HOLD
        self._until, self._held = number + self._hold, here
        self._moves.clear()
        return self._best(here)

    def _best(self, here: Conditions) -> tuple[float, ...]:
        """The plan congested in the smallest share of its epochs under conditions like these; of equal ones, the one
        that sent least.
        """
        runs: dict[tuple[float, ...], list[tuple[bool, float]]] = {}
        for conditions, factors, congested, sent in self._seen:
            if conditions.like(here):
                runs.setdefault(factors, []).append((congested, sent))
        return min(
            runs, key=lambda plan: tuple(sum(column) / len(runs[plan]) for column in zip(*runs[plan], strict=True))
        )


@dataclass(frozen=True, slots=True)
class _Tried:
    since: Conditions
    sent: float  #: bytes for each record before
    load_factors: tuple[float, ...]
    cuts: tuple[int, int] | None


class Polish:
    """Trial of other cuts in quiet epochs for a gain that the model predicts; undone if the gain fails to appear."""

    LEAST, MOST = 0.02, 0.32  # of the bytes: what a gain must be, twice as much after each that did not come true
    EPOCHS = 4  # after which it must be there

    def __init__(self) -> None:
        self._bar = self.LEAST
        self._sent: deque[float] = deque(maxlen=2)
        self._tried: _Tried | None = None
        self._failed: Conditions | None = None

    @property
    def bar(self) -> float:
        """Share of the bytes that other cuts must save; hardly any do while some are being tried."""
        return self.MOST if self._tried is not None else self._bar

    def begin(self, here: Conditions, load_factors: tuple[float, ...], cuts: tuple[int, int] | None) -> None:
        """Begin a trial: the plan moves from these to other cuts."""
        self._tried = _Tried(here, self._mean(), load_factors, cuts)

    def watch(self, epoch: MethodEpoch, here: Conditions) -> tuple[tuple[float, ...], tuple[int, int] | None] | None:
        """Take in an epoch that has ended; returns the load factors and cuts to return to if the gain failed."""
        self._sent.append(epoch.model.sent_per_record(epoch.observation))
        if self._failed is not None and not here.like(self._failed):
            self._bar, self._failed = self.LEAST, None
        tried = self._tried
        if tried is not None and not here.like(tried.since):
            self._tried = None
        elif tried is not None and here.number - tried.since.number >= self.EPOCHS:
            self._tried = None
            if self._mean() > tried.sent:
                self._bar, self._failed = min(2 * self._bar, self.MOST), here
                return tried.load_factors, tried.cuts
        return None

    def _mean(self) -> float:
        return sum(self._sent) / len(self._sent) if self._sent else 0.0
