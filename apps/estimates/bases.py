"""Bases of what runs in each cluster, for workers: the last one in the process, and files that all processes share.

After a change the base of before is brought up to date by what the change moves (`engine.estimation.base`). A file that
is damaged, cut or of another version is not believed: it goes, and the base is made anew. Verdicts write no file of a
base that they moved: the estimate that follows a change does, once a minute at most, and a process that starts moves on
from there.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from django.conf import settings
from django.utils import timezone

from apps.fleet.models import Cluster
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL
from engine.document.deployment import Deployment
from engine.records import Record, Words

if TYPE_CHECKING:
    from engine.estimation.base import EstimateBase

__all__ = ["BaseChange", "BaseFacts", "base_changes", "base_facts", "base_keep", "bases_purge", "cluster_base"]

_log = logging.getLogger(__name__)
_SUFFIX = ".base"
_LEFT_S = 3600.0  # age of a half-written file that nobody writes any more
_WRITE_S = 60.0  # a base is large, and one of a minute ago is brought up to date within a second
_MAX_STATES = 50  # of a cluster, whose differences from the present one are known


@dataclass(frozen=True)
class BaseFacts(Record):
    """The base that an answer rests on: each worker's own, of one digest where they are equal."""

    TITLE: ClassVar[str] = "the base of an answer"

    digest: Annotated[str, Words("Digest of what runs, as the base has it.")]
    made_at: Annotated[datetime | None, Words("When everything was computed last.")]
    moves: Annotated[int, Words("Changes of the cluster since, by which it was brought up to date.")]


@dataclass(frozen=True)
class BaseChange:
    """Queries and servers whose figures differ between two states of a cluster."""

    queries: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()

    def __or__(self, other: BaseChange) -> BaseChange:
        return BaseChange(self.queries | other.queries, self.servers | other.servers)


@dataclass
class _KeptBase:
    """A base in memory, and by the digest of states of before what differs since; a restart forgets both."""

    base: EstimateBase
    since: dict[str, BaseChange] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        return self.base.estimate.deployment.digest


_kept: dict[int, _KeptBase] = {}  # of one cluster, by its key: bases are large


def cluster_base(
    cluster: Cluster, running: Deployment, progress: Callable[[float, str], None] | None = None
) -> EstimateBase:
    """Base of what runs in a cluster, from which changes are estimated: as it is kept, brought up to date, or made.

    `progress` is told of one that is made.
    """
    from engine.estimation.base import EstimateBase  # numba with it, which only workers load

    kept = _kept.get(cluster.pk)
    if kept is not None and kept.digest == running.digest:
        return kept.base
    found = _read(_path(cluster, running))
    if found is not None:
        _kept.clear()
        _kept[cluster.pk] = _KeptBase(found)
        return found
    before = next((known for known in _earlier(cluster, kept) if _is_of_one_grid(known.base, running)), None)
    if before is not None:
        return _moved(cluster, before, running)
    made = replace(EstimateBase.of(running, SLICES_PER_SUBINTERVAL, progress), made_at=timezone.now())
    _write(cluster, made)
    _kept.clear()
    _kept[cluster.pk] = _KeptBase(made)
    return made


def base_changes(cluster: Cluster, base: EstimateBase, digest: str) -> BaseChange | None:
    """Differences of a base in memory from a former state of its cluster; None where they are not known."""
    kept = _kept.get(cluster.pk)
    if kept is None or kept.base is not base:
        return None
    return BaseChange() if kept.digest == digest else kept.since.get(digest)


def base_facts(base: EstimateBase) -> BaseFacts:
    """Facts of a base for the answers that rest on it."""
    return BaseFacts(base.estimate.deployment.digest, base.made_at, base.moves)


def base_keep(cluster: Cluster, base: EstimateBase) -> None:
    """Write a base for other processes, unless one of the cluster was written or used within a minute.

    What is larger than may be kept stays in no memory either: nobody asked this process for a verdict.
    """
    path = _path(cluster, base.estimate.deployment)
    newest = max((used for used, _, _ in _files(f"{cluster.pk}-*{_SUFFIX}")), default=0.0)
    if not path.exists() and time.time() - newest > _WRITE_S and not _write(cluster, base):
        _kept.clear()


def _moved(cluster: Cluster, before: _KeptBase, running: Deployment) -> EstimateBase:
    """The base of before, brought up to date; it is kept by this process."""
    moved = before.base.moved(running)
    change = BaseChange(*moved.differences(before.base))
    since = {digest: known | change for digest, known in before.since.items()} | {before.digest: change}
    _kept.clear()
    _kept[cluster.pk] = _KeptBase(moved, dict(list(since.items())[-_MAX_STATES:]))
    return moved


def _is_of_one_grid(base: EstimateBase, running: Deployment) -> bool:
    was = base.estimate.deployment
    return (was.subintervals, was.subinterval_s) == (running.subintervals, running.subinterval_s)


def _folder() -> Path:
    return Path(settings.VAR_DIR) / "bases"


def _path(cluster: Cluster, running: Deployment) -> Path:
    return _folder() / f"{cluster.pk}-{running.digest}{_SUFFIX}"


def _earlier(cluster: Cluster, kept: _KeptBase | None) -> Iterator[_KeptBase]:
    """Bases of former states of a cluster, the latest first: that of the process, then those of files."""
    if kept is not None:
        yield kept
    for _, _, path in _files(f"{cluster.pk}-*{_SUFFIX}"):
        base = _read(path)
        if base is not None:
            yield _KeptBase(base)


def _files(pattern: str) -> list[tuple[float, int, Path]]:
    """Files of the folder with the time of their last use and their bytes, the one used last first."""
    found = []
    for path in _folder().glob(pattern):
        try:
            status = path.stat()
        except FileNotFoundError:  # another process took it away
            continue
        found.append((status.st_mtime, status.st_size, path))
    return sorted(found, reverse=True)


def _read(path: Path) -> EstimateBase | None:
    """The base of a file; None where there is none to be believed."""
    from engine.estimation.base_file import UnreadableBase, read_base

    try:
        base = read_base(path)
    except FileNotFoundError:
        return None
    except (OSError, UnreadableBase) as error:
        _log.warning("The base %s is made anew: %s.", path.name, error)
        if isinstance(error, UnreadableBase):
            _take_away(path)
        return None
    with suppress(OSError):  # taken away meanwhile, or somebody else's: it is read all the same
        os.utime(path)
    return base


def _take_away(path: Path) -> None:
    with suppress(OSError):  # what cannot be taken away is not believed the next time either
        path.unlink(missing_ok=True)


def _write(cluster: Cluster, base: EstimateBase) -> bool:
    """Write a base, and take away what is over the limit; False where it is larger than that, or there is no room."""
    from engine.estimation.base_file import PackedBase

    folder, limit = _folder(), settings.BASES_MAX_BYTES
    path, packed = _path(cluster, base.estimate.deployment), PackedBase(base)
    if packed.size > limit:
        if limit:
            _log.warning(
                "The base %s of %.0f MB is not kept: SLUICE_BASES_MAX_MB allows %.0f.",
                path.name,
                packed.size / 1e6,
                limit / 1e6,
            )
        return not limit
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        bases_purge(limit - packed.size)
        packed.write(path)
    except OSError as error:
        _log.warning("The base %s is kept by this process alone: %s.", path.name, error)
    return True


def bases_purge(most: float) -> None:
    """Take away what was longest not used, until the others have `most` bytes, and what was left half done."""
    now = time.time()
    for changed, _, path in _files(".*.part"):
        if now - changed > _LEFT_S:
            _take_away(path)
    for _, size, path in _files(f"*{_SUFFIX}"):
        most -= size
        if most < 0:
            _take_away(path)
