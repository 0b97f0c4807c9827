"""An archive of the classes that Spark's JVM loads at every start (class data sharing): parsed and linked once.

A start loads some 20,000 classes, for a third of its CPU time. The first JVM of an installation notes their names, and
a process of its own lays them down; later JVMs map the file. It is put in its place whole, its name says of which Java
and which jars it is, and the JVM itself refuses one that is not of its own making.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ClassArchive"]

_PREFIX = "classes-"
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")


class ClassArchive:
    """The archive in `folder` for the Java and the jars of this process."""

    def __init__(self, folder: Path, java: Path | None = None, jars: Path | None = None) -> None:
        self._folder, self._java = folder, java or _java()
        self.path = folder / f"{_PREFIX}{_digest(self._java, jars or _jars())}.jsa"
        self._names = self.path.with_suffix(".names")
        self._made = self.path.with_suffix(f".{os.getpid()}")
        self._is_over = self.path.is_file()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def java_options(self) -> str:
        """Options of a JVM: it uses the archive, or notes what belongs into one."""
        if self.path.is_file():
            return " ".join([f'-XX:SharedArchiveFile="{self.path}"', "-Xshare:auto", *_QUIET])
        return f'-XX:+IgnoreUnrecognizedVMOptions -XX:DumpLoadedClassList="{self._names}"'

    def look(self, spark: SparkSession) -> None:
        """Begin to lay down what the JVM of `spark` has loaded so far, or see whether that is done.

        A Java that cannot leaves no archive, and its starts are as long as before.
        """
        if self._process is None and not self._is_over:
            self._process = self._begun(spark)
        elif self._process is not None and (code := self._process.poll()) is not None:
            self._end(is_made=code == 0)

    def stop(self) -> None:
        """Give up what is not done."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._end(is_made=False)

    def _begun(self, spark: SparkSession) -> subprocess.Popen[bytes] | None:
        assert spark._jvm is not None
        classes = str(spark._jvm.java.lang.System.getProperty("java.class.path"))
        command = [str(self._java), "-Xshare:dump", "-XX:+UseSerialGC", *_QUIET, "-cp", classes]
        command += [f"-XX:SharedClassListFile={self._names}", f"-XX:SharedArchiveFile={self._made}"]
        nothing = subprocess.DEVNULL
        try:
            return subprocess.Popen(["nice", *command], stdin=nothing, stdout=nothing, stderr=nothing)
        except OSError:
            self._is_over = True
            return None

    def _end(self, *, is_made: bool) -> None:
        self._process, self._is_over = None, True
        with suppress(OSError):
            if is_made and self._made.is_file():
                for other in self._folder.glob(f"{_PREFIX}*.*"):
                    if other != self._made:
                        other.unlink(missing_ok=True)
                self._made.replace(self.path)
            self._made.unlink(missing_ok=True)


def _digest(java: Path, jars: Path) -> str:
    """Of the Java and the jars, by what tells them from others: names, sizes and times."""
    files = [java, *sorted(jars.glob("*.jar"))]
    told = [f"{file} {found.st_size} {found.st_mtime_ns}" for file in files for found in [file.stat()]]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _java() -> Path:
    home = os.environ.get("JAVA_HOME")
    return (Path(home) / "bin" / "java" if home else Path(shutil.which("java") or "java")).resolve()


def _jars() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent / "jars"
