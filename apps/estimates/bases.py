"""Bases of what runs in each cluster, for workers: the last one in the process, and files that all processes share.

After a change the base of before is brought up to date by what the change moves (`engine.estimation.base`). A file that
is damaged, cut or of another version is not believed: it goes, and the base is made anew.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from django.conf import settings

from apps.fleet.models import Cluster
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL
from engine.document.deployment import Deployment

if TYPE_CHECKING:
    from engine.estimation.base import EstimateBase

__all__ = ["base_keep", "bases_purge", "cluster_base"]

_log = logging.getLogger(__name__)
_SUFFIX = ".base"
_LEFT_S = 3600.0  # age of a half-written file that nobody writes any more
_kept: dict[int, EstimateBase] = {}  # of one cluster, by its key: bases are large


def cluster_base(cluster: Cluster, running: Deployment) -> EstimateBase:
    """Base of what runs in a cluster, from which changes are estimated: as it is kept, brought up to date, or made."""
    from engine.estimation.base import EstimateBase  # numba with it, which only workers load

    kept = _kept.get(cluster.pk)
    if kept is not None and kept.estimate.deployment.digest == running.digest:
        return kept
    found = _read(_path(cluster, running))
    if found is None:
        before = next((base for base in _earlier(cluster, kept) if _is_of_one_grid(base, running)), None)
        found = EstimateBase.of(running, SLICES_PER_SUBINTERVAL) if before is None else before.moved(running)
        _write(cluster, found)
    _remember(cluster, found)
    return found


def base_keep(cluster: Cluster, base: EstimateBase) -> None:
    """Keep a base that was made anyway, unless it is larger than what may be kept."""
    if _path(cluster, base.estimate.deployment).exists() or _write(cluster, base):
        _remember(cluster, base)


def _remember(cluster: Cluster, base: EstimateBase) -> None:
    _kept.clear()
    _kept[cluster.pk] = base


def _is_of_one_grid(base: EstimateBase, running: Deployment) -> bool:
    was = base.estimate.deployment
    return (was.subintervals, was.subinterval_s) == (running.subintervals, running.subinterval_s)


def _folder() -> Path:
    return Path(settings.VAR_DIR) / "bases"


def _path(cluster: Cluster, running: Deployment) -> Path:
    return _folder() / f"{cluster.pk}-{running.digest}{_SUFFIX}"


def _earlier(cluster: Cluster, kept: EstimateBase | None) -> Iterator[EstimateBase]:
    """Bases of former states of a cluster, the latest first: that of the process, then those of files."""
    if kept is not None:
        yield kept
    for _, _, path in _files(f"{cluster.pk}-*{_SUFFIX}"):
        base = _read(path)
        if base is not None:
            yield base


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
        return False
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        bases_purge(limit - packed.size)
        packed.write(path)
    except OSError as error:
        _log.warning("The base %s is kept by this process alone: %s.", path.name, error)
        return False
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
