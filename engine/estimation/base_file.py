"""File of an estimate's base: written whole or not at all, checked before it is believed, its arrays mapped.

Layout: the mark of the format; the object without its large arrays; the arrays, each at a multiple of `_ALIGN`; a
table of both; the table's length; the digest of all before it. Processes that read one file share its pages until they
write there.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import pickle
import platform
from pathlib import Path
from typing import IO, cast

import numpy as np

from engine.estimation.base import EstimateBase
from engine.files import fresh_file

__all__ = ["PackedBase", "UnreadableBase", "read_base", "source_version"]

_MARK = b"sluice-base-1\n"
_ALIGN = 64  # bytes, a line of the processor's cache
_LARGE = 1 << 12  # bytes of an array that stands by itself
_BLOCK = 1 << 24
_NUMBER = 8  # bytes of the table's length
_DIGEST = hashlib.sha256().digest_size


class UnreadableBase(Exception):
    """A file that is no base of this version: other_format, cut, damaged or other_version."""


class PackedBase:
    """A base as it is written: its large arrays aside.

    Attributes
    ----------
    size : int
        Bytes that its file takes, within one percent.
    """

    def __init__(self, base: EstimateBase) -> None:
        self._arrays: list[memoryview] = []
        self._graph = pickle.dumps(base, protocol=5, buffer_callback=self._stays)
        self.size = len(self._graph) + sum(array.nbytes + _ALIGN for array in self._arrays)

    def _stays(self, buffer: pickle.PickleBuffer) -> bool:
        """Whether an array is small enough to stay with the rest; the others are put aside."""
        content = buffer.raw()
        if content.nbytes < _LARGE:
            return True
        self._arrays.append(content)
        return False

    def write(self, path: Path) -> None:
        """Write it so that it is there whole or not at all.

        Raises
        ------
        OSError
            If there is no room, or the folder cannot be written; nothing is left of it then.
        """
        with fresh_file(path, suffix=f".{os.getpid()}.part") as file:
            _write(file, [memoryview(self._graph), *self._arrays])


def read_base(path: Path) -> EstimateBase:
    """The base of a file, its arrays mapped: what is written to them stays in this process.

    Raises
    ------
    UnreadableBase
        If the file is damaged, cut, or of another version of the engine, Python or numpy.
    OSError
        If it is not there.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= len(_MARK) + _NUMBER + _DIGEST:
            raise UnreadableBase("cut")
        content = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY))
    if content[: len(_MARK)] != _MARK:
        raise UnreadableBase("other_format")
    body, told = content[:-_DIGEST], content[-_DIGEST:]
    digest = hashlib.sha256()
    for at in range(0, len(body), _BLOCK):
        digest.update(body[at : at + _BLOCK])
    if digest.digest() != told:
        raise UnreadableBase("damaged")
    end = len(body) - _NUMBER
    table = json.loads(bytes(body[end - int.from_bytes(body[end:], "big") : end]))
    if table["version"] != source_version():
        raise UnreadableBase("other_version")
    graph, *arrays = (content[start : start + length] for start, length in table["parts"])
    return cast(EstimateBase, pickle.loads(graph, buffers=arrays))


def _write(file: IO[bytes], contents: list[memoryview]) -> None:
    digest, parts = hashlib.sha256(), []

    def put(content: bytes | memoryview) -> None:
        digest.update(content)
        file.write(content)

    put(_MARK)
    for content in contents:
        put(bytes(-file.tell() % _ALIGN))
        parts.append((file.tell(), content.nbytes))
        for at in range(0, content.nbytes, _BLOCK):
            put(content[at : at + _BLOCK])
    table = json.dumps({"version": source_version(), "parts": parts}).encode()
    put(table)
    put(len(table).to_bytes(_NUMBER, "big"))
    file.write(digest.digest())


def _read_version() -> str:
    digest = hashlib.sha256(f"{platform.python_version()} {np.__version__}".encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


_VERSION = _read_version()  # when the sources are loaded: they may be replaced under a process that runs


def source_version() -> str:
    """All that a kept object of the engine means something by: the engine's sources, Python and numpy."""
    return _VERSION
