"""Malformed frames and bodies are refused before they cost anything."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from agent.wire import (
    MAGIC,
    MAX_BODY_BYTES,
    MAX_NUMBER,
    MAX_TABLE_BYTES,
    Frame,
    FrameKind,
    WireError,
    decode_frames,
    encode_frame,
    table_of,
)


def packed(table: pa.Table, compression: str) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def rows(count: int) -> pa.Table:
    numbers = pa.array(np.arange(count) % 7)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(2 * count, np.int32)), 2).cast(pa.list_(pa.int32()))
    return pa.table({"n": numbers, "text": numbers.cast(pa.string()), "list": lists})


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_small_body_that_unpacks_to_more_than_there_is_room_for_is_not_unpacked(compression: str) -> None:
    zeros = pa.table({"n": np.zeros(MAX_TABLE_BYTES // 8 + 1, np.int64)})
    body = packed(zeros, compression)
    assert len(body) < MAX_BODY_BYTES
    before = pa.total_allocated_bytes()
    with pytest.raises(WireError, match=f"unpacks to {zeros.nbytes} bytes; allowed: {MAX_TABLE_BYTES}"):
        table_of(body)
    assert pa.total_allocated_bytes() - before < 2**20


def test_dictionaries_count_too() -> None:
    words = pa.array(["x" * (MAX_TABLE_BYTES + 1)])
    body = packed(pa.table({"word": pa.DictionaryArray.from_arrays(pa.array([0]), words)}), "zstd")
    assert len(body) < MAX_BODY_BYTES
    with pytest.raises(WireError, match="unpacks to"):
        table_of(body)


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_bodies_within_bounds_are_read(compression: str) -> None:
    assert table_of(packed(rows(1000), compression)).equals(rows(1000))
    assert table_of(packed(rows(0), compression)).equals(rows(0))


def test_damaged_compressed_bodies_are_wire_errors() -> None:
    draw, body = random.Random(7), packed(rows(100), "zstd")
    refused = 0
    for _ in range(2000):
        damaged = bytearray(body)
        for _ in range(draw.randint(1, 4)):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        try:
            table_of(bytes(damaged))
        except WireError:
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    "wrong", [{"seq": 0}, {"seq": MAX_NUMBER + 1}, {"entry": 2**15}, {"epoch": 2**60}, {"epoch": True}, {"entry": -1}]
)
def test_numbers_that_no_column_could_hold_are_refused(wrong: dict[str, Any]) -> None:
    good: dict[str, Any] = {"kind": FrameKind.MARK, "agent": "a", "life": "l", "seq": 1}
    with pytest.raises(WireError, match="seq is a whole number"):
        list(decode_frames(encode_frame(Frame(**good | wrong))))


def test_a_header_nested_without_end_is_refused() -> None:
    header = b'{"kind":"mark","agent":"a","life":"l","seq":1,"extra":' + b"[" * 16_000
    lead = struct.pack("<4sIII", MAGIC, len(header), 0, zlib.crc32(header))
    with pytest.raises(WireError, match="header that cannot be read: RecursionError"):
        list(decode_frames(lead + header))
