"""Checkpoints of a Flink job as a term of its latency: how long each stops an operator, and what waits for it.

At a checkpoint a task's thread works on nothing while it makes its synchronous part, and one with several input
channels takes nothing more from those whose barrier has come until all have (aligned checkpoints alone). Both are told
by subtask, ``GET /jobs/:jid/checkpoints/details/:id/subtasks/:vid``. The thread is busy meanwhile by its own account,
so that costs per event hold the synchronous part. Results of a sink with a committer are seen once a checkpoint is
complete whose barrier came behind them: one that just missed it waits for the next, and until that is complete.

A sink that is set to at-least-once has a committer as well, which commits nothing. Its own count tells.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.connectors.answers import Answers, number_of
from engine.connectors.flink_metrics import metric_paths, read_metrics
from engine.connectors.picture import Vertex

__all__ = ["checkpoint_interval_s", "checkpoint_paths", "commit_metrics", "is_checkpoint_path", "with_checkpoints"]

_COMMITTED = (".successfulCommittables", ".alreadyCommittedCommittables")
_WRITTEN = "__Writer.numRecordsIn"
_COMMITTER = re.compile(r"committer\b|[_-]commit\b", re.IGNORECASE)
_ROLLING = re.compile(r"streaming-?file-?writer|streaming-writer", re.IGNORECASE)
_SOURCE = re.compile(r"^\s*(?:Source|TableSourceScan)\s*:")
_ROLLED = "its files are closed by size or age, which nothing tells, and seen at a checkpoint after that"
_OFF_MS = 2**62  # an interval of checkpoints that long is none
_SHORT_S = 0.01  # checkpoints that are complete so soon stop nobody for long
_NEGLIGIBLE_S = 0.005  # pauses that nobody waits for
_MAX_ASKED = 32  # answers about vertices, over all checkpoints of a job
_MAX_CHECKPOINTS = 3  # the newest, that vertices are asked about
_MIN_SILENT_CHECKPOINTS = 3  # that a committer took part in and committed nothing
_MIN_SILENT_S = 120.0  # files are rolled after 60 s unless that is set otherwise

_Spread = tuple[float, float, float]  # least, mean, most


@dataclass(frozen=True, slots=True)
class _Completed:
    """A completed checkpoint, no savepoint: its number, when it began, and the seconds until it was complete."""

    number: int
    begun_s: float
    duration_s: float


def checkpoint_interval_s(known: Answers, job: str) -> float | None:
    """Seconds from one checkpoint to the next as they are set; None where none are taken, or nothing tells."""
    answer = known.raw(f"/jobs/{job}/checkpoints/config")
    interval_ms = number_of(answer.get("interval")) if isinstance(answer, Mapping) else None
    return None if interval_ms is None or not 0.0 < interval_ms < _OFF_MS else interval_ms / 1000


def checkpoint_paths(known: Answers, job: str, vertices: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Paths that tell what the newest checkpoints did at each vertex, with bytes of their answers."""
    if checkpoint_interval_s(known, job) is None:
        return
    completed = _completed(known, job)[-_MAX_CHECKPOINTS:]
    asked = vertices[:_MAX_ASKED]
    count = max(1, _MAX_ASKED // max(1, len(asked)))
    if any(checkpoint.duration_s >= _SHORT_S for checkpoint in completed):
        for checkpoint in completed[-count:]:
            for vertex in asked:
                yield _subtasks_path(job, checkpoint, vertex), 1_500
    for vertex in vertices:
        names = known.raw(f"/jobs/{job}/vertices/{vertex}/subtasks/metrics")
        for path in _commit_paths(job, vertex, commit_metrics(names)):
            yield path, 300


def is_checkpoint_path(path: str) -> bool:
    """Whether a path tells of the newest checkpoints, or of what was committed at them: both move."""
    return path.endswith("/checkpoints") or "/checkpoints/details/" in path or _COMMITTED[0] in path


def commit_metrics(names: Any) -> tuple[str, ...]:
    """Metrics by which a vertex's committers count, and its writers what they wrote, given the names of its metrics.

    Examples
    --------
    >>> commit_metrics([{"id": "out__Committer.successfulCommittables"}, {"id": "out__Writer.numRecordsOut"}])
    ('out__Committer.successfulCommittables',)
    """
    rows = names if isinstance(names, list) else []
    listed = sorted({str(row.get("id", "")) for row in rows if isinstance(row, Mapping)})
    if not any(name.endswith(_COMMITTED[0]) for name in listed):
        return ()
    return tuple(name for name in listed if name.endswith((*_COMMITTED, _WRITTEN)))


def _commit_paths(job: str, vertex: str, metrics: Iterable[str]) -> tuple[str, ...]:
    return metric_paths(job, vertex, [{"id": name} for name in metrics], [""]).paths


def with_checkpoints(
    known: Answers, job: str, name: str, vertices: Sequence[Vertex], names: Mapping[str, str], begun_s: float
) -> Iterator[Vertex]:
    """Vertices with what checkpoints do to them; what is not told, or assumed, becomes findings.

    `names`: of each vertex with all that is chained in it. `begun_s`: when the newest of the job's threads began.
    """
    committers = {id_ for id_, text in names.items() if _has_committer(text)}
    interval_s = checkpoint_interval_s(known, job)
    if interval_s is None:
        _describe_uncommitted(known, job, name, [vertex for vertex in vertices if vertex.id in committers])
        yield from vertices
        return
    completed = _completed(known, job)
    if not completed:
        known.find("missing", "checkpoints_unmeasured", name, job=name, interval_s=interval_s)
    durations = _durations(known, job, completed, interval_s)
    pauses = {vertex.id: _pause(known, job, completed, vertex) for vertex in vertices}
    _describe_pauses(known, name, vertices, pauses, interval_s, completed)
    for vertex in vertices:
        document: dict[str, object] = {"interval_s": interval_s}
        doubts: list[str] = []
        if pause := pauses[vertex.id]:
            document["pause_s"] = list(pause)
        is_rolled = bool(_ROLLING.search(names[vertex.id]))
        if is_rolled:
            known.find("found", "results_commit", f"{name}/{vertex.label}", vertex=vertex.label)
        if is_rolled or (vertex.id in committers and _does_commit(known, job, name, vertex, completed, begun_s)):
            # While none is complete, all that is known is that the first one takes longer than nothing.
            document |= {"commits": True, "duration_s": list(durations or (0.0, 0.0, 0.0))}
            doubts += [] if durations else ["its results wait for a checkpoint, and none is complete yet"]
            doubts += [_ROLLED] if is_rolled else []
        checkpoint = document if len(document) > 1 else None
        yield replace(vertex, checkpoint=checkpoint, doubts=tuple(doubts))


def _describe_uncommitted(known: Answers, job: str, name: str, committers: Sequence[Vertex]) -> None:
    """Tell of committers of a job whose own answer says that it takes no checkpoints."""
    path = f"/jobs/{job}/checkpoints/config"
    answer = known.raw(path)
    if "not enabled" in known.refusal(path) or (isinstance(answer, Mapping) and "interval" in answer):
        for vertex in committers:
            subject = f"{name}/{vertex.label}"
            known.find("warning", "results_uncommitted", subject, "commits_never", vertex=vertex.label)


def _has_committer(name: str) -> bool:
    """Whether one of the chained operators commits, by its name.

    >>> _has_committer("out[7]: Writer -> out[7]: Committer"), _has_committer("Source: commits -> Sink: commits")
    (True, False)
    """
    parts = re.split(r"\s*->\s*|,\s", html.unescape(html.unescape(name)))
    return any(_COMMITTER.search(part) for part in parts if not _SOURCE.match(part))


def _completed(known: Answers, job: str) -> list[_Completed]:
    """The completed checkpoints that are told, no savepoints, by their beginnings."""
    answer = known.raw(f"/jobs/{job}/checkpoints")
    told = answer if isinstance(answer, Mapping) else {}
    listed, latest = told.get("history"), told.get("latest")
    rows = list(listed) if isinstance(listed, list) else []
    rows.append(latest.get("completed") if isinstance(latest, Mapping) else None)
    found: dict[int, _Completed] = {}
    for row in rows:
        if not isinstance(row, Mapping) or row.get("is_savepoint") is True:
            continue
        values = [number_of(row.get(key)) for key in ("id", "trigger_timestamp", "end_to_end_duration")]
        number, begun_ms, lasting_ms = values
        if row.get("status", "COMPLETED") == "COMPLETED" and number is not None and begun_ms and lasting_ms is not None:
            found[int(number)] = _Completed(int(number), begun_ms / 1000, max(0.0, lasting_ms) / 1000)
    return sorted(found.values(), key=lambda checkpoint: checkpoint.begun_s)


def _durations(known: Answers, job: str, completed: Sequence[_Completed], interval_s: float) -> _Spread | None:
    """From the beginning of a checkpoint to its end, over all that were completed; the next may begin late or fail.

    What a beginning was later than its interval allows is in the most of them: results wait for it as well.
    """
    if not completed:
        return None
    told = [checkpoint.duration_s for checkpoint in completed]
    answer = known.raw(f"/jobs/{job}/checkpoints")
    summary = answer.get("summary") if isinstance(answer, Mapping) else None
    spread = _spread(summary, "end_to_end_duration")
    apart_s = [after.begun_s - before.begun_s for before, after in itertools.pairwise(completed)]
    late_s = max(0.0, max(apart_s, default=interval_s) - interval_s)
    least, mean, most = spread or (min(told), sum(told) / len(told), max(told))
    return _ordered(min(least, *told), mean, max(most, *told) + late_s)


def _pause(known: Answers, job: str, completed: Sequence[_Completed], vertex: Vertex) -> _Spread | None:
    """Seconds of a checkpoint in which a vertex works on nothing; None where they are not told, or no length of time.

    Its subtasks pause by themselves. While barriers are aligned it works on events of other channels: which wait is
    not told, so at the most all do, and at the least none.
    """
    channels = len(vertex.inputs) > 1 or any(exchange.strategy != "forward" for exchange in vertex.inputs)
    found: list[_Spread] = []
    for checkpoint in completed[-_MAX_CHECKPOINTS:]:
        answer = known.raw(_subtasks_path(job, checkpoint, vertex.id))
        if not isinstance(answer, Mapping) or not isinstance(summary := answer.get("summary"), Mapping):
            continue
        sync = _spread(summary.get("checkpoint_duration"), "sync")
        if sync is None:
            continue
        rows = answer.get("subtasks")
        unaligned = isinstance(rows, list) and any(
            isinstance(row, Mapping) and row.get("unaligned_checkpoint") is True for row in rows
        )
        aligning = _spread(summary.get("alignment"), "duration") if channels and not unaligned else None
        _, mean, most = aligning or (0.0, 0.0, 0.0)
        found.append((sync[0], sync[1] + mean, sync[2] + most))
    if not found or max(most for _, _, most in found) < _NEGLIGIBLE_S:
        return None
    mean = sum(middle for _, middle, _ in found) / len(found)
    return _ordered(min(least for least, _, _ in found), mean, max(most for _, _, most in found))


def _does_commit(
    known: Answers, job: str, name: str, vertex: Vertex, completed: Sequence[_Completed], begun_s: float
) -> bool:
    """Whether results of a vertex with a committer wait for it, as far as nothing tells that it commits none."""
    counts: dict[str, float] = {}
    for path in _commit_paths(job, vertex.id, vertex.commit_metrics):
        counts |= read_metrics(known.raw(path))
    committed = sum(value for key, value in counts.items() if key.endswith(_COMMITTED))
    is_told = any(key.endswith(_COMMITTED[0]) for key in counts)
    written = sum(value for key, value in counts.items() if key.endswith(_WRITTEN))
    since = [checkpoint for checkpoint in completed if checkpoint.begun_s > begun_s]
    subject, told = f"{name}/{vertex.label}", {"vertex": vertex.label, "checkpoints": len(since)}
    is_silent = len(since) >= _MIN_SILENT_CHECKPOINTS and since[-1].begun_s - begun_s >= _MIN_SILENT_S
    if is_told and not committed and written and is_silent:
        known.find("found", "results_uncommitted", subject, written=written, **told)
        return False
    if committed:
        known.find("found", "results_commit", subject, **told)
    else:
        known.find("assumed", "results_commit", subject, "commits_assumed", **told)
    return True


def _describe_pauses(
    known: Answers,
    name: str,
    vertices: Sequence[Vertex],
    pauses: Mapping[str, _Spread | None],
    interval_s: float,
    completed: Sequence[_Completed],
) -> None:
    told = [(pause, vertex.label) for vertex in vertices if (pause := pauses[vertex.id])]
    if told:
        (_, mean, most), longest = max(told, key=lambda entry: entry[0][2])
        count = min(len(completed), _MAX_CHECKPOINTS)
        figures = {"mean_s": mean, "most_s": most, "share": mean / interval_s, "interval_s": interval_s}
        known.find("found", "checkpoints_pause", name, job=name, vertex=longest, checkpoints=count, **figures)


def _subtasks_path(job: str, checkpoint: _Completed, vertex: str) -> str:
    return f"/jobs/{job}/checkpoints/details/{checkpoint.number}/subtasks/{vertex}"


def _spread(parent: object, key: str) -> _Spread | None:
    """Seconds of a statistic in milliseconds, as Flink summarises it; None where it is not told, or of nothing."""
    row = parent.get(key) if isinstance(parent, Mapping) else None
    values = [number_of(row.get(part)) for part in ("min", "avg", "max")] if isinstance(row, Mapping) else []
    told = [value / 1000 for value in values if value is not None and value >= 0.0]
    return _ordered(*told) if len(told) == 3 else None


def _ordered(least: float, mean: float, most: float) -> _Spread:
    """A spread in milliseconds whose mean lies between its ends; rounded ones do not always."""
    low, middle, high = (round(value, 3) for value in (least, mean, most))
    return low, min(max(low, middle), max(low, high)), max(low, high)
