"""The end of the streaming query: what a batch said goes to the outbox, whole under its number, and is released when
Spark has committed the batch.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import redis

from agent.wire import Frame, FrameKind, batch_bytes, encode_frame
from agent.wire.broker import publish_committed
from spark_jobs.flows import FlowsRow
from spark_jobs.history.archive import Archive
from spark_jobs.outbox import Outbox, Quarantine
from spark_jobs.plans import FlowKey
from spark_jobs.statistics.subintervals import SENDER
from spark_jobs.variables import read_table
from spark_jobs.windows import result_body

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["BatchFacts", "Sink"]

_FRAMES_PER_STEP = 2**20  # numbers of frames: unlike for every step, and growing
_COUNTS = ("duplicates", "gaps", "quarantined", "unknown")


@dataclass
class BatchFacts:
    """State of the stream, from what the batches said since this process began."""

    step: int = 0
    flows: dict[FlowKey, dict[str, Any]] = field(default_factory=dict)
    partitions: dict[int, dict[str, Any]] = field(default_factory=dict)  #: by partition

    def count(self, name: str) -> int:
        """Duplicates, gaps, quarantined or unknown frames, ever."""
        return sum(told["counts"][name] for told in self.partitions.values())

    @property
    def waiting(self) -> dict[str, int]:
        """Frames that wait for a number before them or for their plan, by query."""
        found: dict[str, int] = defaultdict(int)
        for told in self.partitions.values():
            for query, frames in told["waiting"].items():
                found[query] += frames
        return found

    def read_to(self, partition: int) -> str:
        """The last entry of a partition that was worked off."""
        return str(self.partitions[partition]["read_to"]) if partition in self.partitions else "0-0"


class Sink:
    """Called by Spark with every batch; nothing it keeps is needed after the batch is committed.

    A batch that runs again overwrites what it had said. Until `committed` names it, nothing of it is posted, and its
    agents do not hear that their frames are done with.
    """

    def __init__(
        self,
        outbox: Outbox,
        quarantine: Quarantine,
        client: redis.Redis,
        base: int,
        archive: Archive | None = None,
        taken: Callable[[int, int], None] | None = None,
        wanted: Callable[[set[FlowKey]], None] | None = None,
    ) -> None:
        self._outbox, self._quarantine, self._redis, self._archive = outbox, quarantine, client, archive
        self._base, self._taken, self._wanted = base, taken, wanted
        self._lock = threading.Lock()
        self._pending: dict[int, dict[tuple[str, str], int]] = {}  # positions by step
        self.facts = BatchFacts(step=base)
        self.last_s = 0.0

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Put what a batch said into the outbox."""
        began_s = time.perf_counter()
        self.committed(number - 1)
        self.take([FlowsRow(**row) for row in batch.toArrow().to_pylist()], number)
        self.last_s = time.perf_counter() - began_s

    def take(self, rows: list[FlowsRow], number: int) -> None:
        """The rows of a batch."""
        step = self._base + number + 1
        frames = frames_of_rows(rows, step)
        self._outbox.put(step, frames)
        if self._archive is not None:
            self._archive.put(step, frames)
        positions: dict[tuple[str, str], int] = {}
        wanted: set[FlowKey] = set()
        records = 0
        for row in rows:
            if row.kind == "bad":
                told = json.loads(row.told)
                self._quarantine.keep(row.body or b"", told["reason"], told["id"])
            elif row.kind == "partition":
                told = json.loads(row.told)
                self.facts.partitions[told["partition"]] = told
                positions |= {(agent, life): seq for agent, life, seq in told["positions"]}
                wanted |= {(query, plan) for query, plan in told["wanted"]}
                records += told["records"]
                for words in told["messages"]:
                    print(words, flush=True)
            elif row.kind == "flow" and row.shard == 0:
                self.facts.flows[row.query, row.plan] = json.loads(row.told)
        with self._lock:
            self._pending[step] = positions
        self.facts.step = step
        if self._taken is not None:
            self._taken(number, records)
        if wanted and self._wanted is not None:
            self._wanted(wanted)

    def committed(self, number: int) -> None:
        """Spark has committed batches up to this one: their frames may go, and agents hear of it."""
        step = self._base + number + 1
        with self._lock:
            done = [known for known in self._pending if known <= step]
            positions: dict[tuple[str, str], int] = {}
            for known in sorted(done):
                positions |= self._pending[known]
        self._outbox.release(step)
        try:
            publish_committed(self._redis, positions)
        except redis.RedisError:
            return  # published again with the next
        with self._lock:
            for known in done:
                self._pending.pop(known, None)


def frames_of_rows(rows: list[FlowsRow], step: int) -> list[bytes]:
    """Frames for the console, numbered by the step: shards of a window as one, statistics in as few as may be."""
    frames: list[bytes] = []
    windows: dict[tuple[str, str, int], list[tuple[dict[str, Any], bytes]]] = defaultdict(list)
    statistics: list[pa.Table] = []

    def add(kind: FrameKind, **more: Any) -> None:
        seq = step * _FRAMES_PER_STEP + len(frames) + 1
        frames.append(encode_frame(Frame(kind, SENDER, SENDER, seq, **more)))

    for row in rows:
        if row.kind == FrameKind.RESULT:
            facts = json.loads(row.told)
            windows[row.query, row.plan, facts["window_us"]].append((facts, row.body or b""))
        elif row.kind == FrameKind.STATISTICS:
            statistics.append(read_table(row.body or b""))
        elif row.kind in (FrameKind.REFINED, FrameKind.WATERMARKS):
            add(FrameKind(row.kind), query=row.query, plan=row.plan, extra={"batch": step}, body=row.body or b"")
    for (query, plan, begin_us), shards in sorted(windows.items()):
        facts, body = _whole_window(shards)
        extra = facts | {"batch": step, "emitted_us": time.time_ns() // 1000}
        add(FrameKind.RESULT, query=query, plan=plan, epoch=begin_us, extra=extra, body=body)
    if statistics:
        table = pa.concat_tables(statistics)
        batch = pa.repeat(pa.scalar(step, pa.int64()), table.num_rows)
        table = table.set_column(table.schema.get_field_index("batch"), table.schema.field("batch"), batch)
        for begin in range(0, table.num_rows, _STATISTICS_ROWS):
            body = batch_bytes(table.slice(begin, _STATISTICS_ROWS).combine_chunks())
            add(FrameKind.STATISTICS, extra={"batch": step}, body=body)
    return frames


_STATISTICS_ROWS = 5_000


def _whole_window(shards: list[tuple[dict[str, Any], bytes]]) -> tuple[dict[str, Any], bytes]:
    """The result of a window from those of its shards."""
    facts, body = shards[0]
    if len(shards) == 1:
        return facts, body
    told = [facts for facts, _ in shards]
    body, left_out = result_body(pa.concat_tables([read_table(data) for _, data in shards]).combine_chunks())
    left_out += sum(facts.get("left_out", 0) for facts in told)
    whole = facts | {name: sum(facts[name] for facts in told) for name in ("rows", "records", "late", "early")}
    whole["revision"] = max(facts["revision"] for facts in told)
    recovered: dict[str, int] = defaultdict(int)
    for agent, records in (item for facts in told for item in facts.get("recovered", {}).items()):
        recovered[agent] += records
    more = {"recovered": dict(recovered), "left_out": left_out}
    return whole | {name: value for name, value in more.items() if value}, body
