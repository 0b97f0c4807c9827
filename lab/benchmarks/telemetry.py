"""The live loop against Arrow in memory: ``./sluice lab telemetry [--events 1000000] [--repeats 3]``.

Records of S2SProbe (window, filter, group by source and target with a median) go the real way: agents' runtimes that
drain everything, spools on disk, Redis Streams, the stream processor, results and statistics at the console's door.
HTTP between agent and console is left out. Beside each repeat the same records are aggregated by the same operators in
memory, batch by batch as the frames hold them. A second part measures the delay of results under a light load, a third
what the agent's runtime adds to the operators it runs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from engine.dataflow.arrow.kernels import aggregate_kernel, row_kernel
from lab.benchmarks.machine import machine
from lab.benchmarks.telemetry_loop import (
    FRAME_RECORDS,
    START_US,
    WINDOW_S,
    ConsoleEndpoint,
    FrameSender,
    cpu_s,
    pipeline,
    processor,
    records,
    server,
)

__all__ = ["main"]

_MIN_THROUGH, _MIN_AGENT = 0.3, 0.7
_AGENTS = ("agent-0", "agent-1", "agent-2", "agent-3")
_SPAN_US = 10 * WINDOW_S * 1_000_000  # of event time in each repeat
_PATIENCE_S = 60.0
_TRIGGER_S = 2.0  # under the light load
_POLLS = (1_000, 4_000, 16_000, 2**31)  # most records of a poll


def main(arguments: Sequence[str]) -> int:
    """Run all three parts; 1 when a target is missed."""
    parser = argparse.ArgumentParser(prog="sluice lab telemetry")
    parser.add_argument("--events", type=int, default=1_000_000, help="in each repeat (1000000)")
    parser.add_argument("--repeats", type=int, default=3, help="of each comparison (3)")
    parser.add_argument("--delay-s", type=int, default=20, help="length of the light load (20)")
    asked = parser.parse_args(arguments)
    print(machine())
    print(f"S2SProbe, {len(_AGENTS)} agents, frames of {FRAME_RECORDS} records, windows of {WINDOW_S} s")
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name:
        folder = Path(name)
        met = [_agents(folder, asked.events, asked.repeats)]
        with server(folder) as redis_url, ConsoleEndpoint(_AGENTS).listening() as ear:
            with processor(folder, ear, redis_url, trigger_s=0.1) as stream:
                met.append(_through(folder, ear, redis_url, stream, asked.events, asked.repeats))
            with processor(folder, ear, redis_url, _TRIGGER_S) as stream:
                _delay(folder, ear, redis_url, stream, asked.delay_s)
    return 0 if all(met) else 1


def _agents(folder: Path, events: int, repeats: int) -> bool:
    """CPU time of the runtime that processes everything, against that of the operators alone on the same polls."""
    sender = FrameSender("bare", folder, "redis://127.0.0.1:1/0", processed=1.0)
    print("\nagent: CPU time of pyarrow's operators on the same polls, over that of the runtime")
    begin_us, found = START_US, []
    for most in _POLLS:
        ratios, rates = [], []
        for repeat in range(repeats + 1):
            sender.feed.load(records(events, begin_us, _SPAN_US), begin_us + _SPAN_US, most)
            before_s = time.process_time()
            while not sender.feed.empty:
                sender.runtime.run_epoch()
            sender.runtime.run_epoch()
            took_s = time.process_time() - before_s
            begin_us += _SPAN_US
            sender.spool.committed(sender.spool.last_seq)
            if repeat:  # the first one loads and warms what both use
                ratios.append(_in_memory([[poll for poll in sender.feed.polls if poll.num_rows]])[1] / took_s)
                rates.append(events / took_s)
        found.append(statistics.median(ratios))
        name = f"{most:,} records" if most < events else "all there is room for"
        verdict, rate = _verdict(found[-1], _MIN_AGENT), statistics.median(rates)
        print(f"  polls of {name}: {verdict} ({_listed(ratios)}); {rate:,.0f} records per CPU second")
    return min(found) >= _MIN_AGENT


def _through(
    folder: Path, ear: ConsoleEndpoint, redis_url: str, stream: subprocess.Popen[bytes], events: int, repeats: int
) -> bool:
    """Events per second from the agents to results, against the same aggregation in memory."""
    senders = [FrameSender(name, folder, redis_url, processed=0.0) for name in _AGENTS]
    ratios, table_ratios, cpu_ratios, rates = [], [], [], []
    for repeat in range(repeats + 1):
        begin_us = START_US + repeat * _SPAN_US
        loads = [records(events // len(senders), begin_us, _SPAN_US, seed=10 * repeat + i) for i in range(len(senders))]
        memory_s, memory_cpu_s = _in_memory(loads)
        table_s, _ = _in_memory([[_one_batch(load)] for load in loads])
        began_s, began_cpu_s = time.perf_counter(), time.process_time() + cpu_s(stream)
        _send(senders, loads, begin_us + _SPAN_US)
        windows = range(begin_us, begin_us + _SPAN_US, WINDOW_S * 1_000_000)
        _wait(lambda windows=windows: all(window in ear.came_s for window in windows), "the results")
        took_s, took_cpu_s = time.perf_counter() - began_s, time.process_time() + cpu_s(stream) - began_cpu_s
        _check(loads, [ear.extras[window] for window in windows])
        if repeat:
            ratios.append(memory_s / took_s)
            table_ratios.append(table_s / took_s)
            cpu_ratios.append(memory_cpu_s / took_cpu_s)
            rates.append(events / took_s)
    ratio = statistics.median(ratios)
    print(f"\nthrough: {statistics.median(rates):,.0f} events/s; {_verdict(ratio, _MIN_THROUGH)} of Arrow in memory")
    print(f"  every repeat: {_listed(ratios)}; against one table instead of batches: {_listed(table_ratios)}")
    print(
        f"  by CPU time of agents and stream processor, which other work on the machine spares: {_listed(cpu_ratios)}"
    )
    print(f"  statistics frames that came: {ear.statistics}")
    return ratio >= _MIN_THROUGH


def _delay(folder: Path, ear: ConsoleEndpoint, redis_url: str, stream: subprocess.Popen[bytes], length_s: int) -> None:
    """From the end of a window to its result, and the CPU time of a trigger, at 4,000 events/s in real time."""
    print(f"\nstart and warm-up: {cpu_s(stream):.1f} CPU seconds of the stream processor")
    senders = [FrameSender(f"{name}", folder / "paced", redis_url, processed=0.0, paced=True) for name in _AGENTS]
    begin_us = (time.time_ns() // 1_000_000_000 + 2) * 1_000_000
    end_us = begin_us + length_s * 1_000_000
    for i, sender in enumerate(senders):
        batches = records(1000 * length_s, begin_us, length_s * 1_000_000, seed=i)
        sender.feed.load(batches, end_us)
    began_cpu_s, triggers = cpu_s(stream), (end_us / 1e6 - time.time()) / _TRIGGER_S
    _play(senders, end_us / 1e6)
    trigger_cpu_s = (cpu_s(stream) - began_cpu_s) / triggers
    _play(senders, end_us / 1e6 + 15)
    arrived = {window_us: came_s for window_us, came_s in ear.came_s.items() if window_us >= begin_us}
    delays = sorted(came_s - window_us / 1e6 - WINDOW_S for window_us, came_s in arrived.items())
    marked = sorted(arrived[window_us] - ear.extras[window_us]["closing_epoch_us"] / 1e6 for window_us in arrived)
    windows = length_s // WINDOW_S
    print(f"\ndelay: {len(delays)} of {windows} windows; from the end of a window to its result {_spread(delays)}")
    print(f"  from the begin of the agents' epoch that closed it: {_spread(marked)}")
    print(f"  a trigger of {_TRIGGER_S:g} s takes {trigger_cpu_s:.2f} CPU seconds of the stream processor")


def _play(senders: Sequence[FrameSender], until_s: float) -> None:
    """Epochs in real time."""
    due = [0.0] * len(senders)
    while time.time() < until_s:
        for i, sender in enumerate(senders):
            if time.monotonic() >= due[i]:
                due[i] = time.monotonic() + sender.runtime.tick()
                sender.send()
        time.sleep(max(0.0, min(0.02, min(due) - time.monotonic())))


def _in_memory(loads: Sequence[Sequence[pa.RecordBatch]]) -> tuple[float, float]:
    """Seconds, and CPU seconds, that the query takes on batches in memory."""
    probe_pipeline = pipeline()
    assert probe_pipeline.aggregate is not None
    rows, aggregate = (
        [row_kernel(probe_pipeline, k) for k in range(probe_pipeline.aggregate)],
        aggregate_kernel(probe_pipeline),
    )
    before_s, before_cpu_s = time.perf_counter(), time.process_time()
    partials = []
    for load in loads:
        for batch in load:
            for row in rows:
                batch = row.run(batch)
            partials.append(aggregate.partial(batch))
    aggregate.finalise(aggregate.merge(partials))
    return time.perf_counter() - before_s, time.process_time() - before_cpu_s


def _one_batch(load: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(load).combine_chunks().to_batches()[0]


def _send(senders: Sequence[FrameSender], loads: Sequence[Sequence[pa.RecordBatch]], end_us: int) -> None:
    for sender, load in zip(senders, loads, strict=True):
        sender.feed.load(load, end_us)
    while not all(sender.feed.empty for sender in senders):
        for sender in senders:
            sender.runtime.run_epoch()
            sender.send()
    for sender in senders:  # the mark behind the last record
        sender.runtime.run_epoch()
        sender.send()


def _check(loads: Sequence[Sequence[pa.RecordBatch]], extras: Sequence[dict[str, int]]) -> None:
    """Every record that was answered is in a result, once."""
    sent = sum(batch.num_rows - sum(batch.column("err_code").to_pylist()) for load in loads for batch in load)
    found = sum(extra["records"] for extra in extras)
    if sent != found:
        raise AssertionError(f"{sent} records were sent, {found} are in the results")


def _wait(true: object, what: str) -> None:
    assert callable(true)
    until = time.monotonic() + _PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {_PATIENCE_S:g} s")
        time.sleep(0.01)


def _verdict(ratio: float, least: float) -> str:
    return f"{ratio:.2f} ({'meets' if ratio >= least else 'MISSES'} {least})"


def _listed(ratios: Sequence[float]) -> str:
    return ", ".join(f"{ratio:.2f}" for ratio in ratios)


def _spread(values_s: Sequence[float]) -> str:
    if not values_s:
        return "unknown"
    return (
        f"{statistics.median(values_s):.2f} s in the median, {values_s[int(0.9 * (len(values_s) - 1))]:.2f} s at 90 %"
    )
