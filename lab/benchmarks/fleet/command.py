"""``./sluice lab fleet``: heartbeats and frames of 100, 1,000 and 10,000 agents at a real console.

What real agents said is recorded once and said again under so many names, a post a second and a heartbeat every two, by
asyncio clients on the same machine. All processes of an installation run; what each spends on a heartbeat and on a
frame is measured, and from these figures what a larger fleet takes, with what breaks first.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import TypeVar

from lab.benchmarks.fleet.arithmetic import SPREADS, UnitCosts, demands, first_to_break
from lab.benchmarks.fleet.clients import Attained, say
from lab.benchmarks.fleet.console import ROLES, FleetConsole
from lab.benchmarks.machine import machine
from lab.benchmarks.scale.console import DATABASES, console_environment
from lab.benchmarks.scale.figures import ScaleFigure, Target, figures_json, print_figures
from lab.benchmarks.scale.steps import ScaleStep, run_steps

__all__ = ["main"]

FLEET_OF = 200_000  #: sources that the arithmetic is for
HEARTBEATS, HEARTBEAT_SHARE = "heartbeats taken", "heartbeats taken of those due"
HEARTBEAT_SQL, FRAMES_SQL = "SQL statements of a heartbeat", "SQL statements of a post of frames"
FRAMES, FRAMES_SHARE = "frames taken", "posts taken of those due"
COMMITTED = "frames worked off"
STATISTICS, REFRESHES = "rows of statistics written", "estimates made"
STREAM_SHARE = "stream processor, cores at 500 frames/s"
FULLEST = "cores of the fullest process while frames came"
PER_POST = "frames of a post"
_IDLE, _BEAT, _POST = "idle: ", "CPU of a heartbeat: ", "CPU of 1,000 frames: "
_STREAM = ("driver", "jvm", "spark workers")
_EPOCHS = 30
_IDLE_S = 5.0
_ENOUGH_PER_S = 400.0  # fewer frames say what a batch costs by itself, and nothing of 500 a second
_Found = TypeVar("_Found")

FLEET_TARGETS = (
    Target(STREAM_SHARE, 0.5, queries=100),
    Target(HEARTBEAT_SHARE, 0.99, queries=100, at_least=True),
    Target(FRAMES_SHARE, 0.99, queries=100, at_least=True),
    Target(HEARTBEAT_SQL, 1.0, queries=1_000, over=100),
    Target(FRAMES_SQL, 1.0, queries=1_000, over=100),
    Target(HEARTBEAT_SQL, 1.0, over=1_000),
    Target(FRAMES_SQL, 1.0, over=1_000),
)
FLEET_STEPS = (
    ScaleStep(
        "fleet",
        (
            PER_POST,
            HEARTBEAT_SQL, FRAMES_SQL, HEARTBEATS, HEARTBEAT_SHARE, FRAMES, FRAMES_SHARE, COMMITTED, STATISTICS,
            REFRESHES, STREAM_SHARE, FULLEST, *(_BEAT + role for role in ROLES), *(_POST + role for role in ROLES),
        ),
    ),
)  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="sluice lab fleet", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 1000, 10_000], help="agents (100 1000 10000)")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=["SQLite"], help="of the console (SQLite)")
    parser.add_argument("--seconds", type=int, default=20, help="for which frames come; heartbeats half as long (20)")
    parser.add_argument("--budget", type=float, default=600.0, metavar="S", help="seconds for each size (600)")
    parser.add_argument("--json", action="store_true", help="figures, growth and targets as JSON")
    asked = parser.parse_args(arguments)
    if min(asked.sizes) < 10 or not 4 <= asked.seconds <= _EPOCHS - 4 or not asked.budget > 0.0:
        parser.error(f"sizes are at least 10, seconds 4 to {_EPOCHS - 4}, the budget above 0")
    screen = sys.stderr if asked.json else sys.stdout
    print(f"{machine()}; load average {os.getloadavg()[0]:.1f}", file=screen, flush=True)
    figures: list[ScaleFigure] = []
    for figure in _measured(asked):
        figures.append(figure)
        value = figure.note if figure.value is None else f"{figure.value:.3g} {figure.unit}"
        print(f"  {figure.queries:,} agents, {figure.name}: {value}", file=sys.stderr, flush=True)
    if asked.json:
        print(figures_json(machine(), figures, FLEET_TARGETS))
    is_met = print_figures(figures, FLEET_TARGETS, screen, of="agents")
    for database in asked.databases:
        for line in arithmetic_lines([figure for figure in figures if figure.database == database]):
            print(line, file=screen)
    return 0 if is_met else 1


def _measured(asked: argparse.Namespace) -> Iterator[ScaleFigure]:
    for size in sorted(asked.sizes):
        for database in asked.databases:
            like = ScaleFigure("fleet", "fleet", size, None, database=database)
            with console_environment(database) as env:
                if env is None:
                    why = "not run: no PostgreSQL is installed"
                    yield from (replace(like, name=name, note=why) for step in FLEET_STEPS for name in step.figures)
                    continue
                yield from run_steps(partial(run_fleet, env, like, asked.seconds), FLEET_STEPS, like, asked.budget)


def run_fleet(env: Mapping[str, str], like: ScaleFigure, seconds: int, said: Connection, steps: list[str]) -> None:
    """Measure a fleet of one size; heartbeats first and frames alone after them, so that each has its own costs."""
    os.environ |= env
    said.send([])
    fleet = FleetConsole(like.queries)
    fleet.set_up(_EPOCHS)
    said.send([])
    figures = [
        _figure(like, HEARTBEAT_SQL, fleet.sql_of("heartbeats")),
        _figure(like, FRAMES_SQL, fleet.sql_of("frames")),
    ]
    with fleet.running() as port:
        warm = fleet.agents[:10]
        sent = say("frames", port, warm[1:], 2, 0.5, 10.0)  # of the first one two epochs came with its statements
        _wait_for(lambda: fleet.committed() >= sent.frames, 4.0 * seconds)
        _, idle_s = _spent(fleet, lambda: time.sleep(_IDLE_S))
        beats, beat_s = _spent(fleet, lambda: say("heartbeats", port, fleet.agents, seconds // 4, 2.0, seconds / 2))
        stored, worked_off, began_s = fleet.stored(), fleet.committed(), time.monotonic()

        def send() -> Attained:
            posted = say("frames", port, fleet.agents[len(warm) :], seconds, 1.0, float(seconds))
            _wait_for(lambda: fleet.committed() - worked_off >= posted.frames, 3.0 * seconds)
            return posted

        posts, post_s = _spent(fleet, send)
        wall_s, done, found = time.monotonic() - began_s, fleet.committed() - worked_off, fleet.stored()
    idle_cores = {role: spent_s / _IDLE_S for role, spent_s in idle_s.items()}
    beat_cpu_s = {role: max(0.0, spent_s - idle_cores[role] * beats.wall_s) for role, spent_s in beat_s.items()}
    post_cpu_s = {role: max(0.0, spent_s - idle_cores[role] * wall_s) for role, spent_s in post_s.items()}
    figures.append(_figure(like, PER_POST, posts.frames / max(posts.done, 1)))
    figures += _attained(like, beats, HEARTBEATS, HEARTBEAT_SHARE, beats.done)
    figures += _attained(like, posts, FRAMES, FRAMES_SHARE, posts.frames)
    figures.append(_figure(like, COMMITTED, done / wall_s, "/s", note=f"{done:,} of {posts.frames:,} taken"))
    figures.append(_figure(like, STATISTICS, (found["statistics"] - stored["statistics"]) / wall_s, "/s"))
    figures.append(_figure(like, REFRESHES, (found["refreshes"] - stored["refreshes"]) / wall_s, "/s"))
    stream_s = sum(post_cpu_s[role] for role in _STREAM) / max(done, 1)
    resting = sum(idle_cores[role] for role in _STREAM)
    if done / wall_s >= _ENOUGH_PER_S:
        figures.append(_figure(like, STREAM_SHARE, resting + 500 * stream_s, "cores"))
    fullest = max(ROLES, key=lambda role: post_s[role])
    figures.append(_figure(like, FULLEST, post_s[fullest] / wall_s, "cores", note=fullest))
    figures += [_figure(like, _IDLE + role, idle_cores[role], "cores") for role in ROLES]
    figures += [_figure(like, _BEAT + role, 1e3 * beat_cpu_s[role] / max(beats.done, 1), "ms") for role in ROLES]
    per_frame = {role: max(done if role in _STREAM else posts.frames, 1) for role in ROLES}
    figures += [_figure(like, _POST + role, 1e6 * post_cpu_s[role] / per_frame[role], "ms") for role in ROLES]
    said.send(figures)


def _attained(like: ScaleFigure, attained: Attained, name: str, share: str, units: int) -> Iterator[ScaleFigure]:
    refused = {status: count for status, count in attained.statuses.items() if status != 200}
    note = ", ".join(f"{count} answered {status}" for status, count in refused.items())
    yield _figure(like, name, units / attained.wall_s, "/s", note=note)
    yield _figure(like, share, attained.done / attained.asked)


def _figure(like: ScaleFigure, name: str, value: float, unit: str = "", note: str = "") -> ScaleFigure:
    return replace(like, name=name, value=float(value), unit=unit, note=note)


def _spent(fleet: FleetConsole, act: Callable[[], _Found]) -> tuple[_Found, dict[str, float]]:
    """Do it; its result, and the CPU seconds by role that passed meanwhile."""
    before = fleet.cpu_s()
    found = act()
    return found, {role: spent_s - before[role] for role, spent_s in fleet.cpu_s().items()}


def _wait_for(is_there: Callable[[], bool], patience_s: float) -> None:
    until_s = time.monotonic() + patience_s
    while not is_there() and time.monotonic() < until_s:
        time.sleep(0.2)


def arithmetic_lines(figures: Sequence[ScaleFigure]) -> Iterator[str]:
    """Words on what `FLEET_OF` sources take, by the costs at the largest size that was measured."""
    measured = [figure for figure in figures if figure.value is not None]
    if not measured:
        return
    size = max(figure.queries for figure in measured)
    value = {figure.name: figure.value or 0.0 for figure in measured if figure.queries == size}
    frames_per_post = value[PER_POST]
    costs = UnitCosts(
        {role: value[_BEAT + role] / 1e3 for role in SPREADS},
        {role: frames_per_post * value[_POST + role] / 1e6 for role in SPREADS},
        frames_per_post,
    )
    yield f"\n{FLEET_OF:,} sources, a post of {frames_per_post:g} frames a second and a heartbeat every two, by the"
    yield f"costs at {size:,} agents, which sent {value[FRAMES]:,.0f} frames/s. A batch costs something by itself:"
    yield "where few frames a second were worked off this is an upper bound of what the stream processor takes."
    for demand in demands(costs, FLEET_OF):
        yield f"  {demand.process:14} {demand.cores:10,.1f} cores; {demand.more}"
    first, agents = first_to_break(costs)
    yield f"first to break: {first.process}, full at {agents:,} agents; {first.more}"
