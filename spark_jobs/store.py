"""States on disk, kept so that a crash at any moment loses and doubles nothing.

A state is the commit point of its step: frames to post are on disk before it, and nothing of a step shows before it. A
file holds a state's small facts and the windows that its step changed; windows that did not change lie in the files of
earlier steps, which stay for as long as a kept state names them.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from agent.wire import WireError, batch_bytes, table_of
from agent.wire.schemas import compressed_bytes
from engine.files import replace_file
from spark_jobs.input.arrivals import Arrival, table_of_waiting
from spark_jobs.state import (
    CHECKPOINTS,
    AgentCheckpoint,
    AgentMarks,
    FlowState,
    FlowWindow,
    JoinWindow,
    SideRows,
    StreamState,
)
from spark_jobs.statistics.operator_history import OperatorHistory
from spark_jobs.statistics.subintervals import upgrade_epochs
from spark_jobs.statistics.sweep_history import SweepTables

__all__ = ["StateStore"]

_KEPT = 3
_FORMAT = 1
_LEARNED = ("operators", "cycles", "sent")
_SWEPT = ("rings", "sent")
_COMPRESSED = {"swept/rings"}  # to a sixth
_TABLES = ("waiting", "counters", "sums", "sweeps")
_SIDES = ("records", "others")
_FACTS = ("step", "run", "batch", "now_ms", "summed_ms", "emitted", "counts", "read_to")


class StateStore:
    """The files of the last few states, in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._kept: deque[tuple[int, set[int]]] = deque(maxlen=_KEPT)

    def load(self) -> StreamState | None:
        """The newest state that can be read whole; None when there is none."""
        states: list[tuple[StreamState, set[int]]] = []
        for path in reversed(self._files()):
            try:
                state = self._read(path)
            except (OSError, zipfile.BadZipFile, KeyError, ValueError, TypeError, WireError):
                if not states:
                    path.unlink(missing_ok=True)
                continue
            states.append((state, _references(state)))
            if len(states) == _KEPT:
                break
        self._kept.extend((state.step, needs) for state, needs in reversed(states))
        return states[0][0] if states else None

    def save(self, state: StreamState) -> None:
        """Commit `state`, then drop files that no kept state needs."""
        replace_file(self._path(state.step), _packed(state))
        self._kept.append((state.step, _references(state)))
        needed = {step for own, needs in self._kept for step in (own, *needs)}
        for path in self._files():
            if int(path.stem) not in needed:
                path.unlink(missing_ok=True)

    def _read(self, path: Path) -> StreamState:
        with zipfile.ZipFile(path) as file:
            facts = json.loads(file.read("facts.json"))
            if facts["format"] != _FORMAT:
                raise ValueError(f"{path} has format {facts['format']}; allowed: {_FORMAT}")
            tables = {name: table_of(file.read(name)) for name in _TABLES if name in facts}
        return StreamState(
            **{name: facts[name] for name in _FACTS},
            positions={(agent, life): seq for agent, life, seq in facts["positions"]},
            flows={(fact["query"], fact["plan"]): flow for fact in facts["flows"] for flow in [self._flow(fact)]},
            waiting=[Arrival(**row) for row in tables["waiting"].to_pylist()] if "waiting" in tables else [],
            counters=upgrade_epochs(tables.get("counters")),
            sums=tables.get("sums"),
            learned=self._learned(facts.get("learned")),
            sweeps=tables.get("sweeps"),
            swept=self._swept(facts.get("swept")),
        )

    def _learned(self, facts: dict[str, Any] | None) -> OperatorHistory:
        """Of a state of before there was any: nothing."""
        if facts is None:
            return OperatorHistory()
        tables = {name: self._part(facts | {"part": f"learned/{name}"}) for name in _LEARNED}
        newest = {place: (at_us, at_ms) for place, (at_us, at_ms) in facts["newest"].items()}
        return OperatorHistory(facts["step"], newest, facts["told_ms"], **tables)

    def _swept(self, facts: dict[str, Any] | None) -> SweepTables:
        if facts is None:
            return SweepTables()
        tables = {name: self._part(facts | {"part": f"swept/{name}"}) for name in _SWEPT}
        return SweepTables(facts["step"], facts["told_ms"], **tables)

    def _flow(self, facts: dict[str, Any]) -> FlowState:
        windows = {begin: FlowWindow(partial=self._part(entry), **entry) for begin, entry in facts.pop("windows")}
        checkpoints = {
            name: {agent: AgentCheckpoint(rows=self._part(entry), **entry) for agent, entry in facts.pop(name, ())}
            for name in CHECKPOINTS
        }
        agents = {name: _marks(entry) for name, entry in facts.pop("agents").items()}
        sides = {begin: self._sides(entry) for begin, entry in facts.pop("sides", ())}
        return FlowState(**facts, **checkpoints, agents=agents, windows=windows, sides=sides)

    def _sides(self, facts: dict[str, Any]) -> JoinWindow:
        return JoinWindow(
            **{name: [SideRows(self._part(fact), fact["step"]) for fact in facts[name]] for name in _SIDES}
        )

    def _part(self, facts: dict[str, Any]) -> pa.Table:
        """The table of a part, which lies in the file of the step that last changed it."""
        part = facts.pop("part")
        with zipfile.ZipFile(self._path(facts["step"])) as file:
            return table_of(file.read(part))

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("*.state") if not path.name.startswith("."))

    def _path(self, step: int) -> Path:
        return self._folder / f"{step:012d}.state"


def _packed(state: StreamState) -> bytes:
    facts: dict[str, Any] = {"format": _FORMAT} | {name: getattr(state, name) for name in _FACTS}
    facts["positions"] = [[*sender, seq] for sender, seq in state.positions.items()]
    facts["flows"] = [_flow_facts(flow) for flow in state.flows.values()]
    if state.learned.step:
        facts["learned"] = {name: getattr(state.learned, name) for name in ("step", "newest", "told_ms")}
    if state.swept.step:
        facts["swept"] = {name: getattr(state.swept, name) for name in ("step", "told_ms")}
    waiting = table_of_waiting(state.waiting) if state.waiting else None
    tables = {name: waiting if name == "waiting" else getattr(state, name) for name in _TABLES}
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_STORED) as file:
        for name, table in tables.items():
            if table is not None:
                facts[name] = True
                file.writestr(name, batch_bytes(table.combine_chunks()))
        for part, table, step in _parts(state):
            if step == state.step:
                pack = compressed_bytes if part in _COMPRESSED else batch_bytes
                file.writestr(part, pack(table.combine_chunks()))
        file.writestr("facts.json", json.dumps(facts, separators=(",", ":")))
    return sink.getvalue()


def _flow_facts(flow: FlowState) -> dict[str, Any]:
    apart = {"agents", "windows", "sides", *CHECKPOINTS}
    facts = {name: value for name, value in vars(flow).items() if name not in apart}
    facts["agents"] = {name: asdict(marks) for name, marks in flow.agents.items()}
    facts["windows"] = [
        [begin, {"part": _part(flow, begin)} | {key: value for key, value in vars(window).items() if key != "partial"}]
        for begin, window in flow.windows.items()
    ]
    for name in CHECKPOINTS:
        facts[name] = [
            [
                agent,
                {
                    "part": _part(flow, name, agent),
                    "step": checkpoint.step,
                    "epoch": checkpoint.epoch,
                    "parts": checkpoint.parts,
                },
            ]
            for agent, checkpoint in getattr(flow, name).items()
        ]
    if flow.sides:
        facts["sides"] = [[begin, _sides_facts(flow, begin, sides)] for begin, sides in flow.sides.items()]
    return facts


def _sides_facts(flow: FlowState, begin: int, sides: JoinWindow) -> dict[str, Any]:
    """A step puts at most one part of each side together, so the names of a file are unlike."""
    return {
        name: [{"part": _part(flow, name, begin), "step": rows.step} for rows in getattr(sides, name)]
        for name in _SIDES
    }


def _parts(state: StreamState) -> Iterator[tuple[str, pa.Table, int]]:
    """Tables that are written when they change: name, rows and the step that last changed them."""
    if state.learned.step:
        for name in _LEARNED:
            yield f"learned/{name}", getattr(state.learned, name), state.learned.step
    if state.swept.step:
        for name in _SWEPT:
            yield f"swept/{name}", getattr(state.swept, name), state.swept.step
    for flow in state.flows.values():
        for begin, window in flow.windows.items():
            yield _part(flow, begin), window.partial, window.step
        for name in CHECKPOINTS:
            for agent, part in getattr(flow, name).items():
                yield _part(flow, name, agent), part.rows, part.step
        for begin, sides in flow.sides.items():
            for name in _SIDES:
                for some in getattr(sides, name):
                    yield _part(flow, name, begin), some.rows, some.step


def _part(flow: FlowState, *names: str | int) -> str:
    return "/".join(map(str, (flow.query, flow.plan, *names)))


def _references(state: StreamState) -> set[int]:
    return {step for _, _, step in _parts(state)}


def _marks(facts: dict[str, Any]) -> AgentMarks:
    return AgentMarks(**facts | {"closings": [(watermark, epoch) for watermark, epoch in facts["closings"]]})
