"""Cost of learning in the stream processor:

Agents count chains of a filter, a map and an aggregate; every ten seconds what they counted is learned from and fitted.
Once load factors are drawn anew for every epoch, once they stay. And they tell of the sweeping watermarks of ten
queries with windows of a second, of which as many are remembered as may be.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from agent.wire import COUNTERS, SWEEPS, batch_bytes
from agent.wire.schemas import compressed_bytes
from engine.jarvis.group_law import distinct
from lab.benchmarks.machine import machine
from spark_jobs.statistics.history import (
    HISTORY,
    RINGS,
    OperatorHistory,
    add_epochs,
    add_sweeps,
    ring_lengths,
    sweep_rows,
)
from spark_jobs.statistics.refinement import refined_rows
from spark_jobs.statistics.subintervals import CounterFrame, epoch_rows
from spark_jobs.statistics.sweep_report import watermark_rows

__all__ = ["main"]

_QUERIES, _OPERATORS = 4, 3
_EPOCHS = 10  # of one second, between two looks
_LAST = 3  # steps that count
_RECORDS, _KEYS = 4000, 300.0
_COST_S, _GROUP_COST_S = 4e-6, 5e-5
_START_US = 1_700_000_000_000_000
_SWEPT_QUERIES, _PERIOD_US = 10, 1_000_000


def main(arguments: Sequence[str]) -> int:
    """Print rows, size of the state and CPU time of a step; there is no target."""
    parser = argparse.ArgumentParser(prog="sluice lab learning")
    parser.add_argument("--agents", type=int, default=100, help="each with four queries of three operators (100)")
    parser.add_argument("--steps", type=int, default=30, help="of ten seconds; the last three count (30)")
    asked = parser.parse_args(arguments)
    print(machine())
    print(f"{asked.agents} agents, {_QUERIES} queries of {_OPERATORS} operators, {asked.steps} steps of {_EPOCHS} s")
    for moves in (True, False):
        steps = _run(asked.agents, asked.steps, moves=moves)[-_LAST:]
        learning_s, fitting_s = (
            statistics.median(getattr(step, name) for step in steps) for name in ("learn_s", "fit_s")
        )
        print(
            f"  load factors that {'move with every epoch' if moves else 'stay'}: {steps[-1].rows:,} rows, "
            f"{steps[-1].size_bytes / 1e6:.1f} MB; CPU s a step: {learning_s:.2f} learning, {fitting_s:.2f} fitting"
        )
    swept = _sweep(asked.agents)
    print(
        f"  sweeping watermarks of {_SWEPT_QUERIES} queries: {swept.rows:,} windows, {swept.size_bytes / 1e6:.1f} MB; "
        f"CPU s a step: {swept.learn_s:.2f} taking in, {swept.fit_s:.2f} telling"
    )
    return 0


@dataclass(frozen=True)
class _Step:
    rows: int
    size_bytes: int  #: of the tables that the state keeps
    learn_s: float  #: CPU time
    fit_s: float


def _run(agents: int, steps: int, *, moves: bool) -> list[_Step]:
    draw, known, found = np.random.default_rng(1), OperatorHistory(), []
    for step in range(steps):
        counted = pa.concat_tables([_counted(f"agent-{i}", step, draw, moves=moves) for i in range(agents)])
        before_s = time.process_time()
        known = add_epochs(known, counted, lambda _: None, _START_US // 1000 + 1000 * _EPOCHS * (step + 1), step + 1)
        learned_s = time.process_time()
        refined_rows(known)
        size_bytes = len(batch_bytes(known.operators.combine_chunks())) + len(batch_bytes(known.cycles))
        found.append(_Step(known.operators.num_rows, size_bytes, learned_s - before_s, time.process_time() - learned_s))
    return found


def _sweep(agents: int) -> _Step:
    """A step while as many windows are remembered as may be."""
    draw = np.random.default_rng(1)
    known = [sweep_rows(_swept(0, HISTORY, draw), f"agent-{i}", _START_US // 1000) for i in range(agents)]
    rings = add_sweeps(RINGS.empty_table(), pa.concat_tables(known), _START_US // 1000)
    reports = [_swept(HISTORY, _EPOCHS, draw) for _ in range(agents)]
    before_s = time.process_time()
    rows = [sweep_rows(table, f"agent-{i}", _START_US // 1000 + 1) for i, table in enumerate(reports)]
    rings = add_sweeps(rings, pa.concat_tables(rows), _START_US // 1000 + 1)
    taken_s = time.process_time()
    watermark_rows(rings, {})
    told_s = time.process_time()
    return _Step(int(ring_lengths(rings).sum()), len(compressed_bytes(rings)), taken_s - before_s, told_s - taken_s)


def _swept(first: int, windows: int, draw: np.random.Generator) -> pa.Table:
    """Report of one agent about a run of windows of each query."""
    rows = []
    for query in range(_SWEPT_QUERIES):
        for window in range(first, first + windows):
            deadline_us = _START_US + window * _PERIOD_US
            late_us = int(draw.uniform(0, _PERIOD_US))
            times = dict.fromkeys(("arrived_us", "swept_us", "emitted_us"), deadline_us + late_us)
            rows.append(
                {"query": f"here/q{query}", "plan": f"plan-{query}", "stream": "lines", "deadline_us": deadline_us}
                | {"period_us": _PERIOD_US, "delay_s": late_us / 1e6, "clamped": False, **times}
            )
    return pa.Table.from_pylist(rows, schema=SWEEPS)


def _counted(agent: str, step: int, draw: np.random.Generator, *, moves: bool) -> pa.Table:
    """Counters of an agent in the epochs of a step."""
    rows = []
    for epoch in range(step * _EPOCHS, (step + 1) * _EPOCHS):
        for query in range(_QUERIES):
            waiting = _RECORDS
            for k in range(_OPERATORS):
                share = float(draw.uniform(0.02, 1.0)) if moves else 0.7
                worked = round(share * waiting)
                groups = round(distinct(worked, _KEYS)) if k == _OPERATORS - 1 else 0
                rows.append(
                    _NOTHING
                    | {"query": f"here/q{query}", "plan": f"plan-{query}", "operator": f"op{k}", "fingerprint": f"f{k}"}
                    | {"entry": k, "epoch_us": _START_US + epoch * 1_000_000, "load_factor": share}
                    | {"records_in": waiting, "records_processed": worked, "records_drained": waiting - worked}
                    | {"records_out": groups or worked // 2, "groups_out": groups, "granted_cpu_ns": 30_000_000}
                    | {"cpu_ns": round(1e9 * (_COST_S * worked + _GROUP_COST_S * groups))}
                )
                waiting = worked // 2
    return epoch_rows([CounterFrame(pa.Table.from_pylist(rows, schema=COUNTERS), agent)], {}, step + 1)


_NOTHING = {column.name: "" if column.type == pa.string() else 0 for column in COUNTERS}
