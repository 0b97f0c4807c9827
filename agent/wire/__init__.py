"""The wire format of agents. Ingest and the stream processor depend on it, never the reverse."""

from agent.wire.frames import (
    MAGIC,
    MOST_AHEAD_US,
    MOST_BODY_BYTES,
    MOST_NUMBER,
    MOST_POST_BYTES,
    Frame,
    FrameKind,
    WireError,
    decode_frames,
    encode_frame,
    mark_fault,
)
from agent.wire.schemas import (
    COUNTERS,
    MOST_TABLE_BYTES,
    REFINEMENTS,
    STATISTICS,
    SWEEPS,
    WATERMARKS,
    batch_bytes,
    table_of,
)

__all__ = [
    "COUNTERS",
    "MAGIC",
    "MOST_AHEAD_US",
    "MOST_BODY_BYTES",
    "MOST_NUMBER",
    "MOST_POST_BYTES",
    "MOST_TABLE_BYTES",
    "REFINEMENTS",
    "STATISTICS",
    "SWEEPS",
    "WATERMARKS",
    "Frame",
    "FrameKind",
    "WireError",
    "batch_bytes",
    "decode_frames",
    "encode_frame",
    "mark_fault",
    "table_of",
]
