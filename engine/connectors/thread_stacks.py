"""Looks at the threads of Flink's tasks: what each did at one moment, by the stack in a TaskManager's thread dump.

A source of the old interface runs with all that is chained to it in a thread of its own, which tells no busy time and
which flame graphs do not look at. ``GET /taskmanagers/:id/thread-dump`` shows it:

    "Legacy Source Thread - Source: bids[1] -> Calc[2] (1/1)#0" Id=77 TIMED_WAITING
        at WorkFunctions$Park.eval(Unknown Source)
        at StreamExecCalc$7.processElement(Unknown Source)
        at ….CopyingChainingOutput.pushToOperator(CopyingChainingOutput.java:75)
        at ….StreamSourceContexts$WatermarkContext.collect(StreamSourceContexts.java:484)
        at ….DataGeneratorSource.run(DataGeneratorSource.java:120)

Beyond ``SourceContext.collect`` it works on an event, unless it waits for room in its output or for the checkpoint
lock. Within its own code it works while it runs, and waits for events otherwise. Flink cuts stacks (50 frames unless
``cluster.thread-dump.stacktrace-max-depth`` says otherwise, 8 before 1.17) at the end that was called first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import quote

from engine.connectors.answers import Answers, Asking
from engine.connectors.flink import FLINK_ANSWERS, asking_of
from engine.connectors.picture import CounterPoll, EngineJob, Finding, ThreadLooks, Vertex

__all__ = [
    "StackOf",
    "ThreadStack",
    "counted_looks",
    "dump_paths",
    "look_at_threads",
    "look_pause_s",
    "merged_looks",
    "read_dump",
    "source_dump",
    "with_look",
]

#: Doing of a thread: working on events, waiting for them, blocked by its output, or nobody can tell.
StackOf = Literal["working", "waiting", "blocked", "undecided"]

_DUMP_BYTES = 120_000  # of an answer, with some 100 threads
_MIN_PAUSE_S, _PAUSES = 0.15, 2.0
_SOURCE_THREAD = "Legacy Source Thread - "
_HEAD = re.compile(r'^".*" Id=\d+ (?P<state>[A-Z_]+)', re.DOTALL)
_FRAME = re.compile(r"^\s*at (?:[\w.@-]*/{1,2})?([^(]+)\(", re.MULTILINE)  # without its module
#: Frames of a source that hands an event over, and those of any operator.
_COLLECT = re.compile(r"\.StreamSourceContexts\$\w+\.\w*(?:collect|emit)\w*$", re.IGNORECASE)
_OPERATOR = re.compile(r"(?:ChainingOutput|RecordWriterOutput|CountingOutput)\.\w+$|\.process(?:Element|Watermark)\w*$")
_NEXT_OPERATOR = re.compile(r"ChainingOutput\.pushToOperator$")
#: A task of today's interface that reads its input, or makes events of its own source.
_INPUT = re.compile(
    r"\.(?:StreamTask\.processInput|SourceOperator\.emitNext\w*|MailboxProcessor\.processMail\w*InLoop)$"
)
_OUTPUT_FULL = re.compile(r"\.LocalBufferPool\.request\w+$")
#: Methods of the JVM in which a thread that is told to run waits for what comes from outside.
_NATIVE_WAIT = re.compile(
    r"(?:SocketInputStream\.socketRead0|SocketDispatcher\.read0?|EPoll\.wait|EPollArrayWrapper\.epollWait|KQueue\.poll"
    r"|Net\.(?:poll|accept)|FileInputStream\.readBytes|FileDispatcherImpl\.read0|UnixNativeDispatcher\.\w+)$"
)
_RUNNABLE, _BLOCKED = "RUNNABLE", "BLOCKED"


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """A thread of a dump: its name, its state in the JVM's word, and its frames without lines, newest call first."""

    name: str
    state: str
    frames: tuple[str, ...]
    is_cut: bool = False

    @property
    def runs(self) -> bool:
        """Whether it has the CPU or wants it, and waits for nothing else that is known."""
        return self.state == _RUNNABLE and not (self.frames and _NATIVE_WAIT.search(self.frames[0]))

    def doing(self) -> StackOf:
        """Doing of a source's thread."""
        runs = self.runs
        if not self.frames:
            return "undecided"
        if any(_COLLECT.search(frame) or _OPERATOR.search(frame) for frame in self.frames):
            if not runs and any(_OUTPUT_FULL.search(frame) for frame in self.frames):
                return "blocked"
            is_locked = self.state == _BLOCKED and _COLLECT.search(self.frames[0])
            return "undecided" if is_locked else "working"
        if runs or any(_INPUT.search(frame) for frame in self.frames):
            return "working"
        return "undecided" if self.is_cut else "waiting"

    @property
    def operator(self) -> int | None:
        """Position in its chain of the operator that works, 0 for the source; None where the stack is cut."""
        return None if self.is_cut else sum(bool(_NEXT_OPERATOR.search(frame)) for frame in self.frames)


def read_dump(answer: object) -> tuple[ThreadStack, ...] | None:
    """Threads of a dump; None where the answer is none."""
    rows = answer.get("threadInfos") if isinstance(answer, Mapping) else None
    return tuple(_stacks(rows)) if isinstance(rows, list) else None


def _stacks(rows: Iterable[object]) -> Iterator[ThreadStack]:
    for row in rows:
        name, text = (row.get("threadName"), row.get("stringifiedThreadInfo")) if isinstance(row, Mapping) else (0, 0)
        if not isinstance(name, str) or not isinstance(text, str):
            continue
        head = _HEAD.match(text)
        frames = tuple(_FRAME.findall(text))
        is_cut = any(line.strip() == "..." for line in text.splitlines())
        yield ThreadStack(name, head["state"] if head else "", frames, is_cut)


def source_dump(answer: object) -> object:
    """A dump with the threads of old sources alone, a hundredth of its size; another answer as it is."""
    rows = answer.get("threadInfos") if isinstance(answer, Mapping) else None
    if not isinstance(rows, list):
        return answer
    kept = [
        row for row in rows if isinstance(row, Mapping) and str(row.get("threadName", "")).startswith(_SOURCE_THREAD)
    ]
    return {"threadInfos": kept}


def look_pause_s(asking_s: float) -> float:
    """Mean pause before the next look, where the one before took so long to ask: a third of the time is for asking.

    A dump stops all threads of a TaskManager for some milliseconds of that.

    Examples
    --------
    >>> look_pause_s(0.01), look_pause_s(0.5)
    (0.15, 1.0)
    """
    return max(_MIN_PAUSE_S, _PAUSES * asking_s)


def dump_paths(job: EngineJob, untold: Collection[str]) -> Asking:
    """Paths of the dumps that show the threads of a job's sources, of those vertices whose busy time is `untold`."""
    places = {subtask.place for vertex in _watched(job, untold) for subtask in vertex.subtasks if subtask.place}
    return asking_of(Answers({}, FLINK_ANSWERS), [(_path(place), _DUMP_BYTES) for place in sorted(places)])


def _path(place: str) -> str:
    return f"/taskmanagers/{quote(place, safe=':.-_')}/thread-dump"


def _watched(job: EngineJob, untold: Collection[str]) -> list[Vertex]:
    return [vertex for vertex in job.vertices if vertex.is_source and vertex.task_name and vertex.id in untold]


def look_at_threads(
    answers: Mapping[str, object], job: EngineJob, untold: Collection[str]
) -> tuple[dict[str, ThreadLooks], list[Finding]]:
    """One look at each thread of a job's sources that are `untold`, by vertex, and why others were not looked at.

    `answers`: to `dump_paths`, all of one moment. A thread is known by its task's name and number, so where two jobs
    have tasks of one name on a TaskManager, nobody knows which thread is whose, and none of them is looked at.
    """
    known = Answers(answers, FLINK_ANSWERS)
    dumps: dict[str, tuple[ThreadStack, ...] | None] = {}
    looks: dict[str, ThreadLooks] = {}
    findings: list[Finding] = []
    for vertex in _watched(job, untold):
        subject = f"{job.name}/{vertex.label}"
        places = {subtask.place for subtask in vertex.subtasks}
        if None in places or not places:
            continue
        for place in sorted(str(place) for place in places):
            if place not in dumps:
                dumps[place] = read_dump(known.raw(_path(place)))
            if dumps[place] is None and not any(finding.code == "threads_untold" for finding in findings):
                reason = known.refusal(_path(place)) or "it answers with no list of threads"
                findings.append(Finding.of("missing", "threads_untold", place, place=place, reason=reason))
        if any(dumps[str(place)] is None for place in places):
            continue
        own = [_threads_of(vertex, subtask.index, dumps[str(subtask.place)] or ()) for subtask in vertex.subtasks]
        if all(len(stacks) == 1 for stacks in own):
            looks[vertex.id] = counted_looks([(stacks[0], 1) for stacks in own])
        else:
            kind = "threads_alike" if any(len(stacks) > 1 for stacks in own) else "threads_absent"
            findings.append(Finding.of("missing", kind, subject, vertex=vertex.label))
    return looks, findings


def _threads_of(vertex: Vertex, index: int, stacks: Iterable[ThreadStack]) -> list[ThreadStack]:
    """Threads that a subtask may have: those with its task's name and its number, of whatever attempt."""
    name = f"{_SOURCE_THREAD}{vertex.task_name} ({index + 1}/{vertex.parallelism})#"
    return [stack for stack in stacks if stack.name.startswith(name) and stack.name.removeprefix(name).isdigit()]


def counted_looks(stacks: Sequence[tuple[ThreadStack, int]]) -> ThreadLooks:
    """Looks by what they found, of stacks each with how often it was seen."""
    doings = Counter[str]()
    depths = Counter[int]()
    running = 0
    for stack, count in stacks:
        doing = stack.doing()
        doings[doing] += count
        if doing == "working":
            running += count * stack.runs
            if (depth := stack.operator) is not None:
                depths[depth] += count
    return ThreadLooks(
        working=doings["working"],
        waiting=doings["waiting"],
        blocked=doings["blocked"],
        undecided=doings["undecided"],
        by_operator=tuple(depths[depth] for depth in range(max(depths, default=-1) + 1)),
        running=running,
    )


def with_look(poll: CounterPoll, job: EngineJob, answers: Mapping[str, object]) -> tuple[CounterPoll, list[Finding]]:
    """The poll with one more look at the threads of those vertices that it does not tell the busy time of."""
    looks, findings = look_at_threads(answers, job, poll.untold)
    threads = {id_: merged_looks(poll.threads[id_], own) if id_ in poll.threads else own for id_, own in looks.items()}
    return replace(poll, threads={**poll.threads, **threads}), findings


def merged_looks(first: ThreadLooks, second: ThreadLooks) -> ThreadLooks:
    """Both together."""
    short, long = sorted((first.by_operator, second.by_operator), key=len)
    return ThreadLooks(
        working=first.working + second.working,
        waiting=first.waiting + second.waiting,
        blocked=first.blocked + second.blocked,
        undecided=first.undecided + second.undecided,
        by_operator=tuple(n + (short[i] if i < len(short) else 0) for i, n in enumerate(long)),
        running=first.running + second.running,
    )
