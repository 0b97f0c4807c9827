"""JSON as rows keep it where it is large: compressed with zstd."""

from __future__ import annotations

import json
from typing import Any

import zstandard

__all__ = ["pack_json", "unpack_json"]


def pack_json(value: Any) -> bytes:
    """The value as compressed JSON. ValueError for NaN and infinity, which JSON does not have."""
    return zstandard.compress(json.dumps(value, separators=(",", ":"), allow_nan=False).encode())


def unpack_json(data: bytes | memoryview) -> Any:
    """What `pack_json` was given; PostgreSQL hands out a memoryview."""
    return json.loads(zstandard.decompress(bytes(data)))
