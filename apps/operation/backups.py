"""Backups of a running console, and their return: all of it or nothing."""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.db.migrations.loader import MigrationLoader
from django.utils import timezone

from agent import VERSION
from apps.core.errors import Conflict, Impossible, Malformed
from apps.operation.archives import (
    DATABASE_MEMBER,
    HISTORY,
    BackupManifest,
    open_archive,
    scratch_folder,
    unpack,
    write_archive,
)
from apps.operation.databases import copies_of_default, default_named, is_empty, row_counts

__all__ = ["LEFT_OUT", "backup_restore", "backup_write"]

#: Parts of an installation that no backup has, and what becomes of each.
LEFT_OUT = {
    "bases": "workers make what estimates of changes start from anew",
    "previews": "workers make the parts of previews anew",
    "stream": "the stream processor begins without open windows; agents send again what it has not taken",
    "uploads": "files that were not imported yet are sent again",
    "redis": "what was on its way: jobs that waited are sent again within a minute",
    "agents": "agents keep their own secrets and logs on their hosts",
    "secret_key": "kept apart on purpose; with another key people sign in again and webhooks have other secrets",
}
#: Folders that belong to a database of another moment: a restore puts them aside with it.
_OF_THE_MOMENT = ("bases", "previews", "stream", HISTORY)


def backup_write(target: Path) -> BackupManifest:
    """Save the console to a new file while it runs.

    Raises
    ------
    Conflict
        There is a file of that name.
    Impossible
        A program or the room for it is missing.
    """
    if target.exists():
        raise Conflict(f"{target} exists already. Allowed is the name of a new file.")
    if not target.parent.is_dir():
        raise Malformed(f"{target}: the folder {target.parent} does not exist.")
    copies = copies_of_default()
    try:
        with scratch_folder(target.parent) as folder:
            made_at = timezone.now()
            rows, migrations = copies.save(folder / DATABASE_MEMBER)
            files = {DATABASE_MEMBER: folder / DATABASE_MEMBER} | _history(folder / HISTORY)
            facts = {"version": VERSION, "made_at": made_at, "database": copies.kind, "migrations": migrations}
            return write_archive(target, {**facts, "rows": rows, "left_out": LEFT_OUT}, files)
    except OSError as error:
        raise Impossible(f"{target}: {error.strerror or error}. No backup was written.") from None


def _history(folder: Path) -> dict[str, Path]:
    """Copies of the files of the history; one that its keeper dropped or joined meanwhile is left out."""
    source = Path(settings.VAR_DIR) / HISTORY
    copies = {}
    for path in sorted(source.rglob("*.parquet")):
        name = path.relative_to(source)
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(path, copy)
        except FileNotFoundError:
            continue
        copies[f"{HISTORY}/{name}"] = copy
    return copies


def backup_restore(source: Path, *, replace: bool = False) -> tuple[BackupManifest, list[str]]:
    """Put a backup in the place of a console that is stopped; what was there is kept, under the names returned.

    The backup is verified, becomes a database of its own and is brought up to date there. Only then names are swapped.

    Raises
    ------
    Malformed
        The file is damaged, or is no backup.
    Conflict
        The console has data and `replace` is false, or it runs.
    Impossible
        A later version made the backup, or it is of the other kind of database.
    """
    stamp = f"{timezone.now():%Y%m%d%H%M%S}"
    copies = copies_of_default()
    with _stopped(), open_archive(source) as (tar, manifest):
        _check_version(manifest)
        if manifest.database != copies.kind:
            raise Impossible(
                f"The backup is of a database of the kind {manifest.database}, and DATABASE_URL names one of the kind "
                f"{copies.kind}. Nothing was changed."
            )
        if not replace and not is_empty():
            raise Conflict(
                "The console has people or clusters. Nothing was changed. With --replace the backup takes its place, "
                "and what is there now is kept under another name."
            )
        try:
            with scratch_folder(Path(settings.VAR_DIR)) as folder:
                unpack(source, tar, manifest, folder)
                fresh = copies.load(folder / DATABASE_MEMBER, stamp)
                try:
                    with default_named(fresh):
                        _check_rows(manifest)
                        call_command("migrate", interactive=False, verbosity=0)
                    with _aside(stamp) as aside:  # first: a base of the old database must never meet the new one
                        kept = copies.swap(fresh, stamp)
                except BaseException:
                    copies.discard(fresh)
                    raise
                if (folder / HISTORY).is_dir():
                    (folder / HISTORY).rename(Path(settings.VAR_DIR) / HISTORY)
        except OSError as error:
            raise Impossible(f"{settings.VAR_DIR}: {error.strerror or error}. Nothing was changed.") from None
    return manifest, [name for name in (kept, aside) if name]


@contextmanager
def _stopped() -> Iterator[None]:
    """Hold the lock that `./sluice up` holds while it runs in this folder."""
    path = Path(settings.VAR_DIR) / "run" / "up.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict("Sluice runs in this folder. Nothing was changed. Stop it, then restore again.") from None
        yield


def _check_version(manifest: BackupManifest) -> None:
    known = {f"{app}.{name}" for app, name in MigrationLoader(None).disk_migrations}
    unknown = sorted(set(manifest.migrations) - known)
    if unknown or _numbers(manifest.version) > _numbers(VERSION):
        evidence = f"; this one does not know the migration {unknown[0]}" if unknown else ""
        raise Impossible(
            f"The backup was made by version {manifest.version}, and this is {VERSION}{evidence}. Nothing was changed. "
            f"Restore it with version {manifest.version} or a later one."
        )


def _numbers(version: str) -> list[int]:
    try:
        return [int(part) for part in version.split(".")]
    except ValueError:
        raise Malformed(f"version is {version!r}; allowed: numbers with points, such as {VERSION}.") from None


def _check_rows(manifest: BackupManifest) -> None:
    found = row_counts()
    if found == manifest.rows:
        return
    table = min(name for name in found | manifest.rows if found.get(name) != manifest.rows.get(name))
    raise Malformed(
        f"The backup does not hold what its manifest says: {table} has {found.get(table, 'no table')} rows, and had "
        f"{manifest.rows.get(table, 'no table')}. Nothing was changed."
    )


@contextmanager
def _aside(stamp: str) -> Iterator[str]:
    """Move what was made of the replaced database into a folder of its own, and back where that is not replaced.

    Yields the folder's name, empty if there was nothing.
    """
    var_dir = Path(settings.VAR_DIR)
    aside = var_dir / f"replaced-{stamp}"
    present = [name for name in _OF_THE_MOMENT if (var_dir / name).exists()]
    if present:
        aside.mkdir(mode=0o700)
    for name in present:
        (var_dir / name).rename(aside / name)
    try:
        yield str(aside) if present else ""
    except BaseException:
        for name in present:
            (aside / name).rename(var_dir / name)
        if present:
            aside.rmdir()
        raise
