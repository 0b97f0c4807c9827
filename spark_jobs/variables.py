"""State of the stream processor in variables of Spark's keyed state: typed columns, and tables as Arrow streams.

Every variable has a schema of its own; nothing is pickled, so a state is read by any later release that knows its
columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from agent.wire.schemas import batch_bytes, compressed_bytes
from spark_jobs.input.arrivals import Arrival, table_of_waiting
from spark_jobs.plans import FlowKey
from spark_jobs.state import AgentCheckpoint, AgentMarks, FlowState, FlowWindow, JoinWindow, SideRows, StoredTable
from spark_jobs.statistics.history import OperatorHistory, StatisticsState, SweepTables

__all__ = ["FORMAT", "FlowVariables", "GenerationsVariables", "StatisticsVariables", "read_table"]

FORMAT = 1  #: of all variables; a driver refuses a checkpoint of a later one

_POSITIONS = pa.schema([("agent", pa.string()), ("life", pa.string()), ("seq", pa.int64())])
_HEARD = pa.schema([("query", pa.string()), ("plan", pa.string()), ("arrived_ms", pa.int64())])
_AGENTS = pa.schema(
    [
        ("agent", pa.string()),
        ("since_ms", pa.int64()),
        ("seen_ms", pa.int64()),
        ("watermark_us", pa.int64()),
        ("final", pa.bool_()),
        ("left_out", pa.list_(pa.string())),
        ("watermarks_us", pa.list_(pa.int64())),  # of marks not passed by all, and their epochs
        ("epochs_us", pa.list_(pa.int64())),
    ]
)
_LOST = pa.schema([("agent", pa.string()), ("whole_from_us", pa.int64())])  # null until its next mark
_WINDOWS = pa.schema(
    [
        ("begin_us", pa.int64()),
        ("step", pa.int64()),
        ("records", pa.int64()),
        ("revision", pa.int32()),
        ("missing", pa.list_(pa.string())),
    ]
)
_CHECKPOINTS = pa.schema(
    [
        ("agent", pa.string()),
        ("arriving", pa.bool_()),
        ("step", pa.int64()),
        ("epoch", pa.int64()),
        ("parts", pa.int32()),
        ("begins", pa.list_(pa.int64())),
    ]
)
_SIDES = pa.schema(
    [
        ("begin_us", pa.int64()),
        ("other", pa.bool_()),
        ("step", pa.int64()),
        ("num_rows", pa.int64()),
        ("size_bytes", pa.int64()),
    ]
)
_WORK = pa.schema([(name, pa.int64()) for name in ("index", "records_in", "records_out", "groups", "cpu_ns", "now_us")])
_NEWEST = pa.schema([("place", pa.string()), ("epoch_us", pa.int64()), ("seen_ms", pa.int64())])


class GenerationsVariables:
    """State of one partition of the broker: how far each generation of its agents has come, and what waits."""

    def __init__(self, handle: Any) -> None:
        self._facts = handle.getValueState(
            "facts",
            "format int, step bigint, session string, "
            "duplicates bigint, gaps bigint, quarantined bigint, unknown bigint",
        )
        self._positions = handle.getValueState("positions", "rows binary")
        self._waiting = handle.getValueState("waiting", "rows binary")
        self._heard = handle.getValueState("heard", "rows binary")

    def facts(self) -> tuple[int, str, dict[str, int]]:
        """Number of the last step, the driver's session then, and the counts."""
        found = self._facts.get()
        if found is None:
            return 0, "", dict.fromkeys(_COUNTS, 0)
        return found[1], found[2], dict(zip(_COUNTS, found[3:], strict=True))

    def set_facts(self, step: int, session: str, counts: Mapping[str, int]) -> None:
        self._facts.update((FORMAT, step, session, *(counts[name] for name in _COUNTS)))

    def positions(self) -> dict[tuple[str, str], int]:
        return {(agent, life): seq for agent, life, seq in _rows(self._positions.get(), _POSITIONS)}

    def set_positions(self, positions: Mapping[tuple[str, str], int]) -> None:
        self._positions.update((_packed(_POSITIONS, ((*sender, seq) for sender, seq in positions.items())),))

    def waiting(self) -> list[Arrival]:
        found = self._waiting.get()
        return [Arrival(**row) for row in read_table(found[0]).to_pylist()] if found else []

    def set_waiting(self, waiting: list[Arrival], before: bool) -> None:
        """`before` is whether something waited until now."""
        if waiting:
            self._waiting.update((batch_bytes(table_of_waiting(waiting).combine_chunks()),))
        elif before:
            self._waiting.clear()

    def heard(self) -> dict[FlowKey, int]:
        """When flows were last heard of, milliseconds, of those that may still wait for silent agents."""
        return {(query, plan): at for query, plan, at in _rows(self._heard.get(), _HEARD)}

    def set_heard(self, heard: Mapping[FlowKey, int]) -> None:
        self._heard.update((_packed(_HEARD, ((*flow, at_ms) for flow, at_ms in heard.items())),))


_COUNTS = ("duplicates", "gaps", "quarantined", "unknown")


class FlowVariables:
    """State of one flow, or of one shard of it: windows and other tables are entries of their own."""

    def __init__(self, handle: Any) -> None:
        self._flow = handle.getValueState(
            "flow",
            "format int, step bigint, started_us bigint, watermark_us bigint, passed_us bigint, late bigint, "
            "early bigint, ended boolean, now_ms bigint, summed_ms bigint, agents binary, lost binary, "
            "windows binary, checkpoints binary, sides binary",
        )
        self._windows = handle.getMapState("windows", "begin_us bigint", "partial binary")
        self._checkpoints = handle.getMapState("checkpoints", "agent string, arriving boolean", "rows binary")
        self._sides = handle.getMapState("sides", "begin_us bigint, other boolean, step bigint", "rows binary")
        self._work = handle.getValueState("work", "rows binary")
        self._sums = handle.getValueState("work_sums", "rows binary")
        self._stored: dict[str, set[Any]] = {}

    def load(self, query: str, plan: str) -> FlowState | None:
        """The flow; None where there is none yet."""
        found = self._flow.get()
        self._stored = {"windows": set(), "checkpoints": set(), "sides": set()}
        if found is None:
            return None
        (_, step, started_us, watermark_us, passed_us, late, early, ended, now_ms, summed_ms, *blobs) = found
        flow = FlowState(
            query,
            plan,
            watermark_us=watermark_us,
            passed_us=passed_us,
            late=late,
            early=early,
            ended=ended,
            started_us=started_us,
            step=step,
            now_ms=now_ms,
            summed_ms=summed_ms,
        )
        self._read_agents(flow, *blobs[:2])
        self._read_tables(flow, *blobs[2:])
        flow.work = [tuple(row) for row in _rows(self._work.get(), _WORK)]
        return flow

    def save(self, flow: FlowState) -> None:
        """Write what the flow's present step changed, and its facts."""
        stored: dict[str, set[Any]] = {
            "windows": set(flow.windows),
            "checkpoints": {
                (agent, kept is flow.arriving) for kept in (flow.checkpoints, flow.arriving) for agent in kept
            },
            "sides": set(_sides_of(flow)),
        }
        for begin_us, window in flow.windows.items():
            if window.step == flow.step:
                self._windows.updateValue((begin_us,), (_bytes(window.partial),))
        for kept in (flow.checkpoints, flow.arriving):
            for agent, checkpoint in kept.items():
                if checkpoint.step == flow.step:
                    self._checkpoints.updateValue((agent, kept is flow.arriving), (_bytes(checkpoint.rows),))
        for key, part in _sides_of(flow).items():
            if part.step == flow.step:
                self._sides.updateValue(key, (_bytes(part.rows),))
        for begin_us in self._stored["windows"] - stored["windows"]:
            self._windows.removeKey((begin_us,))
        for name, variable in (("checkpoints", self._checkpoints), ("sides", self._sides)):
            for key in self._stored[name] - stored[name]:
                variable.removeKey(key)
        self._save_facts(flow)

    def set_work(self, flow: FlowState) -> None:
        """Write what operators did since it was summed."""
        self._work.update((_packed(_WORK, flow.work),))

    def sums(self) -> pa.Table | None:
        """Sums of what operators did; None before the first."""
        found = self._sums.get()
        return read_table(found[0]) if found else None

    def set_sums(self, sums: pa.Table) -> None:
        self._sums.update((_bytes(sums),))

    def clear(self) -> None:
        """Forget the flow."""
        for variable in (self._flow, self._windows, self._checkpoints, self._sides, self._work, self._sums):
            variable.clear()

    def _save_facts(self, flow: FlowState) -> None:
        agents = (
            (name, m.since_ms, m.seen_ms, m.watermark_us, m.final, m.left_out, *_pairs(m.closings))
            for name, m in flow.agents.items()
        )
        lost = [(name, None) for name in flow.lost] + list(flow.whole_from.items())
        windows = ((begin, w.step, w.records, w.revision, w.missing) for begin, w in flow.windows.items())
        checkpoints = (
            (agent, kept is flow.arriving, c.step, c.epoch, c.parts, c.begins)
            for kept in (flow.checkpoints, flow.arriving)
            for agent, c in kept.items()
        )
        sides = ((*key, part.num_rows, part.size_bytes) for key, part in _sides_of(flow).items())
        blobs = (
            _packed(_AGENTS, agents),
            _packed(_LOST, lost),
            _packed(_WINDOWS, windows),
            _packed(_CHECKPOINTS, checkpoints),
            _packed(_SIDES, sides),
        )
        facts = (flow.started_us, flow.watermark_us, flow.passed_us, flow.late, flow.early, flow.ended)
        self._flow.update((FORMAT, flow.step, *facts, flow.now_ms, flow.summed_ms, *blobs))

    def _read_agents(self, flow: FlowState, agents: bytes | None, lost: bytes | None) -> None:
        for name, since_ms, seen_ms, watermark_us, final, left_out, watermarks, epochs in _blob_rows(agents, _AGENTS):
            closings = list(zip(watermarks, epochs, strict=True))
            flow.agents[name] = AgentMarks(since_ms, seen_ms, watermark_us, final, left_out, closings)
        for name, whole_from_us in _blob_rows(lost, _LOST):
            if whole_from_us is None:
                flow.lost.append(name)
            else:
                flow.whole_from[name] = whole_from_us

    def _read_tables(
        self, flow: FlowState, windows: bytes | None, checkpoints: bytes | None, sides: bytes | None
    ) -> None:
        for begin_us, step, records, revision, missing in _blob_rows(windows, _WINDOWS):
            flow.windows[begin_us] = FlowWindow(
                self._stored_in(self._windows, (begin_us,)), step, records, revision, missing
            )
            self._stored["windows"].add(begin_us)
        for agent, arriving, step, epoch, parts, begins in _blob_rows(checkpoints, _CHECKPOINTS):
            kept = flow.arriving if arriving else flow.checkpoints
            rows = self._stored_in(self._checkpoints, (agent, arriving))
            kept[agent] = AgentCheckpoint(rows, step, epoch, parts, tuple(begins))
            self._stored["checkpoints"].add((agent, arriving))
        for begin_us, other, step, num_rows, size_bytes in _blob_rows(sides, _SIDES):
            window = flow.sides.setdefault(begin_us, JoinWindow())
            rows = self._stored_in(self._sides, (begin_us, other, step))
            (window.others if other else window.records).append(SideRows(rows, step, num_rows, size_bytes))
            self._stored["sides"].add((begin_us, other, step))

    def _stored_in(self, variable: Any, key: tuple[Any, ...]) -> StoredTable:
        return StoredTable(lambda: read_table(variable.getValue(key)[0]))


def _sides_of(flow: FlowState) -> dict[tuple[int, bool, int], SideRows]:
    """Parts of sides by their keys: a step puts at most one part of each side together."""
    return {
        (begin_us, other, part.step): part
        for begin_us, window in flow.sides.items()
        for other, parts in ((False, window.records), (True, window.others))
        for part in parts
    }


class StatisticsVariables:
    """State of the statistics of some queries; counters and sweeps gather in lists until they are summed."""

    def __init__(self, handle: Any) -> None:
        self._clock = handle.getValueState(
            "clock",
            "format int, step bigint, now_ms bigint, summed_ms bigint, counters bigint, sweeps bigint, "
            "learned_step bigint, learned_told_ms bigint, swept_step bigint, swept_told_ms bigint",
        )
        self._lists = {name: handle.getListState(name, "rows binary") for name in ("counters", "sweeps")}
        self._tables = {name: handle.getValueState(name, "rows binary") for name in _STATISTICS_TABLES}

    def load_clock(self) -> tuple[StatisticsState, dict[str, int]]:
        """The state without its tables, and how many rows of counters and sweeps wait."""
        found = self._clock.get() or (FORMAT, *(0,) * 9)
        _, step, now_ms, summed_ms, counters, sweeps, learned_step, learned_told_ms, swept_step, swept_told_ms = found
        state = StatisticsState(step, now_ms, summed_ms=summed_ms)
        state.learned = OperatorHistory(learned_step, told_ms=learned_told_ms)
        state.swept = SweepTables(swept_step, swept_told_ms)
        return state, {"counters": counters, "sweeps": sweeps}

    def append(self, name: str, rows: bytes) -> None:
        """Add rows of counters or sweeps to those that wait."""
        self._lists[name].appendValue((rows,))

    def load_counters(self, state: StatisticsState) -> None:
        """Counters that wait, their sums, and what was learned of operators."""
        counters = self._gathered("counters")
        assert counters is not None
        steps = pa.repeat(pa.scalar(state.step, pa.int64()), counters.num_rows)
        state.counters = counters.set_column(counters.schema.get_field_index("step"), "step", steps)
        state.sums = self._stored("", "sums").get("sums")
        newest = {place: (at_us, at_ms) for place, at_us, at_ms in _rows(self._tables["newest"].get(), _NEWEST)}
        tables = self._stored("learned_", "operators", "cycles", "sent")
        state.learned = replace(state.learned, newest=newest, **tables)

    def load_sweeps(self, state: StatisticsState) -> None:
        """Sweeps that wait, what is known of them, and what was said of operators' costs."""
        state.sweeps = self._gathered("sweeps")
        state.swept = replace(state.swept, **self._stored("swept_", "rings", "sent"))
        state.learned = replace(state.learned, **self._stored("learned_", "sent"))

    def save_counters(self, state: StatisticsState) -> None:
        """Counters were summed: none waits any more."""
        self._lists["counters"].clear()
        assert state.sums is not None
        self._tables["sums"].update((_bytes(state.sums),))
        learned = state.learned
        for name in ("operators", "cycles", "sent"):
            self._tables[f"learned_{name}"].update((_bytes(getattr(learned, name)),))
        newest = ((place, *seen) for place, seen in learned.newest.items())
        self._tables["newest"].update((_packed(_NEWEST, newest),))

    def save_sweeps(self, state: StatisticsState) -> None:
        """Sweeps were taken in: none waits any more."""
        self._lists["sweeps"].clear()
        self._tables["swept_rings"].update((compressed_bytes(state.swept.rings),))
        self._tables["swept_sent"].update((_bytes(state.swept.sent),))

    def save_clock(self, state: StatisticsState, waiting: Mapping[str, int]) -> None:
        learned, swept = state.learned, state.swept
        rows = waiting["counters"], waiting["sweeps"]
        told = learned.step, learned.told_ms, swept.step, swept.told_ms
        self._clock.update((FORMAT, state.step, state.now_ms, state.summed_ms, *rows, *told))

    def _gathered(self, name: str) -> pa.Table | None:
        tables = [read_table(row[0]) for row in self._lists[name].get()]
        return pa.concat_tables(tables) if tables else None

    def _stored(self, prefix: str, *names: str) -> dict[str, pa.Table]:
        """Tables that were written once, by name."""
        found = {name: self._tables[prefix + name].get() for name in names}
        return {name: read_table(row[0]) for name, row in found.items() if row}


_STATISTICS_TABLES = (
    "sums", "newest", "learned_operators", "learned_cycles", "learned_sent", "swept_rings", "swept_sent",
)  # fmt: skip


def _bytes(table: pa.Table) -> bytes:
    return batch_bytes(table.combine_chunks())


def read_table(data: bytes) -> pa.Table:
    """A table as variables and rows of the operators hold it."""
    with pa.ipc.open_stream(pa.py_buffer(bytes(data))) as reader:
        return reader.read_all()


def _packed(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> bytes:
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return batch_bytes(pa.RecordBatch.from_arrays(arrays, schema=schema))


def _blob_rows(data: bytes | None, schema: pa.Schema) -> Iterator[tuple[Any, ...]]:
    """Rows of a blob; columns of a later release than its own are null."""
    if data is None:
        return iter(())
    table = read_table(data)
    nothing = [None] * table.num_rows
    columns = [table[name].to_pylist() if name in table.column_names else nothing for name in schema.names]
    return zip(*columns, strict=True)


def _rows(found: tuple[Any, ...] | None, schema: pa.Schema) -> Iterator[tuple[Any, ...]]:
    return _blob_rows(found[0] if found else None, schema)


def _pairs(closings: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [watermark for watermark, _ in closings], [epoch for _, epoch in closings]
