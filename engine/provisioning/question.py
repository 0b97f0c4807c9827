"""Question of a pool or a mix, and the clock of its answer: progress that never goes back, a budget, signs of life."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeVar

from engine.document.deployment import Deployment, Objective
from engine.errors import DocumentError, Fault
from engine.estimation.estimate import Progress
from engine.provisioning.changes import scale_loads
from engine.provisioning.nodes import lose_nodes

__all__ = ["PoolQuestion", "ProgressClock", "watch_work"]

_EVERY_S = 0.5
Result = TypeVar("Result")


@dataclass(frozen=True)
class PoolQuestion:
    """Question of the nodes that keep every objective: their load, the losses to survive, and the effort to search."""

    keep_present: bool = True  #: whether new nodes join the present ones or take their place
    lose: int = 0  #: 1 if every objective must also be kept with any one node lost
    headroom_s: float = 0.0  #: headroom to leave of every bound
    headroom_share: float = 0.0
    factor: float | Mapping[str, float] = 1.0  #: load, as a multiple of the present one; by source if a mapping
    rounds: int | None = None  #: rounds of the placement search for each pool; None: 4, and none for a Pareto front
    confirm: int | None = None  #: number of sizes up or down that Flow may move the answer; None: 12, and 6 for a mix
    seed: int = 0  #: seed of the placement search
    mace_every: int = 1  #: subintervals of the deployment that make one of Mace's
    closed: Sequence[str] = ()  #: nodes that take nothing new
    #: whether stateless operators that alone break an objective are split, into at most 8 equal parts; where
    #: ``may_split`` is given, only those it lists
    split: bool = True
    #: whether to go on without the objectives that no number of such nodes keeps. They are in `beyond`.
    leave_out: bool = False
    #: seconds after which nothing new is begun; the answer is the best bracket by then (`complete` is False)
    budget_s: float | None = None

    def clock(self, progress: Progress | None) -> ProgressClock:
        """Clock that starts now and ends with the budget."""
        return ProgressClock(progress, self.budget_s)

    def loaded(self, deployment: Deployment) -> Deployment:
        """The deployment under the load of the question, with bounds tightened by the headroom."""
        return tighten_bounds(scale_loads(deployment, self.factor), self.headroom_s, self.headroom_share)

    def base(self, deployment: Deployment) -> Deployment:
        """The loaded deployment with the present nodes, or with none if new nodes take their place."""
        loaded = self.loaded(deployment)
        return loaded if self.keep_present else lose_nodes(loaded, {node.id for node in loaded.nodes})

    def on(self, base: Deployment) -> PoolQuestion:
        """The question with those closed nodes that are left in `base`."""
        return replace(self, closed=[name for name in self.closed if name in base.node_index])


def tighten_bounds(deployment: Deployment, headroom_s: float, headroom_share: float) -> Deployment:
    """Lower every bound by the headroom to keep: seconds, then a share of the rest.

    Raises
    ------
    DocumentError
        If a bound leaves no time at all.
    """
    if not headroom_s and not headroom_share:
        return deployment
    faults = [
        Fault(
            "headroom_s", f"headroom_s is {headroom_s:g}; allowed: less than the {entry.bound_s:g} s of {entry.query}"
        )
        for entry in deployment.objectives
        if entry.bound_s <= headroom_s
    ]
    if headroom_s < 0.0:
        faults.append(Fault("headroom_s", f"headroom_s is {headroom_s:g}; allowed: at least 0"))
    if not 0.0 <= headroom_share < 1.0:
        faults.append(Fault("headroom_share", f"headroom_share is {headroom_share:g}; allowed: from 0 to below 1"))
    if faults:
        raise DocumentError(faults, "question")
    bounds = [(entry, (entry.bound_s - headroom_s) * (1.0 - headroom_share)) for entry in deployment.objectives]
    return replace(deployment, objectives=tuple(Objective(e.query, e.statistic, bound) for e, bound in bounds))


class ProgressClock:
    """Clock of a long question: reports progress and ends with its budget.

    Parameters
    ----------
    progress : callable, optional
        Told the share done and the step in words; an exception it raises ends the question.
    budget_s : float, optional
        Seconds after which nothing new is begun.
    """

    def __init__(self, progress: Progress | None = None, budget_s: float | None = None) -> None:
        self._tell = progress or (lambda share, step: None)
        self._began, self._budget_s = time.monotonic(), budget_s
        self._share, self._ended = 0.0, False

    @property
    def is_over(self) -> bool:
        if self._ended:
            return True
        return self._budget_s is not None and time.monotonic() - self._began > self._budget_s

    def tell(self, share: float | None, step: str) -> None:
        """Report a step; without a share it stays where it is."""
        self._share = max(self._share, min(share or 0.0, 1.0))
        self._tell(self._share, step)

    def during(self, step: str, work: Callable[[], Result]) -> Result:
        """Do `work`, which may take long, and tell every second that it goes on."""
        self.tell(None, step)
        began = time.monotonic()
        try:
            return _wait_for(work, lambda: self.tell(None, f"{step}, {time.monotonic() - began:.0f} s"))
        except BaseException:
            self._ended = True
            raise


class _Unwatched(Exception):
    """Nobody waits for the work any more."""


def watch_work(work: Callable[[Progress], Result], progress: Progress) -> Result:
    """Do `work`, which reports its progress, and pass that on at least every second, whatever it is busy with.

    An exception that `progress` raises ends the wait at once, and the work with its next step.
    """
    newest: list[tuple[float, str]] = [(0.0, "")]
    is_over = threading.Event()

    def note(share: float, step: str) -> None:
        if is_over.is_set():
            raise _Unwatched
        newest[0] = (share, step)

    try:
        return _wait_for(lambda: work(note), lambda: progress(*newest[0]))
    finally:
        is_over.set()


def _wait_for(work: Callable[[], Result], tell: Callable[[], object]) -> Result:
    """Do work in a thread of its own, and tell every second; what `tell` raises leaves the thread to itself."""
    threads = ThreadPoolExecutor(1, "provisioning")
    try:
        future = threads.submit(work)
        while wait([future], _EVERY_S).not_done:
            tell()
        return future.result()
    finally:
        threads.shutdown(wait=False)
