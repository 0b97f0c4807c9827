"""Readers of each engine in one shape, so that asking and importing do not know which it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apps.connections.choices import ConnectionEngine
from engine.connectors.answers import normal_path
from engine.connectors.flink import next_paths, poll_flink, poll_paths, read_flink
from engine.connectors.picture import CounterPoll, EnginePicture

__all__ = ["READERS", "EngineReader"]

Answers = Mapping[str, Any]


@dataclass(frozen=True)
class EngineReader:
    """Functions that read one engine's answers.

    Attributes
    ----------
    next_paths : callable
        Paths that a picture lacks, given the answers so far and the jobs that are wanted; empty when it is whole.
    read : callable
        The picture from answers and the time of asking.
    poll_paths : callable
        Paths of one poll of counters of a picture's jobs, or some of them.
    poll : callable
        Counters of a job from answers.
    tells_of : callable
        Whether answers hold counters of a job.
    ended : callable
        Jobs that are over, and their states in the engine's word, by id.
    is_of_job : callable
        Whether a path is about a job, so that its answer is void once that runs anew.
    volatile : callable
        Whether the answer to a path changes while nothing is deployed, so that a refresh asks for it again.
    """

    next_paths: Callable[[Answers, Collection[str] | None], Sequence[str]]
    read: Callable[[Answers, float], EnginePicture]
    poll_paths: Callable[[EnginePicture, Collection[str] | None], Sequence[str]]
    poll: Callable[[Answers, str, float], CounterPoll]
    tells_of: Callable[[Answers, str], bool]
    ended: Callable[[Answers], Mapping[str, str]]
    is_of_job: Callable[[str, str], bool]
    volatile: Callable[[str], bool]


_FLINK_LISTS = frozenset({"/jobs/overview", "/taskmanagers", "/overview"})
_FLINK_ENDED = frozenset({"FINISHED", "CANCELED", "FAILED", "SUSPENDED"})


def _flink_ended(answers: Answers) -> dict[str, str]:
    """By id, the state of each job that has ended for good."""
    listing = next((answer for path, answer in answers.items() if normal_path(path) == "/jobs/overview"), None)
    rows = listing.get("jobs") if isinstance(listing, Mapping) else None
    return {
        str(row.get("jid")): str(row["state"]).lower()
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, Mapping) and row.get("state") in _FLINK_ENDED
    }


READERS: dict[str, EngineReader] = {
    ConnectionEngine.FLINK: EngineReader(
        next_paths=lambda answers, jobs: next_paths(answers, jobs=jobs).paths,
        read=read_flink,
        poll_paths=lambda picture, jobs: poll_paths(picture, jobs).paths,
        poll=lambda answers, job, at_s: poll_flink(answers, job, at_s),
        tells_of=lambda answers, job: any(normal_path(path) == f"/jobs/{job}" for path in answers),
        ended=_flink_ended,
        is_of_job=lambda path, job: normal_path(path).startswith(f"/jobs/{job}"),
        volatile=lambda path: normal_path(path) in _FLINK_LISTS,
    ),
}
