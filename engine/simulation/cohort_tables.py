"""Tables of the cohort simulation: constants of the simulated world, row layouts, and a query as rows."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from engine.query_graph.costs import SERIALIZE, SERIALIZE_BYTE, operator_cost
from engine.query_graph.graph import REFERENCE_CORE_CPS, HostNode, QueryGraph

__all__ = [
    "OTHER_ENGINE",
    "CohortConstants",
    "CohortTables",
    "CohortWorld",
    "memory_parameters",
    "new_tables",
    "standard_normal",
]

Rows = NDArray[Any]

RING_COHORTS = 256  # cohorts a queue keeps apart; fuller ones merge neighbours

_KINDS = {"source": 0, "filter": 1, "join": 2, "agg": 3, "sink": 4}
_POLICIES = {"": 0, "count": 1, "time": 2}

# bytes of a value on the wire, and of the object that holds it in memory
_WIRE = {"int": 5.0, "double": 9.0, "string": 18.0}
_OBJECT = {"int": 24.0, "double": 28.0, "string": 88.0}
_FRAME, _TUPLE = 46.0, 260.0  # bytes around a tuple: message on the wire, object and its bookkeeping in memory
_SYSTEM_MB, _PROCESS_MB, _OPERATOR_MB = 250.0, 220.0, 15.0  # memory that no tuple can have
_RESIDENT = 0.35  # at most, of what the system leaves
_COMFORT, _LIMIT = 0.42, 0.60  # of what is left: from here on pages are swapped; from here on the process dies


@dataclass(frozen=True)
class CohortWorld:
    """Constants of the simulated stream processor.

    Attributes
    ----------
    cost_factors
        Factor on the cost table per operator kind; kinds that are not named have 1.
    queue_tuples, send_tuples
        Bounds of an operator's input queue and of the queue to another host.
    state_factor
        Objects kept per tuple of a window, in tuples of a queue: the window's own lists, its index, what waits for
        acknowledgement.
    operator_noise, selectivity_noise, host_noise, label_noise
        Spread (standard deviation of the logarithm) of what a run hides: of each operator's cycles, of each
        selectivity, of a host's speed and bandwidth, and of the labels.
    burst, burst_s
        Spread of the rate of a source around its mean, and how long a burst lasts.
    duration_s, step_s
        Length of a run and of a step; a step divides 100 ms.
    """

    cost_factors: tuple[tuple[str, float], ...] = ()
    queue_tuples: float = 2048.0
    send_tuples: float = 1024.0
    state_factor: float = 12.0
    operator_noise: float = 0.10
    selectivity_noise: float = 0.08
    host_noise: float = 0.04
    label_noise: float = 0.03
    burst: float = 0.12
    burst_s: float = 1.5
    period_s: float = 0.1
    local_hop_s: float = 0.00012
    remote_hop_s: float = 0.0004
    fetch_s: float = 0.0012
    swap_slowness: float = 25.0
    pause_s: float = 0.004
    mark_bps: float = 0.8e9
    max_stall_s: float = 30.0
    backlog_share: float = 0.02
    tail: float = 0.1
    duration_s: float = 240.0
    step_s: float = 0.05

    def __post_init__(self) -> None:
        steps = self.period_s / self.step_s if self.step_s > 0 else 0.5
        if abs(steps - round(steps)) > 1e-6:
            raise ValueError(f"step_s is {self.step_s:g}; allowed: a part of {self.period_s:g} s without a rest")
        if unknown := [kind for kind, _ in self.cost_factors if kind not in _KINDS]:
            raise ValueError(f"cost_factors name {unknown}; allowed: {', '.join(_KINDS)}")


# Another engine, for tests of what a model takes over: other costs per operator, short queues, more memory per tuple.
OTHER_ENGINE = CohortWorld(
    cost_factors=(("source", 0.6), ("filter", 3.0), ("join", 2.0), ("agg", 5.0), ("sink", 1.5)),
    queue_tuples=256.0,
    send_tuples=128.0,
    state_factor=36.0,
)


def _layout(floats: str, integers: str = "") -> np.dtype[Any]:
    return np.dtype([(name, "f8") for name in floats.split()] + [(name, "i8") for name in integers.split()])


# Tuples that move together: their number, and mean times at which they are at hand, their oldest input was ingested,
# and that input was made at the broker.
COHORT = _layout("amount ready ingested made")
# `drained`: tuples taken in the last step. `cursor`: step of the history up to which times were looked for.
QUEUE = _layout("amount drained", "head size cursor")
OPERATOR = _layout(
    # as described: tuples/s, cycles, tuples or seconds, bytes of a tuple that is kept, queued or sent
    "rate take make scan evaluate selectivity window slide kept_0 kept_1 heap wire "
    # source: bursts, backlog at the broker, part taken of the oldest step's arrivals
    "burst wave backlog polled "
    # thinning to whole tuples, and windows: evaluations, cycles and tuples left of the last, and its times
    "hazard threshold fired work outputs ready ingested made "
    # what is asked of host and uplink, in cycles and bytes per step, and running means of what was used
    "demand asked inflow used_mean window_mean passed_mean sending sent_mean "
    # of this step: cycles granted, per second and of one tuple; room behind; what was done, and sums of times
    "share speed stretch begin space used out sum_ready sum_ingested sum_made taken sum_moment firings "
    # of the run
    "taken_0 taken_1 emitted",
    "kind reader slot host is_remote policy poller",
)
HOST = _layout(
    # as described: cycles/s of a core and of the quota, bytes, bytes/s, seconds
    "core quota comfort limit bandwidth latency resident "
    # of this step: cycles left of the period, of a thread, and to spare; levels of max-min shares
    "budget thread spare level up_spare up_level "
    # memory: bytes alive and allocated, seconds of pauses to come and now, factor of swapping
    "live allocated stall pause slowness"
)


class CohortConstants(NamedTuple):
    """Constants of a run; times in seconds, queues in tuples."""

    step_s: float
    steps: int
    block_steps: int
    period_s: float
    period_steps: int
    queue_tuples: float
    send_tuples: float
    local_hop_s: float
    remote_hop_s: float
    fetch_s: float
    burst: float
    burst_keep: float
    swap_slowness: float
    pause_s: float
    mark_bps: float
    max_stall_s: float
    tail_step: int


class CohortTables(NamedTuple):
    """Everything a run reads and writes.

    Queues 2 i and 2 i + 1 are before operator i, queue 2 n + i is behind it on its way to another host. `history`
    counts what came in until the end of each step, `lags` says how long ago it was ingested and made, per queue.
    """

    operators: Rows
    hosts: Rows
    queues: Rows
    ring: Rows
    arrivals: Rows
    history: Rows
    lags: Rows
    random: NDArray[np.uint64]
    totals: Rows
    constants: CohortConstants


def memory_parameters() -> dict[str, object]:
    """Constants of tuples and memory, for the digest of a corpus."""
    return {
        "wire": _WIRE,
        "object": _OBJECT,
        "tuple": (_FRAME, _TUPLE, SERIALIZE, SERIALIZE_BYTE),
        "host": (_SYSTEM_MB, _PROCESS_MB, _OPERATOR_MB, _COMFORT, _LIMIT, _RESIDENT),
    }


def new_tables(
    graph: QueryGraph,
    hosts: Sequence[HostNode],
    placement: Sequence[int],
    world: CohortWorld,
    hidden: random.Random,
    *,
    noise: bool,
) -> CohortTables:
    """Tables of a run that has not begun; operators in topological order, hosts those that are used."""
    n, constants = len(graph.operators), _constants(world)
    lanes = np.array([hidden.getrandbits(64) for _ in range(1 + n)], dtype=np.uint64)
    spread = hidden if noise else None
    operators = _operator_rows(graph, placement, world, spread)
    windowed = 2 * n if operators["policy"].any() else 0
    history, lags = np.empty((windowed, constants.steps + 1)), np.empty((windowed, constants.steps + 1, 2))
    history[:, 0] = 0.0
    lags[:, 0] = 0.0
    return CohortTables(
        operators=operators,
        hosts=_host_rows(hosts, placement, world, spread),
        queues=np.zeros(3 * n, QUEUE),
        ring=np.empty((3 * n, RING_COHORTS), COHORT),
        arrivals=np.empty((n, constants.steps)),
        history=history,
        lags=lags,
        random=lanes,
        totals=np.zeros(6),
        constants=constants,
    )


def standard_normal(hidden: random.Random) -> float:
    """Standard normal number out of two uniform ones (`random.gauss` keeps one back)."""
    return math.sqrt(-2.0 * math.log(1.0 - hidden.random())) * math.cos(2.0 * math.pi * hidden.random())


def _constants(world: CohortWorld) -> CohortConstants:
    steps = round(world.duration_s / world.step_s)
    block_s = 2.0 * world.period_s
    return CohortConstants(
        step_s=world.step_s,
        steps=steps,
        block_steps=round(block_s / world.step_s),
        period_s=world.period_s,
        period_steps=round(world.period_s / world.step_s),
        queue_tuples=world.queue_tuples,
        send_tuples=world.send_tuples,
        local_hop_s=world.local_hop_s,
        remote_hop_s=world.remote_hop_s,
        fetch_s=world.fetch_s,
        burst=world.burst,
        burst_keep=math.exp(-block_s / world.burst_s),
        swap_slowness=world.swap_slowness,
        pause_s=world.pause_s,
        mark_bps=world.mark_bps,
        max_stall_s=world.max_stall_s,
        tail_step=steps - max(1, int(world.tail * steps)),
    )


def _spread(hidden: random.Random | None, sigma: float) -> float:
    return math.exp(sigma * standard_normal(hidden)) if hidden else 1.0


def _widths(graph: QueryGraph, per_value: dict[str, float]) -> list[float]:
    """Bytes of the values of the tuples that each operator emits."""
    widths = [0.0] * len(graph.operators)
    for i in graph.order:
        operator = graph.operators[i]
        if operator.kind == "source":
            widths[i] = (
                operator.n_int * per_value["int"]
                + operator.n_dbl * per_value["double"]
                + operator.n_str * per_value["string"]
            )
        elif operator.kind == "agg":  # group, value, time
            group = "int" if operator.group_type == "none" else operator.group_type
            widths[i] = per_value[group] + per_value[operator.value_type] + per_value["int"]
        else:
            widths[i] = sum(widths[j] for j in graph.inputs[i])
    return widths


def _operator_rows(
    graph: QueryGraph, placement: Sequence[int], world: CohortWorld, hidden: random.Random | None
) -> Rows:
    order, factors, used = graph.order, dict(world.cost_factors), sorted(set(placement))
    wire, heap = _widths(graph, _WIRE), _widths(graph, _OBJECT)
    rows = np.zeros(len(order), OPERATOR)
    for row, i in zip(rows, order, strict=True):
        operator, cost = graph.operators[i], operator_cost(graph.operators[i])
        factor = factors.get(operator.kind, 1.0) * _spread(hidden, world.operator_noise)
        reader = graph.readers[i][0] if graph.readers[i] else -1
        is_remote = reader >= 0 and placement[reader] != placement[i]
        sent = SERIALIZE + SERIALIZE_BYTE * (_FRAME + wire[i]) if is_remote else 0.0
        take, make = (cost.take + sent, 1.0) if operator.kind == "source" else (cost.take, cost.make + sent)
        kept = world.state_factor * (2.0 if operator.kind == "join" else 1.0) if operator.window_policy else 1.0
        inputs = [kept * (_TUPLE + heap[j]) for j in graph.inputs[i]] or [_TUPLE + heap[i]]
        row["rate"] = operator.rate_eps
        row["take"], row["make"] = take * factor, max(make, 1.0) * factor
        row["scan"], row["evaluate"] = cost.scan * factor, cost.evaluate * factor
        row["selectivity"] = min(1.0, operator.selectivity * _spread(hidden, world.selectivity_noise))
        row["window"], row["slide"] = operator.window_size, operator.window_slide or operator.window_size
        row["kept_0"], row["kept_1"] = inputs[0], inputs[-1]
        row["heap"], row["wire"] = _TUPLE + heap[i], _FRAME + wire[i]
        row["kind"], row["policy"] = _KINDS[operator.kind], _POLICIES[operator.window_policy]
        row["reader"] = order.index(reader) if reader >= 0 else -1
        row["slot"] = graph.inputs[reader].index(i) if reader >= 0 else 0
        row["host"], row["is_remote"] = used.index(placement[i]), is_remote
    return rows


def _host_rows(
    hosts: Sequence[HostNode], placement: Sequence[int], world: CohortWorld, hidden: random.Random | None
) -> Rows:
    used = sorted(set(placement))
    spreads = [_spread(hidden, world.host_noise) for _ in hosts]
    rows = np.zeros(len(used), HOST)
    for row, h in zip(rows, used, strict=True):
        host, spread = hosts[h], spreads[h]
        heap = max(host.ram_mb - _SYSTEM_MB, 0.25 * host.ram_mb) * 1e6
        resident = (_PROCESS_MB + _OPERATOR_MB * sum(place == h for place in placement)) * 1e6
        row["core"] = REFERENCE_CORE_CPS * spread
        row["quota"] = row["core"] * host.cpu_percent / 100.0
        row["comfort"], row["limit"] = _COMFORT * heap, _LIMIT * heap
        row["bandwidth"], row["latency"] = host.bandwidth_mbit_s * 1e6 / 8.0 * spread, host.latency_s
        row["resident"] = min(resident, _RESIDENT * heap)
    return rows
