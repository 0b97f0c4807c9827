"""Queries that join two streams: exact whatever agents drained, and wherever drivers end."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from agent.wire import Frame, FrameKind, batch_bytes
from engine.dataflow.arrow.kernels import row_kernel, whole
from engine.dataflow.pipeline import Pipeline
from spark_jobs import windows
from tests.spark.live.agents import SECOND, START_US
from tests.spark.live.rows import in_order
from tests.spark.live.world import World

QUERY = "here/answers"
ACKS = {"at": "timestamp", "id": "int64", "host": "string", "ms": "int64", "unused": "string"}
DOCUMENT: dict[str, Any] = {
    "source": {"id": "calls", "time": "ts", "columns": {"ts": "timestamp", "id": "int64", "host": "string"}},
    "operators": [
        {"id": "window", "expression": {"op": "window", "size_s": 4}},
        {"id": "known", "expression": {"op": "filter", "where": "host is not null"}},
        {
            "id": "answer",
            "expression": {
                "op": "join", "stream": "acks", "time": "at", "columns": ACKS, "on": {"id": "id"},
                "take": {"by": "host", "ms": "ms"}, "most": 3,
            },
        },
        {"id": "slow", "expression": {"op": "map", "set": {"s": "ms / 1000"}}},
        {
            "id": "hosts",
            "expression": {
                "op": "aggregate", "by": ["host", "by"], "compute": {"n": "count(*)", "ms": "max(ms)", "s": "sum(s)"},
            },
        },
        {"id": "some", "expression": {"op": "filter", "where": "n > 0"}},
    ],
}  # fmt: skip


def joining(window: dict[str, Any] | None = None, **more: Any) -> Pipeline:
    operators = [dict(operator) for operator in DOCUMENT["operators"]]
    operators[0] = {"id": "window", "expression": {**operators[0]["expression"], **(window or {})}}
    operators[2] = {"id": "answer", "expression": {**operators[2]["expression"], **more}}
    return Pipeline.parse({**DOCUMENT, "operators": operators})


@dataclass
class Agent:
    """Collects both streams; what it drains of the first is random, the other goes on whole."""

    name: str
    pipeline: Pipeline
    origin: str = ""  #: the agent below it whose records these are
    seq: int = 0
    epoch: int = 0
    records: list[pa.Table] = field(default_factory=list)
    others: list[pa.Table] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.name + self.origin)

    def run(self, epochs: int, count: int = 30, behind: int = 0, watermark_us: int | None = None) -> list[Frame]:
        """Frames of the next epochs; the other stream's records and its watermark are `behind` epochs late."""
        return [frame for _ in range(epochs) for frame in self.step(count, behind, watermark_us)]

    def step(self, count: int, behind: int = 0, watermark_us: int | None = None) -> Iterator[Frame]:
        begin_us = START_US + self.epoch * SECOND
        self.epoch += 1
        draw = self._random
        hosts = ["h1", "h2", None]
        times = [begin_us + draw.randrange(SECOND) for _ in range(count)]
        calls = pa.table(
            {
                "host": [draw.choice(hosts) for _ in times],
                "id": pa.array([draw.choice([None, *range(12)]) for _ in times], pa.int64()),
                "ts": times,
            }
        ).cast(self.pipeline.source.schema)
        acks = pa.table(
            {
                "at": [begin_us - behind * SECOND + draw.randrange(SECOND) for _ in times],
                "host": [draw.choice(hosts) for _ in times],
                "id": pa.array([draw.choice([None, *range(12)]) for _ in times], pa.int64()),
                "ms": [draw.randrange(5000) for _ in times],
            }
        ).cast(self.pipeline.other_schema)
        self.records.append(calls)
        self.others.append(acks)
        yield self._frame(self.pipeline.other_entry, begin_us, acks)
        yield from self._proxies(calls, begin_us)
        if watermark_us is None:
            watermark_us = begin_us + SECOND - behind * SECOND
        paths = {str(k): watermark_us for k in range(self.pipeline.source_operators + 1)}
        extra = {"watermarks": paths, "closing_epoch_us": begin_us, "final": False}
        yield self._made(FrameKind.MARK, 0, begin_us, extra=extra)

    def late(self, acks: pa.Table) -> Frame:
        self.others.append(acks)
        return self._frame(self.pipeline.other_entry, START_US, acks)

    def _proxies(self, rows: pa.Table, epoch: int) -> Iterator[Frame]:
        for index in range(self.pipeline.source_operators):
            kept = pa.array([self._random.random() < 0.6 for _ in range(rows.num_rows)], pa.bool_())
            yield self._frame(index, epoch, rows.filter(pc.invert(kept)))
            rows = row_kernel(self.pipeline, index).run(rows.filter(kept))
        yield self._frame(self.pipeline.source_operators, epoch, rows)

    def _frame(self, entry: int, epoch: int, rows: pa.Table) -> Frame:
        extra = {"origin": self.origin} if self.origin else {}
        return self._made(FrameKind.RECORDS, entry, epoch, body=batch_bytes(rows.combine_chunks()), extra=extra)

    def _made(self, kind: FrameKind, entry: int, epoch: int, **more: Any) -> Frame:
        self.seq += 1
        return Frame(kind, self.name, "l1", self.seq, QUERY, self.pipeline.digest, entry, epoch, **more)


def expected(pipeline: Pipeline, groups: Sequence[Sequence[Agent]], epochs: int) -> list[dict[str, Any]]:
    """Rows of the query run whole over the records of each group, of windows that end with `epochs`."""
    assert pipeline.window is not None
    until_us = START_US + epochs * SECOND
    found = []
    for agents in groups:
        tables = [
            pa.concat_tables([t for agent in agents for t in getattr(agent, side)]) for side in ("records", "others")
        ]
        found += whole(pipeline, *tables).to_pylist()
    ends = pipeline.window.size_us
    return in_order([row for row in found if round(row["window_start"].timestamp() * SECOND) + ends <= until_us])


def two_agents(world: World, pipeline: Pipeline) -> list[Agent]:
    agents = [Agent(f"a{i}", pipeline) for i in range(2)]
    world.console.add(QUERY, pipeline, [agent.name for agent in agents])
    return agents


@pytest.mark.parametrize(
    "pipeline",
    [joining(), joining({"size_s": 6, "slide_s": 2}, how="left"), joining(most=1, how="left")],
    ids=["inner", "left, sliding windows", "left, the first alone"],
)
def test_results_are_those_of_the_query_run_whole_wherever_drivers_end(world: World, pipeline: Pipeline) -> None:
    agents = two_agents(world, pipeline)
    for epochs in (5, 1, 7):
        world.send(*(agent.run(epochs) for agent in agents))
        world.process()
    assert world.console.rows(QUERY) == expected(pipeline, [agents], 13) != []
    assert all(result.extra["revision"] == 0 and result.extra["complete"] for result in world.console.results)
    assert world.quarantined() == []


def test_results_are_the_same_by_a_query_of_spark(world: World) -> None:
    pipeline = joining(how="left")
    agents = two_agents(world, pipeline)
    world.send(*(agent.run(9) for agent in agents))
    world.drain()
    assert world.console.rows(QUERY) == expected(pipeline, [agents], 9) != []
    assert world.quarantined() == []


def test_a_window_waits_for_the_slower_of_both_streams(world: World) -> None:
    pipeline = joining()
    (agent,) = [Agent("a0", pipeline)]
    world.console.add(QUERY, pipeline, [agent.name])
    world.send(agent.run(6, behind=3))
    world.process()
    assert world.console.results == []
    world.send(agent.run(1, behind=3))
    world.process()
    assert world.console.rows(QUERY) == expected(pipeline, [[agent]], 4) != []


def test_a_late_record_of_either_side_opens_the_result_again_and_takes_back_what_matched_nothing(world: World) -> None:
    pipeline = joining(how="left")
    (agent,) = [Agent("a0", pipeline)]
    world.console.add(QUERY, pipeline, [agent.name])
    world.send(agent.run(5, count=10))
    world.process()
    before = world.console.rows(QUERY)
    ids = range(12)
    late = {"at": [START_US + SECOND] * 12, "host": ["late"] * 12, "id": list(ids), "ms": [1] * 12}
    world.send([agent.late(pa.table(late).cast(pipeline.other_schema))])
    world.process()
    assert world.console.rows(QUERY) == expected(pipeline, [[agent]], 4) != before
    assert [result.extra["revision"] for result in world.console.results] == [0, 1]


def test_within_agents_records_of_one_alone_match_even_behind_a_relay(world: World) -> None:
    pipeline = joining(within="agent")
    agents = [Agent("relay", pipeline, origin="x"), Agent("relay", pipeline, origin="y"), Agent("a1", pipeline)]
    world.console.add(QUERY, pipeline, ["relay", "a1"])
    first = agents[0].run(5)
    agents[1].seq = agents[0].seq
    second = agents[1].run(5)
    world.send([*first, *second], agents[2].run(5))
    world.process()
    together = whole_apart(pipeline, agents, 4)
    assert world.console.rows(QUERY) == together != []
    assert together != expected(joining(), [agents], 4)


def whole_apart(pipeline: Pipeline, agents: Sequence[Agent], epochs: int) -> list[dict[str, Any]]:
    """The rows of every agent by itself, those of one key added up."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in expected(pipeline, [[agent] for agent in agents], epochs):
        key = (row["window_start"], row["host"], row["by"])
        known = found.get(key)
        if known is None:
            found[key] = dict(row)
        else:
            known["n"] += row["n"]
            known["ms"] = max(known["ms"], row["ms"])
            known["s"] = round(known["s"] + row["s"], 6)
    return in_order(list(found.values()))


def test_rows_are_kept_as_long_as_a_window_may_be_issued_again_and_there_is_room(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = joining()
    (agent,) = [Agent("a0", pipeline)]
    world.console.add(QUERY, pipeline, [agent.name], retain_s=6)
    world.send(agent.run(17))
    world.process()
    flow = world.flow(QUERY, pipeline.digest)
    begins = [START_US + second * SECOND for second in (8, 12, 16)]
    assert sorted(flow.sides) == begins and sorted(flow.windows) == begins
    monkeypatch.setattr(windows, "_MAX_SIDES_BYTES", 1)
    world.send(agent.run(1))
    world.process()
    flow = world.flow(QUERY, pipeline.digest)
    assert sorted(flow.sides) == begins[2:] and flow.passed_us == START_US + 16 * SECOND


def test_a_watermark_that_stands_still_does_not_fill_the_memory(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one of the streams never says anything: the oldest windows are given up, and their rows counted."""
    monkeypatch.setattr(windows, "_MAX_OPEN_BYTES", 1)
    pipeline = joining()
    agent = Agent("a0", pipeline)
    world.console.add(QUERY, pipeline, [agent.name], retain_s=6)
    world.send(agent.run(17, watermark_us=0))
    world.process()
    flow = world.flow(QUERY, pipeline.digest)
    assert flow.watermark_us == 0
    assert sorted(flow.sides) == [START_US + second * SECOND for second in (8, 12, 16)], "of the last six seconds"
    known = pa.concat_tables(agent.records[:8])["host"]
    assert flow.late == len(known) - known.null_count + sum(other.num_rows for other in agent.others[:8])


def test_partials_and_records_after_the_join_go_to_quarantine(world: World) -> None:
    pipeline = joining()
    (agent,) = [Agent("a0", pipeline)]
    world.console.add(QUERY, pipeline, [agent.name])
    rows = pipeline.operators[3].input_schema.empty_table()
    world.send([agent._frame(3, START_US, rows), agent._made(FrameKind.PARTIALS, 4, START_US, body=batch_bytes(rows))])
    world.process()
    behind, partials = sorted(world.quarantined(), reverse=True)
    assert "records enter at operator 3; allowed: 0, 1, 2, 6" in behind + partials
    assert "partials of a query that joins streams; allowed: records" in behind + partials
