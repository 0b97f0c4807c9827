"""Steps of a measurement in a process of its own: within a budget each, and none is left out of the figures."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from lab.benchmarks.scale.figures import ScaleFigure

__all__ = ["ScaleStep", "run_steps"]

_START_S = 600.0  # a first start compiles, and what a step needs is made: not of its budget
Work = Callable[[Connection, list[str]], None]


@dataclass(frozen=True)
class ScaleStep:
    """A step and the names of its figures; where the one it `needs` has none, neither has it."""

    name: str
    figures: tuple[str, ...]
    needs: str = ""


def run_steps(work: Work, steps: Sequence[ScaleStep], like: ScaleFigure, budget_s: float) -> Iterator[ScaleFigure]:
    """Figures of steps, of which each has `budget_s`; what does not finish is said so, with the rest measured after it.

    Parameters
    ----------
    work : callable
        Run in a process of its own, with a connection and the names of the steps that are left: it sends an empty list
        when it is loaded, another when what the first step needs is there, and after each step the figures found.
    like : ScaleFigure
        Kind, size and database of all figures.
    """
    left, failed = list(steps), dict[str, str]()
    while left:
        if (why := failed.get(left[0].needs)) is not None:
            yield from _failed(left[0], like, why)
            failed[left.pop(0).name] = why
            continue
        ours, theirs = multiprocessing.get_context("spawn").Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(
            target=work, args=(theirs, [step.name for step in left]), daemon=True
        )
        process.start()
        theirs.close()
        waits, why = iter((_START_S, max(_START_S, budget_s))), ""
        try:
            while left:
                patience_s = next(waits, budget_s)
                if not ours.poll(patience_s):
                    why = f"not within {patience_s:g} s"
                    break
                found = ours.recv()
                if found:
                    yield from found
                    left.pop(0)
        except EOFError:
            process.join()
            why = f"ended with {process.exitcode}"
        finally:
            process.kill()
            process.join()
        if left:
            yield from _failed(left[0], like, why)
            failed[left.pop(0).name] = why


def _failed(step: ScaleStep, like: ScaleFigure, why: str) -> Iterator[ScaleFigure]:
    return (replace(like, name=name, value=None, note=why) for name in step.figures)
