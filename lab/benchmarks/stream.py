"""The stream processor's price: ``./sluice lab stream [--against FOLDER] [--full]``.

Throughput, CPU time by role, start, idling, memory and recovery. With ``--against`` the stream processor of another
checkout runs beside it on the same frames, so that both suffer alike from what else the machine does, and ratios stand
beside each other. Of every window the count of records is checked on both.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import redis

from lab.benchmarks.machine import machine
from lab.benchmarks.stream_load import Load, StreamConsole, push_frames
from lab.benchmarks.telemetry_loop import WINDOW_S, processor, server

__all__ = ["main"]

_MAX_DRIVER_RATIO = 0.1  # of the earlier one's driver CPU per 1,000 frames
_MAX_SMALL_RATIO = 1.3  # of its idle trigger, and of its start
_TRIGGER_S = 1.0
_IDLE_S = 20
_SETTLE_S = 2.5
_PATIENCE_S = 240.0
_ROLES = ("driver", "jvm", "workers")
_ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """Print one table; 1 when a target is missed, or a count is wrong."""
    parser = argparse.ArgumentParser(prog="sluice lab stream")
    parser.add_argument("--against", type=Path, help="another checkout, whose stream processor runs beside this one")
    parser.add_argument("--full", action="store_true", help="more frames and repeats, and more settings compared")
    asked = parser.parse_args(arguments)
    print(machine())
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        report = _Report(asked.against is not None)
        _compare(Path(name), asked.against, asked.full, report)
        _tune(Path(name), asked.full, report)
    return report.end()


# -- one stream processor under measurement


@dataclass
class _Side:
    """A stream processor with a broker and a console of its own."""

    name: str
    folder: Path
    root: Path = _ROOT
    more: Mapping[str, str] = field(default_factory=dict)
    console: StreamConsole = field(default_factory=lambda: StreamConsole(()))
    start_s: float = 0.0  #: until it was ready
    start_cpu_s: dict[str, float] = field(default_factory=dict)
    _seen_s: dict[tuple[int, float], tuple[str, float]] = field(default_factory=dict)

    @contextmanager
    def broker(self) -> Iterator[None]:
        """Its Redis and its console, which outlive the stream processor."""
        self.folder.mkdir()
        with server(self.folder) as self.url, self.console.listening(), redis.Redis.from_url(self.url) as self.client:
            yield

    def start(self) -> None:
        began_s, self._running = time.perf_counter(), ExitStack()
        self.process = self._running.enter_context(
            processor(self.folder, self.console, self.url, _TRIGGER_S, root=self.root, more=self.more)
        )
        self.start_s, self.start_cpu_s = time.perf_counter() - began_s, self.cpu_s()

    def stop(self) -> None:
        self._running.close()

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far by role, with those of workers that were seen before and have ended."""
        for process, role in self._family():
            times = process.cpu_times()
            self._seen_s[process.pid, process.create_time()] = role, times.user + times.system
        return {role: sum(spent_s for known, spent_s in self._seen_s.values() if known == role) for role in _ROLES}

    def rss_mb(self) -> dict[str, float]:
        found = dict.fromkeys(_ROLES, 0.0)
        for process, role in self._family():
            found[role] += process.memory_info().rss / 2**20
        return found

    def _family(self) -> Iterator[tuple[psutil.Process, str]]:
        head = psutil.Process(self.process.pid)
        for process in [head, *head.children(recursive=True)]:
            try:
                role = "driver" if process == head else "jvm" if process.name() == "java" else "workers"
                process.cpu_times()  # one that has ended, and is not yet gone from the list, is left out
            except psutil.NoSuchProcess:
                continue
            yield process, role


@contextmanager
def _sides(sides: Sequence[_Side]) -> Iterator[None]:
    """All of them, started at the same time."""
    with ExitStack() as stack:
        for side in sides:
            stack.enter_context(side.broker())
        for side in sides:
            stack.callback(side.stop)
        _together(sides, _Side.start)
        yield


def _together(sides: Sequence[_Side], act: Callable[[_Side], None]) -> None:
    with ThreadPoolExecutor(len(sides)) as pool:
        list(pool.map(act, sides))


@dataclass(frozen=True)
class _Cost:
    """CPU and wall time that a side took for a load."""

    frames: int
    records: int
    wall_s: float
    cpu_s: dict[str, float]

    @property
    def total_s(self) -> float:
        return sum(self.cpu_s.values())

    @property
    def driver_ms(self) -> float:
        """CPU milliseconds of the driver for 1,000 frames."""
        return 1e6 * self.cpu_s["driver"] / self.frames


def _spend(sides: Sequence[_Side], load: Load, epochs: int, paced_s: float = 0.0) -> list[_Cost]:
    """Send epochs of a load, and wait until every window's result is here; an epoch each `paced_s`."""
    for side in sides:
        side.console.queries = load.plan()
    before, began_s = [side.cpu_s() for side in sides], time.perf_counter()
    ended_s = [0.0] * len(sides)
    frames, known = 0, sum(load.expected.values())
    for epoch in range(epochs):
        time.sleep(max(0.0, began_s + epoch * paced_s - time.perf_counter()))
        frames += push_frames([side.client for side in sides], load)
    due, until = load.closed(), time.monotonic() + _PATIENCE_S
    while not all(ended_s) and time.monotonic() < until:
        for i, side in enumerate(sides):
            if not ended_s[i] and due.keys() <= side.console.results.keys() and not side.console.wrong(due):
                ended_s[i] = time.perf_counter()
        time.sleep(0.05)
    for side in sides:
        if wrong := side.console.wrong(due):
            raise AssertionError(f"{side.name}: {len(wrong)} windows of {len(due)} are wrong, as {wrong[0]}")
    time.sleep(_SETTLE_S)  # the batch that said the last is committed
    spent = [_difference(side.cpu_s(), was) for side, was in zip(sides, before, strict=True)]
    records = sum(load.expected.values()) - known
    return [_Cost(frames, records, end_s - began_s, cpu) for end_s, cpu in zip(ended_s, spent, strict=True)]


def _difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {role: after[role] - before[role] for role in _ROLES}


def _idle(sides: Sequence[_Side], triggers: float = _IDLE_S / _TRIGGER_S) -> list[dict[str, float]]:
    """CPU milliseconds of a trigger at which nothing came, by role."""
    before = [side.cpu_s() for side in sides]
    time.sleep(triggers * _TRIGGER_S)
    spent = [_difference(side.cpu_s(), was) for side, was in zip(sides, before, strict=True)]
    return [{role: 1e3 * spent_s / triggers for role, spent_s in cpu.items()} for cpu in spent]


# -- the table


class _Report:
    """Lines of the table; the earlier implementation's figure stands before the present one's."""

    def __init__(self, compares: bool) -> None:
        self._compares, self._missed = compares, 0
        print("| figure | before | now | ratio | target |\n| --- | --- | --- | --- | --- |")

    def line(self, name: str, figures: Sequence[float], unit: str = "", most: float | None = None) -> None:
        """A figure of each side; `most` is the largest ratio that meets the target."""
        texts = [f"{_number(figure)}{unit}" for figure in figures]
        ratio = figures[-1] / figures[0] if len(figures) > 1 and figures[0] > 0 else None
        verdict = ""
        if most is not None and ratio is not None:
            self._missed += ratio > most
            verdict = f"{'met' if ratio <= most else 'MISSED'}: at most {most:g}"
        share = f"{ratio:.2f}" if ratio is not None else ""
        self.row(name, texts[0] if len(texts) > 1 else "", texts[-1], share, verdict)

    def cpu(self, name: str, spent: Sequence[Mapping[str, float]], unit: str, most: float | None = None) -> None:
        """The total CPU time, and that of each role."""
        self.line(f"{name}: CPU, all", [sum(cpu.values()) for cpu in spent], unit, most)
        for role in _ROLES:
            self.line(f"{name}: CPU, {_ROLE_NAMES[role]}", [cpu[role] for cpu in spent], unit)

    def row(self, *cells: str) -> None:
        print(f"| {' | '.join(cells)} |", flush=True)

    def end(self) -> int:
        if self._compares:
            print(f"\n{self._missed or 'no'} target{'' if self._missed == 1 else 's'} missed; every count is exact")
        return 1 if self._missed else 0


_ROLE_NAMES = {"driver": "driver's Python", "jvm": "JVM", "workers": "Python workers"}


def _number(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


# -- what is measured


def _compare(top: Path, against: Path | None, full: bool, report: _Report) -> None:
    """The present implementation, beside an earlier one."""
    earlier = [_Side("before", top / "before", against.resolve())] if against is not None else []
    sides = [*earlier, _Side("now", top / "now")]
    for side in sides:  # what is live from the beginning is a small installation
        side.console.queries = Load("small", 4, queries=4, per_agent=4).plan()
    with _sides(sides):
        report.line("start to ready", [side.start_s for side in sides], " s", _MAX_SMALL_RATIO)
        report.cpu("start", [side.start_cpu_s for side in sides], " s", _MAX_SMALL_RATIO)
        _spend(sides, Load("warm", 20), 6)  # workers import what they need, the JVM compiles
        _spend(sides, Load("warmer", 4, as_records=True, rows=1_000), 6)
        _report_idle(sides, report)
        _report_frames(sides, full, report)
        _report_records(sides, full, report)
        _report_paced(sides, full, report)
        _report_windows(sides, full, report)


def _report_idle(sides: Sequence[_Side], report: _Report) -> None:
    for side in sides:
        side.console.queries = Load("small", 4, queries=4, per_agent=4).plan()
    time.sleep(3 * _TRIGGER_S + 2)  # the plan has come
    report.cpu(f"idle, a trigger of {_TRIGGER_S:g} s", _idle(sides), " ms", _MAX_SMALL_RATIO)


def _report_frames(sides: Sequence[_Side], full: bool, report: _Report) -> None:
    """About as many frames of ten, a hundred and a thousand agents."""
    frames = 20_000 if full else 5_000
    for agents in (10, 100, 1_000):
        repeats = []
        for repeat in range(3 if full else 1):
            load = Load(f"a{agents}-{repeat}", agents)
            repeats.append(_spend(sides, load, max(frames // (5 * agents), 1) // WINDOW_S * WINDOW_S or WINDOW_S))
        costs = [_median(some) for some in zip(*repeats, strict=True)]
        name = f"{agents:,} agents, partial aggregates"
        report.line(f"{name}: driver CPU per 1,000 frames", [c.driver_ms for c in costs], " ms", _MAX_DRIVER_RATIO)
        report.line(f"{name}: all CPU per 1,000 frames", [1e6 * c.total_s / c.frames for c in costs], " ms")
        report.line(f"{name}: frames/s", [c.frames / c.wall_s for c in costs])


def _report_records(sides: Sequence[_Side], full: bool, report: _Report) -> None:
    """Records that agents drain, in frames of a thousand."""
    load = Load("records", 10, per_agent=1, as_records=True, rows=1_000)
    costs = _spend(sides, load, 200 if full else 50)
    report.line("records, frames of 1,000: answered events/s", [cost.records / cost.wall_s for cost in costs])
    report.cpu("records", [cost.cpu_s for cost in costs], " s")


def _report_paced(sides: Sequence[_Side], full: bool, report: _Report) -> None:
    """An epoch a second, as agents send them."""
    epochs = 60 if full else 15
    costs = _spend(sides, Load("paced", 100), epochs, 1.0)
    per_trigger = [{role: 1e3 * value / epochs for role, value in cost.cpu_s.items()} for cost in costs]
    report.cpu("100 agents in real time, 500 frames/s, a second", per_trigger, " ms")


def _report_windows(sides: Sequence[_Side], full: bool, report: _Report) -> None:
    """Memory and recovery while ten times as many windows are retained."""
    load = Load("windows", 10, queries=10, per_agent=1, groups=400, rows=2_000)
    few = 40 if full else 10
    for windows, epochs in ((few, few * WINDOW_S), (10 * few, 9 * few * WINDOW_S)):
        _spend(sides, load, epochs)
        memory = [side.rss_mb() for side in sides]
        name = f"{windows} windows of 10 queries retained"
        for role in ("driver", "jvm"):
            report.line(f"{name}: {_ROLE_NAMES[role]} resident", [rss[role] for rss in memory], " MB")
        _report_recovery(sides, load, name, report)


def _report_recovery(sides: Sequence[_Side], load: Load, name: str, report: _Report) -> None:
    """From a restart to the first batch that is committed."""
    for side in sides:
        side.stop()
    push_frames([side.client for side in sides], load)
    push_frames([side.client for side in sides], load)
    began_s, took_s = time.perf_counter(), {}

    def recover(side: _Side) -> None:
        side.start()
        while side.console.wrong(load.closed()):
            if time.perf_counter() > began_s + _PATIENCE_S:
                raise TimeoutError(f"{side.name} has not recovered within {_PATIENCE_S:g} s")
            time.sleep(0.05)
        took_s[side.name] = time.perf_counter() - began_s

    _together(sides, recover)
    report.line(f"{name}: restart to results", [took_s[side.name] for side in sides], " s")


def _tune(top: Path, full: bool, report: _Report) -> None:
    """Partitions of the shuffle and shards of a query, beside each other."""
    choices = [(1, 1), (2, 1), (4, 1), (2, 2)]
    if full:
        choices += [(8, 1), (4, 4)]
    sides = [
        _Side(
            f"{partitions} partitions, {shards} shards",
            top / f"tune-{partitions}-{shards}",
            more={"SLUICE_STREAM_PARTITIONS": str(partitions), "SLUICE_STREAM_SHARDS": str(shards)},
        )
        for partitions, shards in choices
    ]
    with _sides(sides):
        _spend(sides, Load("warm", 20), 4)
        idle = _idle(sides, 10)
        paced = _spend(sides, Load("paced", 20), 10, 1.0)
        heavy = _spend(sides, Load("heavy", 8, queries=1, per_agent=1, groups=5_000, rows=20_000), 20)
    print("\n| setting | idle trigger | 20 agents in real time, a second | one query, 160 frames of 5,000 groups |")
    print("| --- | --- | --- | --- |")
    for side, rest, small, large in zip(sides, idle, paced, heavy, strict=True):
        report.row(
            side.name,
            f"{sum(rest.values()):.0f} ms CPU",
            f"{100 * small.total_s:.0f} ms CPU",
            f"{large.total_s:.1f} s CPU in {large.wall_s:.1f} s",
        )


def _median(costs: Sequence[_Cost]) -> _Cost:
    cpu = {role: statistics.median(cost.cpu_s[role] for cost in costs) for role in _ROLES}
    return _Cost(costs[0].frames, costs[0].records, statistics.median(cost.wall_s for cost in costs), cpu)
