"""Questions on disk: a cluster moves on while the parts of a decision are computed.

Most of a question is the cluster, and most of that was there in the question before. So a process writes the elements
of a cluster once, as a reference, and of each question what is no element of it. A new reference is made when a tenth
of the sources are new.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pickle
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import zstandard
from django.conf import settings

from apps.admission.models import AdmissionRequest
from apps.admission.questions import RequestQuestion
from engine.document.deployment import Deployment
from engine.files import replace_file

__all__ = ["forget_question", "keep_question", "kept_question", "kept_questions_purge"]

_log = logging.getLogger(__name__)

_KEPT = timedelta(days=1)  # that a question lies there for parts that are tried again
_QUESTION, _REFERENCE = ".question", ".reference"
_NEW_SHARE = 0.1  # of the sources, that are written with each question


@dataclass(frozen=True, eq=False)
class _Reference:
    """Elements of a cluster that questions refer to by their position."""

    name: str
    elements: tuple[object, ...]
    sources: int

    @cached_property
    def positions(self) -> Mapping[int, int]:
        """Positions by the identity of an element, which is there as long as this is."""
        return {id(element): position for position, element in enumerate(self.elements)}

    def covers(self, deployment: Deployment) -> bool:
        """Whether few sources of a deployment, and of these elements, are not in the other."""
        known = sum(id(source) in self.positions for source in deployment.sources)
        return known >= (1 - _NEW_SHARE) * max(len(deployment.sources), self.sources)


_latest: _Reference | None = None  # that this process wrote, or read


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, reference: _Reference) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._positions = reference.positions

    def persistent_id(self, obj: object) -> int | None:
        return self._positions.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, reference: _Reference) -> None:
        super().__init__(file)
        self._elements = reference.elements

    def persistent_load(self, pid: Any) -> object:
        return self._elements[pid]


def keep_question(pk: Any, question: RequestQuestion) -> None:
    """Keep a question for the job of the parts. A disk that takes none costs parts of a cluster that moves on."""
    try:
        _folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        reference, file = _reference_for(question.snapshot), io.BytesIO()
        _Pickler(file, reference).dump(question)
        replace_file(_path(pk), b"\n".join((_version(), reference.name.encode(), _compressed(file.getvalue()))))
    except OSError as error:
        _log.warning("the snapshot of preview %s is not kept: %s", pk, error)


def kept_question(request: AdmissionRequest) -> RequestQuestion | None:
    """The question that the verdict answers; None where it is not there, damaged, of another release or decision.

    Only this module writes the folder.
    """
    try:
        version, name, data = _path(request.pk).read_bytes().split(b"\n", 2)
        if version != _version():
            _log.warning("the kept snapshot of preview %s is of another release", request.pk)
            return None
        reference = _read_reference(name.decode())
        question = _Unpickler(io.BytesIO(zstandard.decompress(data)), reference).load()
    except FileNotFoundError:
        return None
    except Exception:
        _log.warning("the kept snapshot of preview %s cannot be read", request.pk, exc_info=True)
        return None
    is_asked = isinstance(question, RequestQuestion) and question.digest == request.snapshot
    return question if is_asked else None


def forget_question(pk: Any) -> None:
    """Delete a question that nobody will ask for."""
    with contextlib.suppress(OSError):
        _path(pk).unlink()


def kept_questions_purge() -> int:
    """Delete what nobody has asked for in a day; returns the number of questions."""
    files = list(_folder().glob("*")) if _folder().is_dir() else []
    old = [path for path in files if time.time() - path.stat().st_mtime > _KEPT.total_seconds()]
    for path in old:
        with contextlib.suppress(OSError):
            path.unlink()
    return sum(path.suffix == _QUESTION for path in old)


def _reference_for(deployment: Deployment) -> _Reference:
    """The reference of before where it will do, touched: it has to be there as long as its questions."""
    global _latest
    if _latest is not None and _latest.covers(deployment):
        with contextlib.suppress(FileNotFoundError):
            os.utime(_reference_path(_latest.name))
            return _latest
    parts = (deployment.sources, deployment.operators, deployment.nodes, deployment.links, deployment.objectives)
    made = _Reference(uuid.uuid4().hex, tuple(chain.from_iterable(parts)), len(deployment.sources))
    data = _compressed(pickle.dumps((made.elements, made.sources), pickle.HIGHEST_PROTOCOL))
    replace_file(_reference_path(made.name), data)
    _latest = made
    return made


def _read_reference(name: str) -> _Reference:
    global _latest
    if _latest is None or _latest.name != name:
        elements, sources = pickle.loads(zstandard.decompress(_reference_path(name).read_bytes()))
        _latest = _Reference(name, elements, sources)
    return _latest


def _compressed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1, write_checksum=True).compress(data)


def _folder() -> Path:
    return Path(settings.VAR_DIR) / "previews"


def _path(pk: Any) -> Path:
    return _folder() / f"{pk}{_QUESTION}"


def _reference_path(name: str) -> Path:
    return _folder() / f"{name}{_REFERENCE}"


def _version() -> bytes:
    """All that a kept question means something by: its own fields, and the sources of the engine's in them."""
    from engine.estimation.base_file import source_version  # and with it the models, which only workers load

    names = ",".join(field.name for field in fields(RequestQuestion))
    return f"{source_version()} {names}".encode()
