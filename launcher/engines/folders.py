"""Where engines lie: a folder that is filled once, whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.places import var_dir

__all__ = ["EngineMissing", "FetchFailed", "engines_dir", "filled_folder", "require_space"]


class EngineMissing(Exception):
    """The engine is not on this machine; the message says how to get it."""


class FetchFailed(Exception):
    """The engine could not be fetched; the message says why and what to do."""


def engines_dir() -> Path:
    """The folder of engines: SLUICE_ENGINES_DIR, else `engines` in the data folder; not made here."""
    return Path(os.environ.get("SLUICE_ENGINES_DIR") or var_dir() / "engines").absolute()


def require_space(folder: Path, needed_bytes: float) -> None:
    """Refuse to begin what the disk has no room for.

    Raises
    ------
    FetchFailed
        Less than `needed_bytes` are free where `folder` lies.
    """
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed_bytes:
        raise FetchFailed(
            f"{folder} has {free / 1e9:.1f} GB free; {needed_bytes / 1e9:.1f} GB are needed."
            " Make room, or name another folder in SLUICE_ENGINES_DIR"
        )


@contextmanager
def filled_folder(target: Path) -> Iterator[Path]:
    """A temporary folder that becomes `target` if the block ends well, and is removed otherwise.

    Of two processes that fill it at once, one wins; both find it filled.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True) as name:
        folder = Path(name) / target.name
        folder.mkdir()
        yield folder
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():
                raise
