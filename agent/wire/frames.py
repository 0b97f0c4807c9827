"""Frames: the batches that travel from an agent to the stream processor, and from there to the console.

A frame is a small JSON header and a body, an Arrow IPC stream. On the wire it is

    magic "SLF1" | header bytes (u32) | body bytes (u32) | CRC-32 of header and body (u32) | header | body

little-endian; frames follow each other without padding. A frame stands in a Redis Stream exactly as it was sent.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = [
    "MAGIC",
    "MAX_AHEAD_US",
    "MAX_BODY_BYTES",
    "MAX_NUMBER",
    "MAX_POST_BYTES",
    "Frame",
    "FrameKind",
    "WireError",
    "decode_frames",
    "encode_frame",
    "mark_fault",
]

MAGIC = b"SLF1"
MAX_HEADER_BYTES = 16_384
MAX_BODY_BYTES = 4 * 2**20
MAX_POST_BYTES = 16 * 2**20
MAX_NUMBER = 2**53 - 1  #: the largest whole number that JSON and Redis keep exactly; in microseconds the year 2255
MAX_AHEAD_US = 86_400_000_000  #: a window that begins later than this after its records came is of a wrong clock
MAX_ENTRY = 2**15 - 1
_LEAD = struct.Struct("<4sIII")


class WireError(ValueError):
    """Bytes that are no frames: cut off, corrupt, too large, or without what a frame must say."""


class FrameKind(StrEnum):
    """Kind of a frame's content."""

    RECORDS = "records"  #: drained or overflowing records; they enter at operator `entry`
    PARTIALS = "partials"  #: partial aggregates of operator `entry`; they merge
    CHECKPOINT = "checkpoint"  #: a copy of all partial rows that are open at the agent after `epoch`, not to be merged
    MARK = "mark"  #: no body; `extra.watermarks` of every path of one query after an epoch
    COUNTERS = "counters"  #: `schemas.COUNTERS`: what every operator of every query did in an epoch
    SWEEPS = "sweeps"  #: `schemas.SWEEPS`: windows whose watermark has passed all operators of the agent in an epoch
    RESULT = "result"  #: rows of one closed window, from the stream processor to the console
    STATISTICS = "statistics"  #: `schemas.STATISTICS`, from the stream processor to the console
    REFINED = "refined"  #: `schemas.REFINEMENTS` of one query's plan, from the stream processor to the console
    WATERMARKS = "watermarks"  #: `schemas.WATERMARKS` of one query's plan, from the stream processor to the console


@dataclass(frozen=True)
class Frame:
    """One numbered batch.

    `agent` is the sender's id, `life` names one stretch of its sequence: numbers start at 1 with each life and have no
    gaps. `query` is ``cluster/query``, `plan` the digest of the pipeline it was computed with, `epoch` the number of
    the sender's epoch (microseconds since 1970 of its beginning).
    """

    kind: FrameKind
    agent: str
    life: str
    seq: int
    query: str = ""
    plan: str = ""
    entry: int = 0
    epoch: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)
    body: bytes = b""


def encode_frame(frame: Frame) -> bytes:
    """The frame as bytes.

    Raises
    ------
    WireError
        Header or body are larger than a frame may be.
    """
    document: dict[str, Any] = {"kind": frame.kind.value, "agent": frame.agent, "life": frame.life, "seq": frame.seq}
    for name in ("query", "plan", "entry", "epoch", "extra"):
        if value := getattr(frame, name):
            document[name] = value
    header = json.dumps(document, separators=(",", ":")).encode()
    if len(header) > MAX_HEADER_BYTES or len(frame.body) > MAX_BODY_BYTES:
        raise WireError(
            f"a frame of {len(header)} + {len(frame.body)} bytes; allowed: {MAX_HEADER_BYTES} + {MAX_BODY_BYTES}"
        )
    checksum = zlib.crc32(frame.body, zlib.crc32(header))
    return b"".join((_LEAD.pack(MAGIC, len(header), len(frame.body), checksum), header, frame.body))


def decode_frames(data: bytes | memoryview) -> Iterator[tuple[Frame, memoryview]]:
    """Every frame of `data`, each with its own bytes.

    Raises
    ------
    WireError
        At the first frame that is cut off, corrupt, too large, or lacks a field; those before it were yielded.
    """
    view = memoryview(data)
    at, number = 0, 0
    while at < len(view):
        number += 1
        frame, end = _decode(view, at, number)
        yield frame, view[at:end]
        at = end


def _decode(view: memoryview, at: int, number: int) -> tuple[Frame, int]:
    if len(view) - at < _LEAD.size:
        raise WireError(f"frame {number} is cut off after {len(view) - at} bytes")
    magic, header_bytes, body_bytes, checksum = _LEAD.unpack_from(view, at)
    if magic != MAGIC:
        raise WireError(f"frame {number} begins with {magic!r}; allowed: {MAGIC!r}")
    if header_bytes > MAX_HEADER_BYTES or body_bytes > MAX_BODY_BYTES:
        raise WireError(
            f"frame {number} says {header_bytes} + {body_bytes} bytes; allowed: {MAX_HEADER_BYTES} + {MAX_BODY_BYTES}"
        )
    begin = at + _LEAD.size
    end = begin + header_bytes + body_bytes
    if end > len(view):
        raise WireError(f"frame {number} is cut off: {len(view) - begin} of {header_bytes + body_bytes} bytes came")
    if zlib.crc32(view[begin:end]) != checksum:
        raise WireError(f"frame {number} is corrupt: its checksum differs")
    return _read_header(view[begin : begin + header_bytes], view[begin + header_bytes : end], number), end


def _read_header(header: memoryview, body: memoryview, number: int) -> Frame:
    try:
        document = json.loads(bytes(header))
        frame = Frame(
            kind=FrameKind(document["kind"]),
            agent=document["agent"],
            life=document["life"],
            seq=document["seq"],
            query=document.get("query", ""),
            plan=document.get("plan", ""),
            entry=document.get("entry", 0),
            epoch=document.get("epoch", 0),
            extra=document.get("extra", {}),
            body=bytes(body),
        )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise WireError(f"frame {number} has a header that cannot be read: {error!r}") from error
    texts = (frame.agent, frame.life, frame.query, frame.plan)
    if not all(isinstance(text, str) for text in texts) or not isinstance(frame.extra, dict):
        raise WireError(f"frame {number}: agent, life, query and plan are texts, extra is an object")
    if not (_is_whole(frame.seq, 1) and _is_whole(frame.entry, 0, MAX_ENTRY) and _is_whole(frame.epoch, 0)):
        raise WireError(
            f"frame {number}: seq is a whole number from 1 to {MAX_NUMBER}, entry from 0 to {MAX_ENTRY}, "
            f"epoch from 0 to {MAX_NUMBER}"
        )
    return frame


def mark_fault(extra: Mapping[str, Any]) -> str:
    """Fault in the `extra` of a MARK frame, in words; empty where there is none."""
    marks = extra.get("watermarks")
    if not isinstance(marks, Mapping) or not marks:
        return f"watermarks is {str(marks)[:80]}; allowed: microseconds since 1970 for every path"
    for path, mark in marks.items():
        if not (path.isascii() and path.isdigit()) or not _is_whole(mark, -MAX_NUMBER):
            return f"watermarks has {path[:20]!r}: {str(mark)[:40]}; allowed: a path's number and whole microseconds"
    if (closing := extra.get("closing_epoch_us")) is not None and not _is_whole(closing, 0):
        return f"closing_epoch_us is {str(closing)[:40]}; allowed: a whole number from 0 to {MAX_NUMBER}"
    left_out = extra.get("left_out", [])
    if not isinstance(left_out, list) or not all(isinstance(name, str) for name in left_out):
        return f"left_out is {str(left_out)[:80]}; allowed: a list of agents' ids"
    return ""


def _is_whole(value: object, least: int, most: int = MAX_NUMBER) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most
