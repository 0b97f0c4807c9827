"""Bytes that an agent's runtime sends of probes, at several load factors, against those that `partition` predicts.

Round trips are those of PlanetLab where its trace is at hand (`--data`), else drawn with a like median and spread. The
probes are a synthesis: each server asks all others once in an interval, evenly, and the snapshots of the trace follow
one another.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from agent.config import AgentConfig, QueryConfig
from agent.runtime import Runtime, Spool
from agent.wire import FrameKind, decode_frames, table_of
from engine.dataflow import Pipeline
from engine.dataflow.sketch import SKETCH_TYPE
from engine.dataflow.templates import S2SPROBE
from engine.jarvis.settings import AdaptationSettings
from engine.jarvis.wire_bytes import AggregateGroups, Overhead, PartialRows, WireBytes

__all__ = ["LOAD_FACTORS", "ProbeLoad", "SentFrames", "planetlab_ms", "predictions", "send_probes", "sent_bytes"]

LOAD_FACTORS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)  #: of the aggregate; what stands before it runs on everything
_TRACE = Path("netlatency") / "planetlab_rtt_6x490x490.npz"
_HOSTS, _SNAPSHOTS = 490, 6
_START_US = 1_700_000_000_000_000
_FAILED = 1 / 7  # of probes
_PART_BYTES = 12.0  # a bucket of a quantile: its number and its count
_WINDOWS, _WARM = 5, 2  # of a run, and of these not looked at: the first lacks what came before it
_SPOOL_BYTES = 2**30
_MAX_ERROR = 0.05
_QUERY, _AGENT = "bench/s2s-probe", "5f9c1b1e-0000-4000-8000-000000000001"


@dataclass(frozen=True)
class ProbeLoad:
    """Probes of some servers at one agent, and the windows they are aggregated in."""

    servers: int
    interval_s: int  #: in which each asks all others once
    window_s: int = 10

    @property
    def span_s(self) -> int:
        """Length of a run."""
        return _WINDOWS * self.window_s

    def pipeline(self) -> Pipeline:
        """S2SProbe."""
        return Pipeline.parse(S2SPROBE(source="probes", window_s=self.window_s).document)

    def records(self, rtt_ms: Any, seed: int = 1) -> pa.Table:
        """Probe records in the order of their answers; `rtt_ms` has the shape (snapshots, hosts, hosts)."""
        draw, span_s = np.random.default_rng(seed), self.span_s
        hosts = rtt_ms.shape[1]
        sources = np.linspace(0, hosts, self.servers, endpoint=False, dtype=np.int64)
        rounds = np.arange(-1, span_s // self.interval_s + 1)
        source, number, target = (
            axis.ravel() for axis in np.meshgrid(sources, rounds, np.arange(hosts), indexing="ij")
        )
        phases = draw.uniform(0, self.interval_s, hosts)
        rtt_us = rtt_ms[number % len(rtt_ms), source, target] * 1000
        at_us = 1e6 * (phases[source] + (number + target / hosts) * self.interval_s) + rtt_us
        order = np.argsort(at_us, kind="stable")
        order = order[(source != target)[order] & (at_us[order] >= 0) & (at_us[order] < 1e6 * span_s)]
        names = pa.array([f"10.0.{host // 250}.{host % 250}" for host in range(hosts)])
        columns = {
            "ts": pa.array((_START_US + at_us[order]).astype(np.int64)).cast(pa.timestamp("us", "UTC")),
            "src_ip": names.take(pa.array(source[order])),
            "dst_ip": names.take(pa.array(target[order])),
            "src_cluster": pa.repeat("planetlab", len(order)),
            "dst_cluster": pa.repeat("planetlab", len(order)),
            "rtt_us": pa.array(rtt_us[order].astype(np.int64)),
            "err_code": pa.array(np.where(draw.random(len(order)) < _FAILED, 110, 0)),
        }
        schema = self.pipeline().source.schema
        return pa.table([columns[name] for name in schema.names], names=schema.names).cast(schema).combine_chunks()


def planetlab_ms(data: Path | None, hosts: int = _HOSTS, seed: int = 1) -> Any:
    """Round trips of shape (6, hosts, hosts): of PlanetLab, or drawn with its median, spread and jitter."""
    if data is not None:
        return np.load(data / _TRACE)["rtt"][:, :hosts, :hosts]
    draw = np.random.default_rng(seed)
    typical_ms = draw.lognormal(np.log(135), 0.6, (hosts, hosts))
    return typical_ms * (1 + np.abs(draw.normal(0, 0.003, (_SNAPSHOTS, hosts, hosts))))


class _Probes:
    """A table whose records come when their time has come."""

    replayable = False
    records_shed = 0

    def __init__(self, table: pa.Table) -> None:
        self.schema, self._table, self._next, self._now_us = table.schema, table, 0, 0
        self._times_us = table["ts"].cast(pa.int64()).to_numpy()

    def poll(self, now_us: int, most: int) -> Sequence[pa.RecordBatch]:
        self._now_us = now_us
        due = min(int(np.searchsorted(self._times_us, now_us)), self._next + int(most))
        batches = self._table.slice(self._next, due - self._next).to_batches()
        self._next = due
        return batches

    def watermark_us(self) -> int:
        return self._now_us

    def position(self) -> Any:
        return None

    def seek(self, position: Any) -> None:
        """Accept any position: nothing lies before the beginning."""


class _StillClock:
    """Time that passes between sub-epochs only; operators take none."""

    def __init__(self) -> None:
        self._passed_ns = 0

    def sleep(self, seconds: float) -> None:
        self._passed_ns += round(seconds * 1e9)

    def wall_us(self) -> int:
        return _START_US + self._passed_ns // 1000

    def monotonic_ns(self) -> int:
        return 10**9 + self._passed_ns

    def process_cpu_ns(self) -> int:
        return 0

    thread_cpu_ns = process_cpu_ns


@dataclass
class SentFrames:
    """Sums over the frames of some epochs."""

    epochs: int
    bytes: Counter[FrameKind] = field(default_factory=Counter)  #: by kind, whole frames
    frames: Counter[FrameKind] = field(default_factory=Counter)
    parts: int = 0  #: buckets of quantiles in partial rows
    counts: list[Counter[str]] = field(default_factory=list)  #: by operator, what its counters say

    @property
    def bytes_epoch(self) -> float:
        """Bytes of an epoch."""
        return sum(self.bytes.values()) / self.epochs

    def take(self, data: memoryview) -> None:
        """Add frames."""
        for frame, raw in decode_frames(data):
            self.bytes[frame.kind] += len(raw)
            self.frames[frame.kind] += 1
            if frame.kind == FrameKind.PARTIALS:
                self._count_parts(table_of(frame.body))
            if frame.kind == FrameKind.COUNTERS:
                self._count_rows(table_of(frame.body))

    def _count_parts(self, table: pa.Table) -> None:
        sketched = (column for column in table.columns if column.type == SKETCH_TYPE)
        self.parts += sum(pc.sum(pc.list_value_length(column)).as_py() or 0 for column in sketched)

    def _count_rows(self, table: pa.Table) -> None:
        for row in table.to_pylist():
            while len(self.counts) <= row["entry"]:
                self.counts.append(Counter())
            self.counts[row["entry"]].update({name: row[name] for name in _COUNTED})


_COUNTED = ("records_in", "records_processed", "records_out", "bytes_in", "bytes_out", "bytes_drained")


def send_probes(load: ProbeLoad, records: pa.Table, load_factor: float) -> SentFrames:
    """Run an agent's runtime whose aggregate has this load factor; its frames of all but the first two windows."""
    pipeline = load.pipeline()
    factors = (*(1.0,) * (pipeline.source_operators - 1), load_factor)
    settings = AdaptationSettings(method="fixed", load_factors=factors)
    query = QueryConfig(query=_QUERY, version=1, plan=pipeline.digest, pipeline=pipeline, settings=settings)
    config = AgentConfig(version=1, agent=_AGENT, cluster="bench", sources={}, queries=(query,), budget_cores=64.0)
    clock, warm = _StillClock(), _WARM * load.window_s
    frames = SentFrames(load.span_s - warm)
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        spool = Spool(Path(name), _SPOOL_BYTES, sync=False)
        runtime = Runtime(config, {"probes": _Probes(records)}, spool, clock, quota=lambda: 64.0)
        for epoch in range(load.span_s):
            for _ in range(config.sub_epochs):
                runtime.tick()
                clock.sleep(config.epoch_s / config.sub_epochs)
            unsent = list(spool.unsent(_SPOOL_BYTES))
            for _, data in unsent if epoch >= warm else ():
                frames.take(memoryview(data))
            spool.acknowledged(unsent[-1][0])
            spool.committed(unsent[-1][0])
        spool.close()
    return frames


def predictions(load: ProbeLoad, whole: SentFrames) -> tuple[WireBytes, WireBytes]:
    """The model by what an agent counts that processes everything, and that by records and rows in proportion."""
    first, aggregate = whole.counts[0], whole.counts[-1]
    windows = whole.epochs / load.window_s
    rows, size = aggregate["records_out"], aggregate["bytes_out"]
    partials = PartialRows.of(
        AggregateGroups(
            groups=rows / windows,
            seen_records=aggregate["records_processed"] / windows,
            bytes=(size - _PART_BYTES * whole.parts) / rows,
            window_epochs=load.window_s,
            records_per_key=max(load.window_s / load.interval_s, aggregate["records_processed"] / rows),
            parts=whole.parts / windows,
            part_bytes=_PART_BYTES,
        )
    )
    relay = [count["records_out"] / count["records_processed"] for count in whole.counts]
    sizes = [count["bytes_in"] / count["records_in"] for count in whole.counts] + [size / rows]
    n_records = first["records_in"] / whole.epochs
    costs = [0.0] * len(relay)
    plain = WireBytes(relay, costs, sizes, n_records)
    return WireBytes(relay, costs, sizes, n_records, partials, Overhead()), plain


def _predicted(model: WireBytes, load_factor: float) -> float:
    last = len(model.relay)
    return model.sent({last - 1: 1 - load_factor, last: load_factor}).total


def sent_bytes(loads: Sequence[ProbeLoad], rtt_ms: Any) -> bool:
    """Print bytes an epoch and how far predictions are off, by load and load factor; False where one is missed."""
    worst, records_sent = 0.0, 0
    for load in loads:
        records = load.records(rtt_ms)
        whole = send_probes(load, records, 1.0)
        model, plain = predictions(load, whole)
        print(
            f"  {load.servers} servers, {rtt_ms.shape[1] - 1} probes each in {load.interval_s} s, "
            f"windows of {load.window_s} s: {model.n_records:,.0f} records/s"
        )
        for factor in LOAD_FACTORS:
            sent = whole if factor == 1.0 else send_probes(load, records, factor)
            ours, proportional = (_predicted(entry, factor) / sent.bytes_epoch - 1 for entry in (model, plain))
            worst, records_sent = max(worst, abs(ours)), records_sent + records.num_rows
            print(
                f"    load factor {factor:4.2f}: {sent.bytes_epoch:9,.0f} bytes an epoch, of these checkpoints "
                f"{sent.bytes[FrameKind.CHECKPOINT] / sent.epochs:7,.0f}; predicted {100 * ours:+5.1f} %, "
                f"in proportion {100 * proportional:+5.1f} %"
            )
    met = worst <= _MAX_ERROR
    print(
        f"  {records_sent:,} records; largest error {100 * worst:.1f} %: {'meets' if met else 'MISSES'} "
        f"{100 * _MAX_ERROR:g} %"
    )
    return met
