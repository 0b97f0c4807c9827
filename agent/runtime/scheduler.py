"""Scheduler of the agent's core: which query runs next."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any

from agent.config import AgentConfig
from agent.runtime.deadlines import records_to_drop
from agent.runtime.downstream import Costs
from agent.runtime.interface import Clock
from agent.runtime.query.adaptation import NewestAccepted, RefinedScheduleState
from agent.runtime.query.control_proxy import OperatorStage, run_length
from agent.runtime.query.pipeline import LocalPipeline
from agent.runtime.session import QuerySession
from engine.jarvis.fairness import max_min
from engine.klink.policies import Klink, MemoryMode, QueryView, make_policy
from engine.klink.settings import ScheduleSettings

__all__ = ["Scheduler"]


USED_UP_SHARE = 0.95  # of what operators could have had
MUCH_SHARE = 0.05  # of what operators could have had: work that is left and counts
FORGETTING = 0.9  # of how long closing an epoch took, with each epoch
MIN_CORES = 1e-4  # that queries with a constraint are taken to have; with less, all of their records go on
EPOCHS = 3  # alike, before it is one or the other
log = logging.getLogger(__name__)
_WORDS = {
    "klink": "watermarks that are here by how late they are for their work, then least slack",
    "stimulus-time": "the earliest event time first",
    "fcfs": "what has waited longest first",
    "round-robin": "queries take turns",
}


class Saturation:
    """Saturation of the core: CPU time is used up and the backlog does not shrink. It ends after as many epochs that
    left time or nothing to do.
    """

    def __init__(self) -> None:
        self.active = False
        self._before_ns = 0.0  # work left by the epoch before
        self._alike = 0  # epochs that speak against the present state

    def epoch(self, used_ns: float, free_ns: float, left_ns: float) -> None:
        """Take in an epoch: CPU time used, CPU time granted, CPU time that the backlog would take."""
        much = left_ns > MUCH_SHARE * free_ns
        tight = used_ns >= USED_UP_SHARE * free_ns and much and (self.active or left_ns >= self._before_ns)
        self._before_ns = left_ns
        self._alike = 0 if tight == self.active else self._alike + 1
        if self._alike == EPOCHS:
            self.active, self._alike = tight, 0


class Scheduler:
    """Every cycle the policy picks a query, which runs until the cycle is over or it has nothing to do.

    Whoever has had records and no turn for `starvation_s` goes first, every other time at most. With the policy
    klink, while too many bytes wait, of what is not due only queries that free them well have a turn. A fault of the
    policy is told, and queries take turns meanwhile. `now_us` is the time of epochs' labels.
    """

    def __init__(
        self, config: AgentConfig, newest: NewestAccepted | None, clock: Clock, now_us: Callable[[], int]
    ) -> None:
        self.refined_state = RefinedScheduleState(config.agent, newest)
        self._clock, self._now_us = clock, now_us
        self._sessions: dict[tuple[str, str], QuerySession] = {}
        self._saturation = Saturation()
        self._given_up_ns = 0.0  # CPU time of records that were given up for their deadlines in this epoch
        self._timed_share = self._timed_cores = 0.0  # of operators' time, what queries with a constraint may have
        self._epoch_us, self._ends_us = 1, 0  # of the epoch under way
        self._closing_us = 0  # time from an epoch's end until what leaves with it is out, of late
        self._running: QuerySession | None = None
        self._until_ns = 0  # end of the cycle
        self._views: dict[QuerySession, QueryView] = {}
        self._views_us = 0  # the instant at which the queries are compared
        self._order: list[QuerySession] = []  # in which the cycle's turns come; empty while it is not known
        self._hungry: list[QuerySession] = []  # past the starvation limit at that instant
        self._in_turn = ""  # the query that ran last in round-robin
        self._relieves = False  # whether this cycle has to free memory
        self._guarded = False
        self._began_ns = 0
        self.starved = 0  #: times that a query went first because it had waited so long
        self.fault = self._logged = ""
        self.downstream: Costs = {}  #: what rows cost further up, by query and plan; set by any thread
        self._forwards = False
        self.settings = config.schedule
        self._policy = make_policy(self.settings.policy)
        self._memory = self._memory_mode()

    # Between two epochs

    def take_up(self, config: AgentConfig, pipelines: Mapping[tuple[str, str], LocalPipeline], wall_us: int) -> bool:
        """Begin an epoch with this configuration and these queries; whether the console should hear of a change at
        once.
        """
        self.refined_state.look(config.refined_schedule, wall_us)
        self.refined_state.expire(wall_us)
        settings = config.schedule if self.refined_state.in_force is None else self.refined_state.in_force.schedule
        self._adopt(settings)
        self._forwards = config.parent is not None
        sessions = {key: self._session(key, pipeline) for key, pipeline in pipelines.items()}
        self._sessions, self._began_ns, self.fault = sessions, self._clock.monotonic_ns(), ""
        self._memory_counts()  # records that overflowed since the last pick may have ended it
        self._epoch_us = epoch_us = int(config.epoch_s * 1e6)
        self._ends_us = ends_us = self._now_us() + epoch_us
        for session in sessions.values():
            session.learn(settings, epoch_us, ends_us)
            session.deadlines.begin(ends_us, epoch_us, config.stream_delay_s, self._closing_us)
            session.downstream_cost_s = self.downstream.get((session.pipeline.query, session.pipeline.plan), 0.0)
        self._closing_us = int(FORGETTING * self._closing_us)
        changed, self.refined_state.changed = self.refined_state.changed, False
        return changed

    def _adopt(self, settings: ScheduleSettings) -> None:
        """Keep the policy's knowledge of queries, and the memory mode, while the settings allow it."""
        before, self.settings = self.settings, settings
        if settings.policy != before.policy:
            self._policy = make_policy(settings.policy)
        if _of_memory(settings) != _of_memory(before):
            self._memory = self._memory_mode()

    def _memory_mode(self) -> MemoryMode:
        return MemoryMode(*_of_memory(self.settings))

    def _session(self, key: tuple[str, str], pipeline: LocalPipeline) -> QuerySession:
        session = self._sessions.get(key)
        return (
            session if session is not None and session.pipeline is pipeline else QuerySession(pipeline, self.settings)
        )

    def epoch_over(self, used_ns: float, free_ns: float) -> None:
        """Take in the CPU time used of the time granted; the backlog has not overflowed yet."""
        left_ns = sum(session.pipeline.work_ns() for session in self._sessions.values())
        self._saturation.epoch(used_ns, free_ns, left_ns + self._given_up_ns)
        self._given_up_ns = 0.0
        self._share_time(free_ns)

    def _share_time(self, free_ns: float) -> None:
        """Split operators' time between queries with a constraint and the others: max-min, by their weights."""
        sessions = list(self._sessions.values())
        demands = [inf if session.deadlines.can_hold else session.pipeline.demand_ns for session in sessions]
        shares = max_min(free_ns, demands, [session.pipeline.config.weight for session in sessions])
        timed_ns = sum(share for share, session in zip(shares, sessions, strict=True) if session.deadlines.can_hold)
        cores = timed_ns / (self._epoch_us * 1e3)
        self._timed_share = timed_ns / free_ns if free_ns > 0 else 1.0
        self._timed_cores = (self._timed_cores + cores) / 2 if self._timed_cores else cores

    # Running

    def watermark(self, pipeline: LocalPipeline, watermark_us: int, now_us: int) -> None:
        """A query's stream has this watermark now."""
        tracker = self._sessions[pipeline.query, pipeline.plan].tracker
        try:
            if tracker is not None:
                tracker.read(watermark_us, now_us)
        except Exception as error:
            self._failed("watermarks are not expected", error)

    def run(self, left_ns: Callable[[], float], *, last: bool) -> None:
        """Run operators until nothing is left to do, or of the budget; with `last`, few records wait for no more."""
        now_us = self._now_us()
        self._forget()
        for session in self._sessions.values():
            session.look(now_us)
        if self._saturation.active:
            self._give_up_late(now_us)
        ready = {session: None for session in self._sessions.values() if session.pipeline.ready(last=last)}
        while ready and (left := left_ns()) > 0:
            session = self._turn(ready)
            stage = session.pipeline.ready(last=last)
            records = run_length(session.pipeline.stages, stage, left) if stage else 0
            if stage is None or not records:
                del ready[session]
                self._running = None
            else:
                self._work(session, stage, records)

    def _give_up_late(self, now_us: int) -> None:
        """Under overload, send on at once what cannot be processed here in time, so that the rest can."""
        try:
            sessions = [session for session in self._sessions.values() if session.deadlines.can_hold]
            waiting = {session: session.waiting_records() for session in sessions if session.pipeline.stages}
            waiting = {session: records for session, records in waiting.items() if records.dues}
            if not waiting:
                return
            drops = records_to_drop(
                list(waiting.values()),
                now_us=now_us,
                ends_us=self._ends_us,
                epoch_us=self._epoch_us,
                begun_s=sum(session.begun_s() for session in waiting),
                cores=max(self._timed_cores, MIN_CORES),
            )
        except Exception as error:
            self._failed("deadlines are not looked at", error)
            return
        for (session, records), count in zip(waiting.items(), drops, strict=True):
            session.deadlines.give_up(count)
            self._given_up_ns += count * records.cost_s * 1e9

    def _work(self, session: QuerySession, stage: OperatorStage, records: int) -> None:
        begin_ns = self._clock.monotonic_ns()
        session.pipeline.work(stage, records)
        session.ran(begin_ns, self._clock.monotonic_ns(), self._now_us())
        self._views.pop(session, None)

    def _turn(self, ready: Collection[QuerySession]) -> QuerySession:
        """The query to run: the same as before within its cycle, else the policy's pick."""
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._until_ns and self._running in ready and self._running is not None:
            return self._running
        if now_ns >= self._until_ns or not self._views_us:
            self._forget()
            self._views_us = self._now_us()
            self._relieves = self._memory_counts()
            self._hungry = self._starving(ready)
        self._until_ns = now_ns + int(self.settings.cycle_ms * 1e6)
        self._running = self._picked(list(ready))
        return self._running

    def _forget(self) -> None:
        """Queries are to be compared anew at the next turn."""
        self._views.clear()
        self._views_us, self._order, self._hungry = 0, [], []

    def _picked(self, sessions: list[QuerySession]) -> QuerySession:
        try:
            picked = self._pick(sessions)
        except Exception as error:
            self._failed("queries take turns", error)
            picked = min(
                sessions, key=lambda session: (session.pipeline.query <= self._in_turn, session.pipeline.query)
            )
        self._in_turn = picked.pipeline.query
        return picked

    def _failed(self, words: str, error: Exception) -> None:
        """Report an internal fault for this epoch: it must not end the monitoring of a host."""
        fault = f"{words}: {type(error).__name__}: {error}"
        if fault != self._logged:
            log.error("scheduling failed", exc_info=error)
        self.fault = self._logged = fault

    def _pick(self, sessions: list[QuerySession]) -> QuerySession:
        starved = None if self._guarded or not self._hungry else self._hungriest(sessions)
        self._guarded = starved is not None
        if starved is not None:
            self.starved += 1
            return starved
        if len(sessions) == 1 and self.settings.policy != "round-robin":
            return sessions[0]
        among = sessions
        if self._saturation.active and not self._relieves:
            timed = [session for session in sessions if session.deadlines.can_hold]
            others = [session for session in sessions if not session.deadlines.can_hold]
            if timed and (not others or self._is_timed_next()):
                return min(timed, key=lambda session: (session.deadlines.first_us, session.pipeline.query))
            among = others or sessions
        if isinstance(self._policy, Klink):
            return self._next_of_cycle(self._policy, sessions, among)
        views = [self._view(session) for session in among]
        return among[self._policy.pick(views, self._views_us / 1e3, self._saturation.active) or 0]

    def _next_of_cycle(
        self, policy: Klink, sessions: Sequence[QuerySession], among: Sequence[QuerySession]
    ) -> QuerySession:
        """The next one by an order that is made once in a cycle: comparing costs more than what it would find anew.

        A query that has run until it has nothing to do has no other turn in the cycle, and what the others are to the
        policy stays as it was when the cycle began.
        """
        if not self._order:
            views = [session.view(self._views_us) for session in sessions]
            freeing_ms = self.settings.cycle_ms if self._relieves else None
            order = policy.order(views, self._views_us / 1e3, self._saturation.active, freeing_ms)
            self._order = [sessions[index] for index in order]
        return next(session for session in self._order if session in among)

    def _is_timed_next(self) -> bool:
        """Whether queries with a constraint have used less of this epoch's operators' time than their share."""
        used_ns = {session: session.pipeline.used_ns for session in self._sessions.values()}
        timed_ns = sum(used for session, used in used_ns.items() if session.deadlines.can_hold)
        return timed_ns <= self._timed_share * sum(used_ns.values())

    def _memory_counts(self) -> bool:
        """Whether too many bytes wait, now."""
        return self.settings.policy == "klink" and self._memory.update(self._waiting_bytes(), self._now_us() / 1e3)

    def _starving(self, sessions: Iterable[QuerySession]) -> list[QuerySession]:
        """Queries past the starvation limit."""
        since_us = self._views_us - self.settings.starvation_s * 1e6
        return [session for session in sessions if (session.unserved_us or inf) <= since_us]

    def _hungriest(self, sessions: Collection[QuerySession]) -> QuerySession | None:
        """The one that has waited longest, of those past the limit that have had no turn since."""
        waiting = [session for session in self._starving(self._hungry) if session in sessions]
        return min(waiting, key=lambda session: (session.unserved_us or 0, session.pipeline.query), default=None)

    def _view(self, session: QuerySession) -> QueryView:
        if session not in self._views:
            self._views[session] = session.view(self._views_us)
        return self._views[session]

    def _waiting_bytes(self) -> int:
        return sum([session.pipeline.queued_bytes for session in self._sessions.values()])

    # Reports

    def epoch_report(
        self, pipeline: LocalPipeline, epoch_us: int, emitted_us: int, version: int
    ) -> tuple[dict[str, Any], list[Any]]:
        """Report of a query's epoch: the scheduling part of its row, with the version `s` of the refined schedule in
        force, and rows of `agent.wire.SWEEPS`.
        """
        session, sweeps = self._sessions[pipeline.query, pipeline.plan], pipeline.take_sweeps(emitted_us)
        self._closing_us = max(self._closing_us, min(max(emitted_us - self._ends_us, 0), self._epoch_us))
        try:
            swept = session.sweep_rows(sweeps, epoch_us, version)
            held = self.refined_state.in_force.version if self.refined_state.in_force is not None else None
            return {**session.epoch_row(swept, emitted_us, self._began_ns), "s": held}, swept
        except Exception as error:
            self._failed("nothing is told of scheduling", error)
            return {}, []

    def delays(self, pipeline: LocalPipeline) -> dict[str, dict[str, Any]]:
        """Delays of a query's streams for the relay above, where a window was passed since the last call."""
        tracker = self._sessions[pipeline.query, pipeline.plan].tracker
        delay = tracker.take_delay() if tracker is not None and self._forwards else None
        return {tracker.stream: delay.note()} if tracker is not None and delay is not None else {}

    def late(self, pipeline: LocalPipeline) -> str:
        """Fault of a query's watermarks, in words; empty where there is none."""
        session = self._sessions.get((pipeline.query, pipeline.plan))
        return session.late(self._now_us()) if session is not None else ""

    @property
    def mode(self) -> str:
        """Mode of the next pick: latency, memory or saturated."""
        if self.settings.policy == "klink" and self._memory.active:
            return "memory"
        return "saturated" if self._saturation.active else "latency"

    def report(self) -> dict[str, Any]:
        """Report of scheduling for the heartbeat."""
        return {
            "policy": self.settings.policy,
            "mode": self.mode,
            "memory_bytes": self._waiting_bytes(),
            "memory_bound": self.settings.memory_bytes,
            "cycle_ms": self.settings.cycle_ms,
            "starved": self.starved,
            "reason": self._reason(),
            **self.refined_state.report(),
        }

    @property
    def faults(self) -> list[str]:
        """Its own, and that the time of a refined schedule is over."""
        return [fault for fault in (self.fault, self.refined_state.fault) if fault]

    def _reason(self) -> str:
        if self.fault:
            return self.fault
        if self.settings.policy == "klink" and self.mode == "memory":
            return (
                f"{self._waiting_bytes():,} bytes wait, {self.settings.memory_bytes:,} may: "
                "windows that are due first, then what frees memory best"
            )
        if self.mode == "saturated" and any(session.deadlines.can_hold for session in self._sessions.values()):
            return "more work than CPU time: as many records as possible by their deadlines, the others sent on at once"
        if self.settings.policy == "klink" and self.mode == "saturated":
            return "more work than CPU time: short windows first, none much later than all"
        return _WORDS[self.settings.policy]


def _of_memory(settings: ScheduleSettings) -> tuple[float, float, float]:
    return settings.memory_bytes, settings.release_share, settings.release_s
