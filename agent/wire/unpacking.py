"""How large an Arrow IPC stream gets when it is read, told without unpacking it.

Every compressed buffer begins with its unpacked size, which Arrow allocates before it unpacks: a few kilobytes can ask
for any amount of memory. Which buffers there are stands in the messages' metadata, FlatBuffers that Arrow has checked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

__all__ = ["unpacked_bytes"]

# Numbers of fields in Arrow's Message.fbs
_HEADER, _DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
_PLACE = struct.Struct("<qq")  # of a buffer in the message's body: offset, length


def unpacked_bytes(body: pa.Buffer) -> int:
    """Bytes that the compressed buffers of a stream say they unpack to; 0 where none is compressed.

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
    """Where the table or vector in a field begins; 0 where there is none."""
    at = _field(data, table, field)
    return at + _uint(data, at) if at else 0


def _field(data: memoryview, table: int, field: int) -> int:
    """Where a field of a FlatBuffers table stands; 0 where it has none."""
    names = table - struct.unpack_from("<i", data, table)[0]
    slot = 4 + 2 * field
    if slot >= struct.unpack_from("<H", data, names)[0]:
        return 0
    offset = struct.unpack_from("<H", data, names + slot)[0]
    return table + offset if offset else 0


def _uint(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])
