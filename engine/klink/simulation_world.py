"""What the simulation's compiled loop reads and writes: tables of stages, cores and nodes, and arrays by bins of time.

A stage is what one node runs of a query: a query on one node has one stage, a query over two nodes has two, the first
of which feeds the second. Stages of a node follow each other, in the order of the queries' ids. Times in milliseconds.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CODES", "CORE", "NODE", "STAGE", "World"]

Rows = NDArray[Any]

#: What a policy's name is in compiled code.
CODES = {
    "klink": 0,
    "stimulus-time": 1,
    "fcfs": 2,
    "round-robin": 3,
    "least-slack": 4,
    "highest-rate": 5,
    "nearest-deadline": 6,
    "response-ratio": 7,
    "random": 8,
    "algorithm-1": 9,
    "algorithm-1-repaired": 10,
}

# `feeds`: stage that takes what this one puts out, -1 where that is the result; `fed`: 1 where another feeds it.
# `cost`: CPU time of an event through the stage, `further`: through what it feeds, as far as this node knows of it;
# `out`: events out per event in; `rate`: events out of the whole chain per millisecond of CPU time; `known`: 1 where
# delays of its watermarks are known, 0 where the period alone is; `age`: that an event may wait before it overflows.
# `head`: first bin whose events are not all gone; `came`, `gone`: events taken in, and of these those that have left;
# `swept`: first window that is not; `oldest`: bin of the earliest event time that waits, -1 where that is not known;
# `taken`: 1 while a core runs it; `free_at`: when one last let go of it; `ran`: when it was last picked;
# `sized`: next window when its work was last looked at; `counted`, `usual`, `varies`: how many, mean, variance.
STAGE = np.dtype(
    [(name, "i8") for name in ("node", "feeds", "fed", "operators", "streams", "windows", "known")]
    + [(name, "f8") for name in ("cost", "further", "out", "rate", "event_bytes", "first", "period", "age")]
    + [(name, "i8") for name in ("head", "swept", "oldest", "taken", "sized", "counted")]
    + [(name, "f8") for name in ("waiting", "came", "gone", "free_at", "ran", "usual", "varies")]
    + [(name, "f8") for name in ("refused", "overflow", "processed", "peak")]
)
# `running`: stage, -1 while idle; `until`: when it chooses anew; `busy`: time it has worked.
CORE = np.dtype([("running", "i8"), ("until", "f8"), ("busy", "f8")])
# `last`: stage picked last; `idled`: when a core last had nothing to do; `relieving`: 1 in memory mode, `since` when.
NODE = np.dtype(
    [(name, "i8") for name in ("first_stage", "end_stage", "first_core", "end_core", "last")]
    + [(name, "f8") for name in ("idled", "relieving", "since")]
)


class World(NamedTuple):
    """Shapes: S stages, B bins, W windows, J streams, K operators, N nodes, C cores."""

    stages: Rows  #: (S,) of STAGE
    cores: Rows  #: (C,) of CORE
    nodes: Rows  #: (N,) of NODE
    prefix: Rows  #: (S, K) CPU time of an event through its first k operators
    keeps: Rows  #: (S, K) events out of the first k operators per event in
    arriving: Rows  #: (S, B) events that come until the bin begins and are not gone
    stimulus: Rows  #: (S, B) earliest event time of these
    marks: Rows  #: (S, W, J) when the watermark that passes the window's deadline comes
    mean: Rows  #: (S, W, J) mean delay that the window's epoch has shown
    square: Rows  #: (S, W, J) mean of squared delays
    position: Rows  #: (S, W) events taken in when the last stream's watermark came
    ingested: Rows  #: (S, J) watermarks that have come
    sums: Rows  #: (S, J, 3) over the history: of means, of their squares, of mean squares
    swept_at: Rows  #: (S, W) NaN while it is not
    memory: Rows  #: (samples, N) bytes that wait
    used: Rows  #: (samples, N) core-milliseconds until then
    spans: Rows  #: (room, 4) start, end, stage, core
    counters: Rows  #: picks, spans, state of the draws
    tick: float  #: width of a bin
    cycle: float  #: that a choice holds
    link: float  #: that an event or mark takes from one node to the next
    policy: int
    history: int  #: windows remembered
    intake: float  #: work in milliseconds that may wait for each core
    epoch: float  #: how often it is looked what has waited too long
    starvation: float  #: that a stage may wait for its turn
    saturated: float  #: without an idle core, after which a node counts as saturated
    memory_bound: float  #: bytes on a node from which on memory counts
    release: float  #: share of that which is to be freed
    relief: float  #: after which slack counts again
    sample: int  #: bins between two samples
    horizon: int  #: bins in which events come; what is still there after them drains
