"""Schemas of frame bodies, shared by agents, stream processor and console, and their bytes.

Every compressed buffer begins with its unpacked size, which Arrow allocates before it unpacks: a few kilobytes can ask
for any amount of memory. `unpacked_bytes` finds the buffers in the messages' metadata, FlatBuffers that Arrow has
checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from agent.wire.frames import WireError
from agent.wire.sums import COUNTER_NAMES, SUMS, VARIATION

__all__ = [
    "COUNTERS",
    "MAX_CHARACTERS",
    "MAX_TABLE_BYTES",
    "REFINEMENTS",
    "STATISTICS",
    "SUM_COLUMNS",
    "SWEEPS",
    "WATERMARKS",
    "batch_bytes",
    "compressed_bytes",
    "table_of",
]


# Numbers of fields in Arrow's Message.fbs
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
_PLACE = struct.Struct("<qq")  # of a buffer in the message's body: offset, length
MAX_TABLE_BYTES = 64 * 2**20  #: of compressed columns, unpacked; a frame's four megabytes could hold any number
*_COUNTERS, _SHED = [(name, pa.int64()) for name in COUNTER_NAMES]
#: The most characters of texts that name an operator, its query and its place.
MAX_CHARACTERS = {"query": 200, "plan": 64, "operator": 120, "fingerprint": 64, "place": 64}
#: Columns of `SUMS` by name.
SUM_COLUMNS = {each.name: pa.field(each.name, pa.int64() if each.is_whole else pa.float64()) for each in SUMS}
#: One row for each operator of each query and epoch.
COUNTERS = pa.schema(
    [
        ("query", pa.string()),
        ("plan", pa.string()),
        ("operator", pa.string()),
        ("fingerprint", pa.string()),
        ("entry", pa.int16()),
        ("epoch_us", pa.int64()),  # beginning of the epoch, microseconds since 1970
        *_COUNTERS,
        ("load_factor", pa.float64()),
        ("config_version", pa.int64()),
        _SHED,
        ("granted_cpu_ns", pa.int64()),  # of the query in this epoch
        ("used_cpu_ns", pa.int64()),
        ("idle_ns", pa.int64()),
    ]
)
#: Sums over one subinterval of stimulus time: one row for each operator, input and place it ran at.
STATISTICS = pa.schema(
    [
        ("query", pa.string()),
        ("plan", pa.string()),
        ("operator", pa.string()),
        ("fingerprint", pa.string()),
        ("place", pa.string()),  # id of the agent, or "stream" for the stream processor
        ("window_us", pa.int64()),  # beginning of the subinterval
        ("width_us", pa.int64()),
        ("batch", pa.int64()),  # a row of a later batch replaces one of an earlier
        *(column for name, column in SUM_COLUMNS.items() if name not in VARIATION),
        ("measured", pa.bool_()),  # false where CPU time was apportioned and not taken by operator
        *(SUM_COLUMNS[name] for name in VARIATION),
    ]
)
#: What was learned of one query's plan at each agent: one row for each agent and operator that may run there, in the
#: chain's order. Whatever has no evidence is null. Counts are weighed: what is older counts less.
REFINEMENTS = pa.schema(
    [
        ("agent", pa.string()),
        ("operator", pa.string()),
        ("fingerprint", pa.string()),
        ("entry", pa.int16()),
        ("config_version", pa.int64()),  # of the agent, of whose epochs the figures are
        ("epochs", pa.float64()),  # behind the cost
        ("records", pa.int64()),  # worked on in them
        ("cost_s", pa.float64()),  # CPU seconds per record (a)
        ("group_cost_s", pa.float64()),  # CPU seconds per group (b), where it can be separated
        ("groups", pa.float64()),  # groups that there are (K), where epochs show that they repeat
        ("relay", pa.float64()),  # records out per record worked on; of windowed aggregates over whole windows
        ("standard_error", pa.float64()),  # of cost_s, relative
        ("bytes_in", pa.float64()),  # per record before the operator
        ("bytes_out", pa.float64()),  # per record after it
        ("records_least", pa.float64()),  # worked on in an epoch: the range in which the figures were seen
        ("records_most", pa.float64()),
        ("budget_least_s", pa.float64()),  # CPU seconds that the query was granted in an epoch: the range likewise
        ("budget_most_s", pa.float64()),
        ("input_records", pa.float64()),  # that came to the query's first proxy in an epoch, of late
        ("budget_s", pa.float64()),  # CPU seconds that the query was granted in an epoch, of late
        ("lo", pa.int16()),  # the best plan at this input and budget: all of the input to `lo`, the share `theta` on to
        ("hi", pa.int16()),  # `hi`; the same in every row of an agent
        ("theta", pa.float64()),
        ("load_factor", pa.float64()),  # of this operator in that plan
        ("bytes_sent", pa.float64()),  # in an epoch, by that plan
        ("measured_us", pa.int64()),  # beginning of the newest epoch behind it
    ]
)
#: One row for each window and stream whose sweeping watermark has passed all operators at the agent. Times are
#: microseconds since 1970.
SWEEPS = pa.schema(
    [
        ("query", pa.string()),
        ("plan", pa.string()),
        ("stream", pa.string()),  # id of the source
        ("epoch_us", pa.int64()),  # the agent's epoch in which it was swept
        ("deadline_us", pa.int64()),  # end of the window: when its watermark was generated (g)
        ("period_us", pa.int64()),  # from one deadline to the next
        ("arrived_us", pa.int64()),  # when the watermark had passed the deadline at the agent
        ("swept_us", pa.int64()),  # when it had passed the agent's operators
        ("emitted_us", pa.int64()),  # when the window was handed to the spool
        ("delay_s", pa.float64()),  # arrived - deadline, at least 0 (d)
        ("clamped", pa.bool_()),  # it was negative: the clocks differ
        ("mean_us", pa.int64()),  # when it had been expected, and the interval; null where nothing was known
        ("least_us", pa.int64()),
        ("most_us", pa.int64()),
        ("queued", pa.int64()),  # records that waited before it when it arrived
        ("work_s", pa.float64()),  # CPU time that they were expected to take
        ("config_version", pa.int64()),
    ]
)
#: What was learned of the sweeping watermarks of one query's plan: one row for each stream and agent, and one of all
#: agents together. Whatever has no evidence is null.
WATERMARKS = pa.schema(
    [
        ("agent", pa.string()),  # "*" for all together
        ("stream", pa.string()),
        ("period_s", pa.float64()),
        ("epochs", pa.int64()),  # windows remembered, at most h
        ("sweeps", pa.int64()),  # watermarks behind them
        ("clamped", pa.int64()),  # of these, with a negative delay
        ("mean_s", pa.float64()),  # of the delay
        ("variance_s2", pa.float64()),  # predictive: mean of squares less square of the mean
        ("least_s", pa.float64()),
        ("most_s", pa.float64()),
        ("levels", pa.list_(pa.float64())),  # empirical quantiles of the delay, where there are enough windows
        ("values_s", pa.list_(pa.float64())),
        ("expected", pa.int64()),  # watermarks for which there was an interval, and how many came within it
        ("within", pa.int64()),
        ("latency_mean_s", pa.float64()),  # from deadline to emission
        ("latency_p99_s", pa.float64()),
        ("event_cost_s", pa.float64()),  # CPU seconds of a source record through the agent's operators
        ("measured_us", pa.int64()),  # deadline of the newest window behind it
    ]
)


def unpacked_bytes(body: pa.Buffer) -> int:
    """Unpacked size of a stream's compressed buffers, by their own headers; 0 where none is compressed.

    Raises
    ------
    pa.ArrowInvalid
        The bytes are no messages of Arrow.
    """
    total = 0
    for message in _messages(body):
        try:
            total += _of_message(message)
        except struct.error as error:
            raise pa.ArrowInvalid(f"a {message.type} cannot be read: {error}") from error
    return total


def _messages(body: pa.Buffer) -> Iterator[pa.ipc.Message]:
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _of_message(message: pa.ipc.Message) -> int:
    if message.type not in ("record batch", "dictionary"):
        return 0
    data, body = memoryview(message.metadata), memoryview(message.body)
    batch = _table(data, _uint(data, 0), _HEADER)
    if message.type == "dictionary":
        batch = _table(data, batch, _DATA)
    if not _field(data, batch, _COMPRESSION) or not (buffers := _table(data, batch, _BUFFERS)):
        return 0
    places = (_PLACE.unpack_from(data, buffers + 4 + _PLACE.size * i) for i in range(_uint(data, buffers)))
    return sum(max(struct.unpack_from("<q", body, offset)[0], 0) for offset, length in places if length)


def _table(data: memoryview, table: int, field: int) -> int:
    """Start of the table or vector in a field; 0 where there is none."""
    at = _field(data, table, field)
    return at + _uint(data, at) if at else 0


def _field(data: memoryview, table: int, field: int) -> int:
    """Place of a field in a FlatBuffers table; 0 where it has none."""
    names = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * field
    if slot >= struct.unpack_from("<H", data, names)[0]:
        return 0
    offset = struct.unpack_from("<H", data, names + slot)[0]
    return table + offset if offset else 0


def _uint(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


def batch_bytes(table: pa.Table | pa.RecordBatch) -> bytes:
    """The table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue().to_pybytes()


def compressed_bytes(table: pa.Table) -> bytes:
    """The rows as an Arrow IPC stream, compressed by zstd."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def table_of(body: bytes | memoryview | pa.Buffer) -> pa.Table:
    """The table of an Arrow IPC stream.

    Raises
    ------
    WireError
        The bytes are none, or unpack to more than `MAX_TABLE_BYTES`.
    """
    buffer = pa.py_buffer(body)
    try:
        if (unpacked := unpacked_bytes(buffer)) > MAX_TABLE_BYTES:
            raise WireError(f"the body unpacks to {unpacked} bytes; allowed: {MAX_TABLE_BYTES}")
        with pa.ipc.open_stream(buffer) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, pa.ArrowException, OSError) as error:
        raise WireError(f"the body is no Arrow IPC stream: {error}") from error
