"""Progress of a process that is waited for: what it does, since when, and whether it has stood still for too long."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass

from launcher.output import Terminal
from launcher.services import ServiceRun

__all__ = ["PATIENCE_VARIABLE", "FamilyWork", "IdleClock", "PatienceError", "Wait", "read_patience_s"]

PATIENCE_VARIABLE = "SLUICE_START_PATIENCE_S"
_DEFAULT_PATIENCE_S = 120.0
# Below this share of a core a process only idles: a loop that looks every few milliseconds whether something has come,
# or the housekeeping of a JVM.
_IDLE_SHARE = 0.02
_LOOK_EVERY_S = 1.0
_SHOWN_CHARACTERS = 160


class PatienceError(ValueError):
    """The variable holds no time."""


def read_patience_s() -> float:
    """Seconds without progress after which a process counts as standing still.

    Raises
    ------
    PatienceError
        Says what is allowed.
    """
    text = os.environ.get(PATIENCE_VARIABLE, "").strip()
    try:
        patience_s = float(text or _DEFAULT_PATIENCE_S)
    except ValueError:
        patience_s = math.nan
    if not 1 <= patience_s <= 86400:
        raise PatienceError(f"{PATIENCE_VARIABLE}={text}: allowed are seconds from 1 to 86400")
    return patience_s


@dataclass(frozen=True)
class FamilyWork:
    """Work of a process with all its descendants."""

    cpu_s: float = 0.0  #: processor time used so far, with that of children that have ended
    is_runnable: bool = False  #: whether one of them runs, waits for a core or for a disk at this moment

    @staticmethod
    def read(leader: int) -> FamilyWork:
        import psutil

        cpu_s, is_runnable = 0.0, False
        try:
            family = [psutil.Process(leader), *psutil.Process(leader).children(recursive=True)]
        except psutil.Error:
            return FamilyWork()
        for process in family:
            try:
                times, status = process.cpu_times(), process.status()
            except psutil.Error:
                continue
            cpu_s += times.user + times.system + times.children_user + times.children_system
            is_runnable |= status in {psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP}
        return FamilyWork(cpu_s, is_runnable)


class IdleClock:
    """Time since a process last made progress: wrote a line, used the processor, or wanted to and was kept waiting."""

    def __init__(self, patience_s: float, now: float) -> None:
        self._enough_cpu_s = _IDLE_SHARE * patience_s
        self._moved_at, self._cpu_s, self._lines = now, 0.0, 0

    def look(self, now: float, work: FamilyWork, lines: int) -> float:
        """Seconds without progress; `lines`: how many it has written so far."""
        self._cpu_s = min(self._cpu_s, work.cpu_s)  # less than before: a child ended whose time nobody took over
        if work.is_runnable or lines > self._lines or work.cpu_s - self._cpu_s >= self._enough_cpu_s:
            self._moved_at, self._cpu_s, self._lines = now, work.cpu_s, lines
        return now - self._moved_at


class Wait:
    """The wait for one process. It has no bound while the process makes progress, and says now and then how it goes."""

    def __init__(self, run: ServiceRun, console: Terminal, *, patience_s: float, tell_every_s: float) -> None:
        self.patience_s = patience_s
        self._run, self._console, self._tell_every_s = run, console, tell_every_s
        now = time.monotonic()
        self._clock = IdleClock(patience_s, now)
        self._began_at = self._told_at = now
        self._look_every_s = min(_LOOK_EVERY_S, patience_s / 10, tell_every_s)
        self._looked_at = -math.inf

    @property
    def poll_s(self) -> float:
        """Pause before the next look whether it is ready: asking a slow process all the time makes it slower."""
        return 0.05 if time.monotonic() - self._began_at < 10 else 0.5

    def has_stood_still(self) -> bool:
        """Look at the process, tell how it goes when that is due, and say whether to go on without it."""
        now = time.monotonic()
        if now - self._looked_at < self._look_every_s:
            return False
        self._looked_at = now
        work = FamilyWork.read(self._run.process.pid)
        idle_s = self._clock.look(now, work, self._run.lines)
        if now - self._told_at >= self._tell_every_s:
            self._told_at = now
            self._console.begin(self._run.service.name, self._words(work, idle_s))
        return idle_s > self.patience_s

    def _words(self, work: FamilyWork, idle_s: float) -> str:
        run = self._run
        step = run.step or (run.recent[-1].strip() if run.recent else "") or "has said nothing yet"
        idle = f"; no sign of work for {idle_s:.0f} s" if idle_s >= self._tell_every_s else ""
        since_s = time.monotonic() - run.started_at
        waited = "not done after" if run.service.one_off else "not ready after"
        return (
            f"{waited} {since_s:.0f} s: {step[:_SHOWN_CHARACTERS]} "
            f"({work.cpu_s:.0f} s of CPU time{idle}; {_machine_words()})"
        )


def _machine_words() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"load {os.getloadavg()[0]:.1f} on {cores} core{'s' if cores > 1 else ''}"
