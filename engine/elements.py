"""What a deployment is made of: frozen values, tuples and read-only arrays.

Symbols of the paper stand beside the plain names: selectivity (sigma), cycles per event (omega), capacity (C).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Batch",
    "Combine",
    "Constraints",
    "Evidence",
    "FloatArray",
    "Input",
    "InputModel",
    "IntArray",
    "Link",
    "Node",
    "Objective",
    "Operator",
    "Replica",
    "Server",
    "Source",
    "Window",
    "frozen_array",
]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


def frozen_array(values: npt.ArrayLike) -> FloatArray:
    """A read-only, contiguous float64 copy of `values` (an array that already is one is shared)."""
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and not values.flags.writeable:
        return np.ascontiguousarray(values)
    array = np.array(values, dtype=np.float64, order="C")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A source and its arrivals: events in every subinterval, shape (d,)."""

    id: str
    arrivals: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A machine. Capacities are cycles/s of ONE core; exactly one of the two forms is set."""

    id: str
    capacity_cps: float | None = None
    capacity_series_cps: FloatArray | None = None
    cores: int = 1
    pool: str | None = None
    price_per_hour: float | None = None
    memory_bytes: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduling: str | None = None  #: which of its operators' events go first; None: the deployment's


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of the sample behind an input: events seen, events put out, cycles spent."""

    events: float
    outputs: float
    cycles: float


@dataclass(frozen=True, slots=True)
class InputModel:
    """Non-linear operator (paper, section VI-C): polynomials c0 + c1 x + c2 x^2 in the events x of a subinterval."""

    output: tuple[float, float, float]
    cycles: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Input:
    """One input queue of an operator: selectivity (sigma) and cycles per event (omega), or a model in their place."""

    source: str
    selectivity: float = 0.0
    cycles_per_event: float = 0.0
    model: InputModel | None = None
    batches: tuple[Batch, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where an operator's statistics come from."""

    kind: str
    events: float = 0.0
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """A window: by time (seconds) or by count (events), tumbling or sliding."""

    policy: str
    type: str
    size: float
    slide: float | None = None


@dataclass(frozen=True, slots=True)
class Replica:
    """A share of an operator on one core of a node (named by its id)."""

    node: str
    core: int = 0
    fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the dataflow. Without replicas it is not placed yet.

    `reads` and `writes` are names of fields of an event; None: not stated.
    """

    id: str
    replicas: tuple[Replica, ...]
    inputs: tuple[Input, ...]
    bytes_per_event: float = 0.0
    stateless: bool | None = None
    query: str | None = None
    kind: str | None = None
    window: Window | None = None
    state_bytes: float | None = None
    tuple_values_in: float | None = None
    tuple_values_out: float | None = None
    evidence: Evidence | None = None
    reads: tuple[str, ...] | None = None
    writes: tuple[str, ...] | None = None
    expression: Any = None


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link between two nodes. Without a bandwidth it has no limit and is no server."""

    source: str
    target: str
    bandwidth_bytes_s: float | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Combine:
    """How the loads of operators on one server add up: ``sum``, ``max`` or ``interference``."""

    kind: str = "sum"
    alpha: float = 0.0


@dataclass(frozen=True, slots=True)
class Objective:
    """A query's latency objective: statistic ``worst``, ``mean`` or ``q0.99`` and the like, at most `bound_s`."""

    query: str
    statistic: str
    bound_s: float


@dataclass(frozen=True, slots=True)
class Constraints:
    """Limits on a placement search."""

    pin: Mapping[str, str] = field(default_factory=dict)
    forbid: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    apart: tuple[tuple[str, ...], ...] = ()
    max_moves: int | None = None
    may_split: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """What queues can form at: one core of a node, or a link with a bandwidth. Indices into nodes and links."""

    name: str
    kind: str
    node: int | None = None
    core: int = 0
    link: int | None = None
