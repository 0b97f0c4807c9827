"""The wire format of agents. Ingest and the stream processor depend on it, never the reverse."""

from agent.wire.frames import (
    MAGIC,
    MOST_BODY_BYTES,
    MOST_POST_BYTES,
    Frame,
    FrameKind,
    WireError,
    decode_frames,
    encode_frame,
)
from agent.wire.schemas import COUNTERS, STATISTICS, batch_bytes, table_of

__all__ = [
    "COUNTERS",
    "MAGIC",
    "MOST_BODY_BYTES",
    "MOST_POST_BYTES",
    "STATISTICS",
    "Frame",
    "FrameKind",
    "WireError",
    "batch_bytes",
    "decode_frames",
    "encode_frame",
    "table_of",
]
