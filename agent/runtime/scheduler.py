"""Scheduler of the agent's core: which query runs next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from agent.runtime.clock import Clock
from agent.runtime.downstream import Costs
from agent.runtime.interface import RuntimeConfig
from agent.runtime.query.control_proxy import OperatorStage, run_length
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.query.record_queue import RecordQueue
from agent.runtime.query.refined_config import NewestAccepted, RefinedScheduleState
from agent.runtime.session import QuerySession
from engine.klink.memory import MemoryMode, pick_for_memory
from engine.klink.policies import QueryView, policy
from engine.klink.settings import ScheduleSettings

__all__ = ["Saturation", "Scheduler"]


USED_UP_SHARE = 0.95  # of what operators could have had
MUCH_SHARE = 0.05  # of what operators could have had: work that is left and counts
EPOCHS = 3  # alike, before it is one or the other


class Saturation:
    """Above saturation the CPU time is used up and what waits does not become less; it is over after as many epochs
    that left time or nothing to do.
    """

    def __init__(self) -> None:
        self.active = False
        self._before_ns = 0.0  # work left by the epoch before
        self._alike = 0  # epochs that speak against the present state

    def epoch(self, used_ns: float, free_ns: float, left_ns: float) -> None:
        """An epoch is over: CPU time that operators used, that they could have had, that what is left would take."""
        much = left_ns > MUCH_SHARE * free_ns
        tight = used_ns >= USED_UP_SHARE * free_ns and much and (self.active or left_ns >= self._before_ns)
        self._before_ns = left_ns
        self._alike = 0 if tight == self.active else self._alike + 1
        if self._alike == EPOCHS:
            self.active, self._alike = tight, 0


log = logging.getLogger(__name__)

_WORDS = {
    "klink": "watermarks that are here by how late they are for their work, then least slack",
    "stimulus-time": "the earliest event time first",
    "fcfs": "what has waited longest first",
    "round-robin": "queries take turns",
}


class Scheduler:
    """Every cycle the policy picks a query, which runs until the cycle is over or it has nothing to do.

    Whoever has had records and no turn for `starvation_s` goes first, every other time at most. With the policy
    klink, too many waiting bytes have the query go first that frees most of them. A fault of the policy is told, and
    queries take turns meanwhile. `now_us` is the time of epochs' labels.
    """

    def __init__(
        self, config: RuntimeConfig, newest: NewestAccepted | None, clock: Clock, now_us: Callable[[], int]
    ) -> None:
        self.prior = RefinedScheduleState(config.agent, newest)
        self._clock, self._now_us = clock, now_us
        self._seats: dict[tuple[str, str], QuerySession] = {}
        self._queues: list[RecordQueue] = []  # of all their operators
        self._saturation = Saturation()
        self._running: QuerySession | None = None
        self._until_ns = 0  # end of the cycle
        self._views: dict[QuerySession, QueryView] = {}
        self._views_us = 0  # the instant at which the queries are compared
        self._in_turn = ""  # the query that ran last where they take turns
        self._guarded = False
        self._began_ns = 0
        self.starved = 0  #: times that a query went first because it had waited so long
        self.fault = self._logged = ""
        self.downstream: Costs = {}  #: what rows cost further up, by query and plan; set by any thread
        self._forwards = False
        self.settings = config.schedule
        self._policy = policy(self.settings.policy)
        self._memory = self._memory_mode()

    # Between two epochs

    def take_up(self, config: RuntimeConfig, chains: Mapping[tuple[str, str], LocalPipeline], wall_us: int) -> bool:
        """An epoch begins, with this configuration and these queries; whether the console has something to hear."""
        self.prior.look(config.refined_schedule, wall_us)
        self.prior.expire(wall_us)
        settings = config.schedule if self.prior.in_force is None else self.prior.in_force.schedule
        self._adopt(settings)
        self._forwards = config.forwards
        seats = {key: self._seat(key, chain) for key, chain in chains.items()}
        self._seats, self._began_ns, self.fault = seats, self._clock.monotonic_ns(), ""
        self._queues = [stage.proxy.queue for chain in chains.values() for stage in chain.stages]
        self._memory_counts()  # what went since the last turn may have ended it
        epoch_us = int(config.epoch_s * 1e6)
        ends_us = self._now_us() + epoch_us
        for seat in seats.values():
            seat.learn(settings, epoch_us, ends_us)
            seat.downstream_cost_s = self.downstream.get((seat.chain.query, seat.chain.plan), 0.0)
        news, self.prior.news = self.prior.news, False
        return news

    def _adopt(self, settings: ScheduleSettings) -> None:
        """The policy knows queries by what it saw of them, and memory what it is about: they stay while they may."""
        before, self.settings = self.settings, settings
        if settings.policy != before.policy:
            self._policy = policy(settings.policy)
        if _of_memory(settings) != _of_memory(before):
            self._memory = self._memory_mode()

    def _memory_mode(self) -> MemoryMode:
        return MemoryMode(*_of_memory(self.settings))

    def _seat(self, key: tuple[str, str], chain: LocalPipeline) -> QuerySession:
        known = self._seats.get(key)
        return known if known is not None and known.chain is chain else QuerySession(chain, self.settings)

    def epoch_over(self, used_ns: float, free_ns: float) -> None:
        """Operators have used so much CPU time of what they could have had; what waits has not been given up yet."""
        self._saturation.epoch(used_ns, free_ns, sum(seat.chain.work_ns() for seat in self._seats.values()))

    # Running

    def watermark(self, chain: LocalPipeline, watermark_us: int, now_us: int) -> None:
        """A query's stream has this watermark now."""
        tracker = self._seats[chain.query, chain.plan].tracker
        try:
            if tracker is not None:
                tracker.read(watermark_us, now_us)
        except Exception as error:
            self._failed("watermarks are not expected", error)

    def run(self, left_ns: Callable[[], float], *, last: bool) -> None:
        """Run operators until nothing is left to do, or of the budget; with `last`, few records wait for no more."""
        now_us = self._now_us()
        self._views.clear()
        for seat in self._seats.values():
            seat.look(now_us)
        ready = {seat: None for seat in self._seats.values() if seat.chain.ready(last=last)}
        while ready and (left := left_ns()) > 0:
            seat = self._turn(ready)
            stage = seat.chain.ready(last=last)
            records = run_length(seat.chain.stages, stage, left) if stage else 0
            if stage is None or not records:
                del ready[seat]
                self._running = None
            else:
                self._work(seat, stage, records)

    def _work(self, seat: QuerySession, stage: OperatorStage, records: int) -> None:
        begin_ns = self._clock.monotonic_ns()
        seat.chain.work(stage, records)
        seat.ran(begin_ns, self._clock.monotonic_ns(), self._now_us())
        self._views.pop(seat, None)

    def _turn(self, ready: Collection[QuerySession]) -> QuerySession:
        """Who runs now: the same as before within its cycle, or whom the policy picks."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._until_ns and self._running in ready and self._running is not None:
            return self._running
        if now_ns >= self._until_ns or not self._views:
            self._views.clear()
            self._views_us = self._now_us()
        self._until_ns = now_ns + int(self.settings.cycle_ms * 1e6)
        self._running = self._picked(list(ready))
        return self._running

    def _picked(self, seats: list[QuerySession]) -> QuerySession:
        try:
            picked = self._pick(seats)
        except Exception as error:
            self._failed("queries take turns", error)
            picked = min(seats, key=lambda seat: (seat.chain.query <= self._in_turn, seat.chain.query))
        self._in_turn = picked.chain.query
        return picked

    def _failed(self, words: str, error: Exception) -> None:
        """A fault of ours must be seen, and must not end the monitoring of a host; it is told for this epoch."""
        fault = f"{words}: {type(error).__name__}: {error}"
        if fault != self._logged:
            log.error("scheduling failed", exc_info=error)
        self.fault = self._logged = fault

    def _pick(self, seats: list[QuerySession]) -> QuerySession:
        now_ms = self._views_us / 1e3
        memory = self._memory_counts()
        starving = None if self._guarded else self._starving(seats)
        self._guarded = starving is not None
        if starving is not None:
            self.starved += 1
            return starving
        if len(seats) == 1 and self.settings.policy != "round-robin":
            return seats[0]
        views = [self._view(seat) for seat in seats]
        if memory:
            index = pick_for_memory(views, self.settings.cycle_ms, now_ms)
        else:
            index = self._policy.pick(views, now_ms, self._saturation.active)
        return seats[index or 0]

    def _memory_counts(self) -> bool:
        """Whether too many bytes wait, now."""
        return self.settings.policy == "klink" and self._memory.update(self._waiting_bytes(), self._now_us() / 1e3)

    def _starving(self, seats: Iterable[QuerySession]) -> QuerySession | None:
        """Who has waited longest for a turn, if too long."""
        since_us = self._views_us - self.settings.starvation_s * 1e6
        waiting = [seat for seat in seats if seat.hungry_us is not None and seat.hungry_us <= since_us]
        return min(waiting, key=lambda seat: (seat.hungry_us or 0, seat.chain.query), default=None)

    def _view(self, seat: QuerySession) -> QueryView:
        if seat not in self._views:
            self._views[seat] = seat.view(self._views_us)
        return self._views[seat]

    def _waiting_bytes(self) -> int:
        return sum(queue.size_bytes for queue in self._queues)

    # What is told

    def told(
        self, chain: LocalPipeline, epoch_us: int, emitted_us: int, version: int
    ) -> tuple[dict[str, Any], list[Any]]:
        """Of an epoch of a query that has ended: what its row says of scheduling, with the version `s` of the refined
        schedule in force, and rows of `agent.wire.SWEEPS`."""
        seat, sweeps = self._seats[chain.query, chain.plan], chain.take_sweeps(emitted_us)
        try:
            swept = seat.sweep_rows(sweeps, epoch_us, version)
            held = self.prior.in_force.version if self.prior.in_force is not None else None
            return {**seat.epoch_row(swept, emitted_us, self._began_ns), "s": held}, swept
        except Exception as error:
            self._failed("nothing is told of scheduling", error)
            return {}, []

    def delays(self, chain: LocalPipeline) -> dict[str, dict[str, Any]]:
        """What the relay above is to know of a query's streams, where a window was passed since this was last asked."""
        tracker = self._seats[chain.query, chain.plan].tracker
        delay = tracker.take_delay() if tracker is not None and self._forwards else None
        return {tracker.stream: delay.note()} if tracker is not None and delay is not None else {}

    def late(self, chain: LocalPipeline) -> str:
        """What is wrong with a query's watermarks, in words; empty where nothing is."""
        seat = self._seats.get((chain.query, chain.plan))
        return seat.late(self._now_us()) if seat is not None else ""

    @property
    def mode(self) -> str:
        """What the next pick goes by: latency, memory or saturated."""
        if self.settings.policy == "klink" and self._memory.active:
            return "memory"
        return "saturated" if self._saturation.active else "latency"

    def report(self) -> dict[str, Any]:
        """What the heartbeat says of scheduling."""
        return {
            "policy": self.settings.policy,
            "mode": self.mode,
            "memory_bytes": self._waiting_bytes(),
            "memory_bound": self.settings.memory_bytes,
            "cycle_ms": self.settings.cycle_ms,
            "starved": self.starved,
            "reason": self._reason(),
            **self.prior.report(),
        }

    @property
    def faults(self) -> list[str]:
        """Its own, and that the time of a refined schedule is over."""
        return [fault for fault in (self.fault, self.prior.fault) if fault]

    def _reason(self) -> str:
        if self.fault:
            return self.fault
        if self.settings.policy == "klink" and self.mode == "memory":
            return (
                f"{self._waiting_bytes():,} bytes wait, {self.settings.memory_bytes:,} may: what frees most goes first"
            )
        if self.settings.policy == "klink" and self.mode == "saturated":
            return "more work than CPU time: short windows first, none much later than all"
        return _WORDS[self.settings.policy]


def _of_memory(settings: ScheduleSettings) -> tuple[float, float, float]:
    return settings.memory_bytes, settings.release_share, settings.release_s
