"""Flame graphs of Flink's vertices: which operator of a chain its threads were at work in, by sampled stacks.

``GET /jobs/:jid/vertices/:vid/flamegraph?type=full`` answers with a tree of calls and how many samples each was seen
in, of all threads of a vertex. Counters tell the busy time of a chain as one; the samples that found it at work divide
it among its operators. Samples of type ``on_cpu`` leave out what an operator waits for within an event, which is busy
time as well, so that all are asked for and those that wait for input are left out by their stacks.

The JobManager samples when it is asked, for some five seconds, and keeps the answer for a minute: the first one says
that there is none yet. So vertices are asked in turn, a few of them for some minutes each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from engine.connectors.answers import Answers, Asking
from engine.connectors.flink import FLINK_ANSWERS, asking_of
from engine.connectors.picture import CounterPoll, EngineJob, Finding, FlameLooks, Vertex
from engine.connectors.thread_stacks import ThreadStack, counted_looks

__all__ = ["flame_paths", "with_flames"]

_ANSWER_BYTES = 60_000
_AT_A_TIME = 3  # vertices of a job that are asked in one turn
_TURN_S = 180.0  # so that a connection that asks once a minute sees what it had sampled
_DISABLED = -2  # in place of the time of the newest sample
_LINE = re.compile(r":-?\d+$")
_MAX_DEPTH = 400


def flame_paths(job: EngineJob, poll: CounterPoll) -> Asking:
    """Paths of the flame graphs of those vertices whose turn it is at the time of a poll."""
    chains = _chains(job, poll)
    turns = -(-len(chains) // _AT_A_TIME)
    first = int(poll.at_s // _TURN_S) % turns * _AT_A_TIME if turns else 0
    paths = [(_path(job, vertex), _ANSWER_BYTES) for vertex in chains[first : first + _AT_A_TIME]]
    return asking_of(Answers({}, FLINK_ANSWERS), paths)


def _chains(job: EngineJob, poll: CounterPoll) -> list[Vertex]:
    """Vertices of several operators in a row that tell their busy time."""
    return [vertex for vertex in job.vertices if vertex.chained and vertex.id in poll.vertices.keys() - poll.untold]


def _path(job: EngineJob, vertex: Vertex) -> str:
    return f"/jobs/{job.id}/vertices/{vertex.id}/flamegraph?type=full"


def with_flames(poll: CounterPoll, job: EngineJob, answers: Mapping[str, object]) -> tuple[CounterPoll, list[Finding]]:
    """The poll with the flame graphs that answers hold, and why there are none."""
    known = Answers(answers, FLINK_ANSWERS)
    flames = dict(poll.flames)
    for vertex in _chains(job, poll):
        answer = known.raw(_path(job, vertex))
        if not isinstance(answer, Mapping):
            continue
        end_ms, root = answer.get("endTimestamp"), answer.get("data")
        if end_ms == _DISABLED:
            return poll, [Finding.of("missing", "flames_off", job.name, job=job.name)]
        if isinstance(end_ms, (int, float)) and end_ms > 0 and isinstance(root, Mapping):
            flames[vertex.id] = FlameLooks(end_ms / 1000.0, counted_looks(list(_stacks(root))))
    return replace(poll, flames=flames), []


def _stacks(node: Mapping[str, object], above: tuple[str, ...] = ()) -> Iterator[tuple[ThreadStack, int]]:
    """Stacks of a tree of calls, newest call first, each with how many samples ended there."""
    name, listed = node.get("name"), node.get("children")
    count = _count(node)
    frames = above if not above and name == "root" else (_LINE.sub("", str(name)), *above)
    children: Sequence[object] = listed if isinstance(listed, list) and len(above) < _MAX_DEPTH else ()
    inner = [child for child in children if isinstance(child, Mapping)]
    ended = count - sum(map(_count, inner))
    if ended > 0 and frames:
        yield ThreadStack("", "", frames), ended
    for child in inner:
        yield from _stacks(child, frames)


def _count(node: Mapping[str, object]) -> int:
    value = node.get("value")
    return int(value) if isinstance(value, (int, float)) and 0 <= value < 1e9 else 0
