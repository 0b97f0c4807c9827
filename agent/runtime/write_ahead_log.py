"""One segment of the write-ahead log: checksummed records, one after the other.

    magic "SLW1" | header bytes (u32) | body bytes (u32) | CRC-32 of header and body (u32) | header | body

little-endian. The header is JSON: writer, number of the first frame, lengths of blobs and frames, the writer's notes,
whether the record replaces all earlier ones of its writer, and up to which number frames were committed. The body is
the blobs, then the frames.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.wire import Frame

__all__ = ["WalEntry", "WalRecord", "WriterState", "encode_record", "read_records", "segment_bytes", "write_all"]

MAGIC = b"SLW1"
_SEGMENT_SHARE = 8  # segments of an eighth of the spool, or of its disk, so that it empties in small steps
_MAX_BYTES, _MIN_BYTES = 16 * 2**20, 64 * 2**10
_LEAD = struct.Struct("<4sIII")


@dataclass(frozen=True)
class WriterState:
    """State of a writer in one record, without the record's frames."""

    notes: dict[str, Any]
    blobs: tuple[bytes, ...] = ()
    snapshot: bool = False  #: stands for all earlier records of the writer


@dataclass(frozen=True)
class WalRecord:
    """A record that one writer appends at once: all of it is on disk, or nothing.

    Frames come unnumbered (any `life` and `seq`). `snapshot` gives what the writer needs after a restart once this
    record is on disk; it is asked when a segment ends, in any thread. Without one the record itself is that.
    `acknowledged` is called in any thread, once, when all of the record's frames are; a restart forgets it.
    """

    writer: str
    notes: dict[str, Any]
    blobs: tuple[bytes, ...] = ()
    frames: Sequence[Frame] = ()
    snapshot: Callable[[], WriterState] | None = None
    acknowledged: Callable[[], None] | None = None


@dataclass(frozen=True)
class WalEntry:
    """Place of one record's frames in its segment."""

    first: int  #: number of the first frame; of the next one, where the record has none
    frames_at: int
    lengths: tuple[int, ...] = field(default=())
    committed: int = 0  #: number up to which frames were committed when it was written

    @property
    def last(self) -> int:
        return self.first + len(self.lengths) - 1


def segment_bytes(directory: Path, used_bytes: int, limit_bytes: int) -> int:
    """Length at which a segment ends. On a disk that the spool fills, the next one finds room when older ones go."""
    of_disk = (used_bytes + shutil.disk_usage(directory).free) // _SEGMENT_SHARE
    return min(limit_bytes // _SEGMENT_SHARE, _MAX_BYTES, max(of_disk, _MIN_BYTES))


def encode_record(
    writer: str, first: int, stored: WriterState, frames: list[bytes], committed: int = 0
) -> tuple[bytes, int]:
    """The record's bytes, and at which of them its frames begin."""
    document = {
        "writer": writer,
        "first": first,
        "blobs": [len(blob) for blob in stored.blobs],
        "frames": [len(frame) for frame in frames],
        "notes": stored.notes,
        "snapshot": stored.snapshot,
        "committed": committed,
    }
    header = json.dumps(document, separators=(",", ":")).encode()
    body, checksum = (*stored.blobs, *frames), zlib.crc32(header)
    for part in body:
        checksum = zlib.crc32(part, checksum)
    lead = _LEAD.pack(MAGIC, len(header), sum(map(len, body)), checksum)
    return b"".join((lead, header, *body)), _LEAD.size + len(header) + sum(map(len, stored.blobs))


def read_records(path: Path) -> Iterator[tuple[str, WriterState, WalEntry, int]]:
    """Writer, state, place of the frames and end of each record; up to the first incomplete one."""
    data = memoryview(path.read_bytes())
    at = 0
    while len(data) - at >= _LEAD.size:
        magic, header_bytes, body_bytes, checksum = _LEAD.unpack_from(data, at)
        begin = at + _LEAD.size
        end = begin + header_bytes + body_bytes
        if magic != MAGIC or end > len(data) or zlib.crc32(data[begin:end]) != checksum:
            return
        document = json.loads(bytes(data[begin : begin + header_bytes]))
        at = begin + header_bytes
        blobs = []
        for length in document["blobs"]:
            blobs.append(bytes(data[at : at + length]))
            at += length
        stored = WriterState(notes=document["notes"], blobs=tuple(blobs), snapshot=document["snapshot"])
        entry = WalEntry(document["first"], at, tuple(document["frames"]), document.get("committed", 0))
        yield document["writer"], stored, entry, end
        at = end


def write_all(descriptor: int, data: bytes) -> None:
    """Every byte, or OSError: a full disk first takes a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
