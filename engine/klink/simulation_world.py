"""What the simulation's compiled loop reads and writes: arrays over stages, bins of time, windows and nodes.

A stage is what one node runs of a query: a query on one node has one stage, a query over two nodes has two, the first
of which feeds the second. Stages of a node follow each other, in the order of the queries' ids.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

__all__ = ["CODES", "World"]

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


class World(NamedTuple):
    """Shapes: S stages, B bins, W windows, J streams, N nodes, C cores; times in milliseconds."""

    # What the queries are.
    node: Rows  #: (S,)
    feeds: Rows  #: (S,) stage that takes what this one puts out, -1 where that is the result
    fed: Rows  #: (S,) 1 where another stage feeds it
    cost: Rows  #: (S,) CPU time of an event through the stage
    further: Rows  #: (S,) CPU time of an event through the stages it feeds, as far as this node knows of it
    out: Rows  #: (S,) events out per event in
    rate: Rows  #: (S,) events out of the whole chain per millisecond of its CPU time
    prefix: Rows  #: (S, K) CPU time of an event through its first k operators
    keeps: Rows  #: (S, K) events out of the first k operators per event in
    operators: Rows  #: (S,) how many of these there are
    event_bytes: Rows  #: (S,)
    streams: Rows  #: (S,)
    windows: Rows  #: (S,) how many deadlines it has
    first: Rows  #: (S,) its first deadline
    period: Rows  #: (S,)
    age: Rows  #: (S,) that an event may wait before it overflows
    known: Rows  #: (S,) 1 where the delays of its watermarks are known, 0 where the period alone is
    # What comes.
    arriving: Rows  #: (S, B) events that come until the bin begins
    stimulus: Rows  #: (S, B) earliest event time of these
    marks: Rows  #: (S, W, J) when the watermark that passes the window's deadline comes
    mean: Rows  #: (S, W, J) mean delay that the window's epoch has shown
    square: Rows  #: (S, W, J) mean of squared delays
    # What is going on.
    head: Rows  #: (S,) first bin whose events are not all gone
    waiting: Rows  #: (S,) events
    came: Rows  #: (S,) events taken in
    gone: Rows  #: (S,) of these, how many have left
    position: Rows  #: (S, W) events taken in when the last stream's watermark came
    swept: Rows  #: (S,) first window that is not swept
    ingested: Rows  #: (S, J) watermarks that have come
    sums: Rows  #: (S, J, 3) of mean, mean squared and square over the history
    oldest: Rows  #: (S,) bin of the earliest event time that waits, -1 where that is not known
    taken: Rows  #: (S,) 1 while a core runs it
    free_at: Rows  #: (S,) when a core last let go of it
    ran: Rows  #: (S,) when it was last picked
    running: Rows  #: (C,) stage, -1 while idle
    until: Rows  #: (C,) when it chooses anew
    first_core: Rows  #: (N + 1,)
    first_stage: Rows  #: (N + 1,)
    last: Rows  #: (N,) stage picked last
    idled: Rows  #: (N,) when a core last had nothing to do
    relieving: Rows  #: (N, 2) memory mode: on, since when
    # What became of it.
    swept_at: Rows  #: (S, W) NaN while it is not
    refused: Rows  #: (S,) events not taken in
    overflow: Rows  #: (S,) events that waited too long
    processed: Rows  #: (S,)
    peak: Rows  #: (S,) most events that waited
    busy: Rows  #: (C,)
    memory: Rows  #: (samples, N) bytes that wait
    used: Rows  #: (samples, N) core-milliseconds since the sample before
    spans: Rows  #: (room, 4) start, end, stage, core
    counters: Rows  #: picks, spans, state of the draws
    # What the run is to be like.
    tick: float  #: width of a bin
    cycle: float  #: that a choice holds
    link: float  #: that an event or mark takes from one node to the next
    policy: int
    history: int  #: windows remembered
    sigmas: float  #: half an interval of the wanted confidence
    intake: float  #: work in core-milliseconds that may wait on one core's account
    epoch: float  #: how often it is looked what has waited too long
    starvation: float  #: that a stage may wait for its turn
    saturated: float  #: without an idle core, after which a node counts as saturated
    memory_bound: float  #: bytes on a node from which on memory counts
    release: float  #: share of that which is to be freed
    relief: float  #: milliseconds after which slack counts again
    sample: int  #: bins between two samples
