"""Files that are there whole or not at all, also after a crash; tables as bytes that take little room."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

__all__ = ["compressed", "write_whole"]


def write_whole(path: Path, data: bytes) -> None:
    """Replace `path` by `data`; whoever reads meanwhile sees the old content."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def compressed(rows: pa.Table) -> bytes:
    """The rows as an Arrow IPC stream, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()
