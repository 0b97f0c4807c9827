"""Flink's jars, from the wheel of its Python API: the only form in which a package registry carries them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from launcher.engines.folders import EngineMissing, FetchFailed, engines_dir, filled_folder, require_space
from launcher.output import Terminal

__all__ = ["FLINK_VERSION", "fetch_flink", "find_flink", "require_flink"]

FLINK_VERSION = "2.3.0"
_PACKAGE = f"apache-flink-libraries=={FLINK_VERSION}"
_SHA256 = "38ece876553286b3a285cf344c2d2038f8a7ca10da5df54d5107250386d64151"
_NEEDED_BYTES = 800e6  # the wheel and its jars
#: What a session cluster with SQL and the reporter for Prometheus takes; the rest serves PyFlink and other reporters.
_WANTED = ("pyflink/lib/", "pyflink/plugins/metrics-prometheus/", "pyflink/LICENSE", "pyflink/NOTICE")


def find_flink() -> Path | None:
    """The folder with `lib` and `plugins`, or None."""
    folder = engines_dir() / f"flink-{FLINK_VERSION}"
    return folder if folder.is_dir() else None


def require_flink() -> Path:
    """The folder with `lib` and `plugins`.

    Raises
    ------
    EngineMissing
        It was never fetched.
    """
    if (folder := find_flink()) is None:
        raise EngineMissing(f"Flink is not in {engines_dir()}: ./sluice engines flink fetch gets it (329 MB, once)")
    return folder


def fetch_flink(console: Terminal) -> Path:
    """The folder with Flink's jars, downloaded by pip and checked against a known digest where it is not there yet.

    Raises
    ------
    FetchFailed
        No room on the disk, no network, or another file than the one that is known.
    """
    if (folder := find_flink()) is not None:
        return folder
    target = engines_dir() / f"flink-{FLINK_VERSION}"
    require_space(target.parent, _NEEDED_BYTES)
    with (
        tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as downloads,
        filled_folder(target) as folder,
    ):
        console.begin("flink", f"downloading {_PACKAGE} (329 MB)")
        wheel = _download(Path(downloads))
        console.begin("flink", f"unpacking into {target}")
        _unpack(wheel, folder)
    return target


def _download(folder: Path) -> Path:
    """The wheel, which pip shows its progress of and checks the digest of."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{_PACKAGE} --hash=sha256:{_SHA256}\n")
    options = ["--no-deps", "--no-cache-dir", "--disable-pip-version-check", "--require-hashes"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), "--requirement", str(wanted)]
    if subprocess.run(command, check=False).returncode:
        raise FetchFailed(
            f"{_PACKAGE} could not be downloaded; the lines above say why. Without a network connection, point pip to a"
            " mirror (PIP_INDEX_URL) or to a folder of wheels (PIP_FIND_LINKS); nothing was left behind"
        )
    return next(folder.glob("*.whl"))


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if entry.filename.startswith(_WANTED) and not entry.is_dir():
                path = folder / entry.filename.removeprefix("pyflink/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(entry))
