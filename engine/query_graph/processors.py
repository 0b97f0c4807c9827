"""Stream processors by kind: what a tuple costs each, and how it hands tuples over.

`NOMINAL` is the processor of the cost table (`engine.query_graph.costs`), of the simulation and of the agents' own
runtime. Others were measured: their record says on how many executions and where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from engine.query_graph.graph import NOMINAL_PROCESSOR, OPERATOR_KINDS

__all__ = ["FLINK", "NOMINAL", "STREAM_PROCESSORS", "StreamProcessor"]


@dataclass(frozen=True)
class StreamProcessor:
    """A kind of stream processor.

    Attributes
    ----------
    name, label
        As queries and documents name it, and as people do.
    factors
        On the cost table, by kind of operator.
    send_factor
        On the table's cycles to send a tuple and to read it there.
    is_chained
        Whether operators of a host are one thread and hand tuples over by a call, up to a window or a join; else each
        has a thread and a queue.
    is_full_speed
        Whether a tuple is worked on at the full speed of a core, until its host's share is spent; else at that of the
        share.
    counts_together
        Whether a join's windows by count hold tuples of both inputs in the order in which these come, buffer by buffer;
        else as many of each.
    buffer_bytes, buffer_timeout_s
        A tuple that is handed over waits until its buffer is full, or until it is sent anyway; 0: it does not.
    buffers, sent_buffers
        Full ones before an operator that is short, and as many more on the way to another host.
    queue_tuples, sent_tuples
        The same in tuples, where queues count those.
    poll_s
        From a tuple's arrival until a source reads it, where nothing is short.
    hop_s, remote_hop_s
        Of a tuple that is handed over on a host and to another one, beside waits for buffers.
    jitter_s, units
        Of latencies that nothing in the fluid explains; and factors on the ends of intervals of T, Lp and Le, where
        nothing is short and where something may be, that hold 90 % of the executions.
    executions, machine
        That costs were fitted to, and where; 0 where nobody has measured them.
    """

    name: str
    label: str
    factors: Mapping[str, float]
    send_factor: float = 1.0
    is_chained: bool = False
    is_full_speed: bool = False
    counts_together: bool = False
    buffer_bytes: float = 0.0
    buffer_timeout_s: float = 0.0
    buffers: float = 0.0
    sent_buffers: float = 0.0
    queue_tuples: float = 0.0
    sent_tuples: float = 0.0
    poll_s: float = 0.0
    hop_s: float = 0.0
    remote_hop_s: float = 0.0
    jitter_s: float = 0.0
    units: tuple[tuple[float, float, float], tuple[float, float, float]] = ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    executions: int = 0
    machine: str = ""


#: The processor of the cost table: nothing of it is measured. Its queues are left to the residual, which was trained
#: without them.
NOMINAL: Final = StreamProcessor(
    NOMINAL_PROCESSOR,
    "the cost table",
    MappingProxyType(dict.fromkeys(OPERATOR_KINDS, 1.0)),
    poll_s=1.2e-3,
    hop_s=0.12e-3,
    remote_hop_s=0.4e-3,
)

#: Flink with its own settings: network buffers of 32 KiB (`taskmanager.memory.segment-size`) that are sent after 100 ms
#: (`execution.buffer-timeout`); 10 of a stream wait at most where it leaves, 2 and 8 that are shared where it arrives.
#: Its other numbers are those that `./sluice lab stream-processor` prints of the executions that come with Sluice.
FLINK: Final = StreamProcessor(
    "flink",
    "Flink",
    MappingProxyType({"source": 0.0019, "filter": 0.0013, "join": 0.0044, "agg": 0.0037, "sink": 0.0037}),
    send_factor=0.0037,
    is_chained=True,
    is_full_speed=True,
    counts_together=True,
    buffer_bytes=32.0 * 1024.0,
    buffer_timeout_s=0.1,
    buffers=10.0,
    sent_buffers=10.0,
    poll_s=0.3e-3,
    remote_hop_s=0.41e-6,
    jitter_s=0.25e-3,
    units=((0.7, 21.0, 33.7), (1.5, 14.7, 75.2)),
    executions=213,
    machine="2 cores of an Intel Xeon that other work shared",
)

#: All kinds by their names.
STREAM_PROCESSORS: Final[Mapping[str, StreamProcessor]] = MappingProxyType(
    {processor.name: processor for processor in (NOMINAL, FLINK)}
)
