"""How far a query has come: the minimum over its agents, and over the paths of each of them.

Nothing here reads a clock. An agent is silent when the others' frames went on arriving without one of its own; the time
of arrival is the one at which Redis took a frame, so that a stream processor that catches up calls nobody silent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.wire import MOST_AHEAD_US, mark_fault

__all__ = ["AgentMarks", "Progress", "closing_epoch_us", "forget_passed", "mark", "progress"]


@dataclass
class AgentMarks:
    """What one agent has said about one query."""

    since_ms: int  #: since when it is waited for
    seen_ms: int | None = None  #: arrival of its last mark
    watermark_us: int | None = None  #: minimum over its paths
    final: bool = False  #: it has said that nothing follows
    left_out: list[str] = field(default_factory=list)  #: agents below a relay that it does not wait for
    closings: list[tuple[int, int]] = field(default_factory=list)  #: (watermark, epoch) of marks not yet passed by all


@dataclass(frozen=True)
class Progress:
    """The watermark of a query and who stands behind it."""

    watermark_us: int | None
    waiting_for: tuple[str, ...]  #: agents that hold the watermark where it is
    excluded: tuple[str, ...]  #: agents that are silent, and left out
    ended: bool = False  #: every agent that is not silent has said that nothing follows


def mark(marks: AgentMarks, extra: Mapping[str, Any], epoch_us: int, arrived_ms: int) -> None:
    """Take in a mark's `extra`.

    A watermark more than `MOST_AHEAD_US` after its arrival is of a wrong clock. It counts as the time of its arrival,
    so that what comes when the clock is right again is not late.

    Raises
    ------
    ValueError
        It names no watermark, or something that is no whole number.
    """
    if fault := mark_fault(extra):
        raise ValueError(f"a mark's {fault}")
    closing = extra.get("closing_epoch_us") or epoch_us
    marks.seen_ms = max(arrived_ms, marks.seen_ms or 0)
    arrived_us, watermark_us = 1000 * arrived_ms, min(extra["watermarks"].values())
    marks.watermark_us = watermark_us if watermark_us <= arrived_us + MOST_AHEAD_US else arrived_us
    marks.final = bool(extra.get("final"))
    marks.left_out = list(extra.get("left_out", ()))
    if not marks.closings or marks.closings[-1][0] < marks.watermark_us:
        marks.closings.append((marks.watermark_us, closing))


def progress(
    agents: Mapping[str, AgentMarks], expected: Iterable[str], *, before_us: int | None, now_ms: int, idle_after_ms: int
) -> Progress:
    """The watermark of a query whose `expected` agents have said what `agents` holds.

    Parameters
    ----------
    before_us
        The watermark so far; it never goes back.
    now_ms
        Time of the last arrival from anybody.
    """
    heard = {name: agents[name] for name in expected if name in agents}
    silent = tuple(sorted(name for name, one in heard.items() if _silent(one, now_ms, idle_after_ms)))
    present = {name: one for name, one in heard.items() if name not in silent}
    going = {name: one for name, one in present.items() if not one.final}
    unheard = tuple(sorted(name for name, one in going.items() if one.watermark_us is None))
    if unheard or not present:
        return Progress(before_us, unheard, silent)
    known = {name: one.watermark_us for name, one in (going or present).items() if one.watermark_us is not None}
    least = min(known.values()) if going else max(known.values())
    waiting = tuple(sorted(name for name, value in known.items() if value == least)) if going else ()
    watermark_us = least if before_us is None else max(least, before_us)
    return Progress(watermark_us, waiting, silent, ended=not going)


def closing_epoch_us(agents: Iterable[AgentMarks], end_us: int) -> int | None:
    """Beginning of the epoch whose mark was the last one that a window ending at `end_us` waited for."""
    found = [epoch for one in agents if (epoch := _closing(one, end_us)) is not None]
    return max(found, default=None)


def forget_passed(marks: AgentMarks, watermark_us: int) -> None:
    """Drop what no open window will ask for; the last mark stays."""
    later = [pair for pair in marks.closings if pair[0] > watermark_us]
    marks.closings = later or marks.closings[-1:]


def _closing(marks: AgentMarks, end_us: int) -> int | None:
    """An agent that has ended closes with its last mark, wherever its watermark stands."""
    passed = next((epoch for watermark, epoch in marks.closings if watermark >= end_us), None)
    return marks.closings[-1][1] if passed is None and marks.final and marks.closings else passed


def _silent(marks: AgentMarks, now_ms: int, idle_after_ms: int) -> bool:
    last_ms = marks.since_ms if marks.seen_ms is None else marks.seen_ms
    return not marks.final and now_ms - last_ms > idle_after_ms
