"""The checkpoint of the streaming query: where Spark keeps offsets, commits and the state of its operators.

It lies on any file system that Hadoop knows. Beside it stands ``run.json``: which checkpoint is in use, and the number
from which its batches count as steps, so that steps grow over checkpoints. The stream processor's own folder has a copy
of it, for the case that the other is lost.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.files import replace_file
from spark_jobs.variables import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Checkpoint", "NewerCheckpoint"]

_RUN = "run.json"
_MARGIN_STEPS = 10_000  # beyond the last noted step, where the checkpoint that knew the last is lost
_NOTED_EVERY = 1_000  # steps: far fewer than the margin
#: What Spark says of a state or a log that it cannot read, as parts of error classes and messages.
_BROKEN = (
    "CANNOT_LOAD_STATE_STORE",
    "STATE_STORE_",
    "STATE_DATA_SOURCE",
    "CANNOT_READ_CHECKPOINT",
    "MISSING_STATE_DIRECTORY",
    "MALFORMED_LOG_FILE",
    "Input length =",  # of bytes that are no text
    "Unrecognized token",  # of JSON
    "Unexpected character",
    "Unexpected end-of-input",
    "No content to map",
    "Invalid UUID string",
    "MISSING_METADATA_FILE",
    "checksum",
    "Checksum",
    "Corruption",
    "corrupt",
    "malformed",
    "Incomplete log file",
    "ZipException",
    "EOFException",
)
#: Causes that may pass: a state that cannot be read for one of them is whole.
_PASSING = (
    "No space left",
    "Disk quota",
    "ConnectException",
    "Connection refused",
    "UnknownHostException",
    "NoRouteToHost",
    "SocketTimeout",
    "StandbyException",
    "SafeMode",
    "Permission denied",
)


_PLAN = re.compile(r'"plan": ?"(\d+)"')  # in an offset of `spark_jobs.input.source`


class NewerCheckpoint(RuntimeError):
    """A later release wrote the state."""


@dataclass
class Checkpoint:
    """One checkpoint, in use by one driver."""

    root: HadoopFolder
    folder: Path  #: of the stream processor
    run: int = 0
    base: int = 0  #: batch n of it is step base + n + 1
    message: str = ""  #: what became of the one before, in words
    noted: int = -1  #: the last step in ``run.json``

    @classmethod
    def open(cls, root: HadoopFolder, folder: Path) -> Checkpoint:
        """The checkpoint to go on from.

        Parameters
        ----------
        root
            Folder of checkpoints.
        folder
            Of the stream processor, which holds the copy of ``run.json``.

        Raises
        ------
        NewerCheckpoint
        """
        facts = _noted_facts(root.read(_RUN))
        if facts is not None and facts["format"] > FORMAT:
            raise NewerCheckpoint(
                f"the state in {root.name} is of a newer release (format {facts['format']}; this one reads up to "
                f"{FORMAT}): install that release again, or move the folder away to begin without open windows"
            )
        copy = folder / _RUN
        facts = facts or _noted_facts(copy.read_text(errors="replace") if copy.is_file() else None)
        if facts is None:
            made = cls(root, folder)
        else:
            made = cls(root, folder, facts["run"], facts["base"], noted=facts["step"])
            if made.last_batch() < 0 and facts["step"] > made.base:
                made.base, made.message = facts["step"] + _MARGIN_STEPS, _LOST
        made.note(max(made.base, made.noted))
        return made

    @property
    def path(self) -> str:
        return self.root.child(self._name)

    @property
    def _name(self) -> str:
        return f"checkpoint-{self.run}"

    def last_batch(self) -> int:
        """The last batch that Spark has committed; -1 before the first."""
        names = self.root.names(f"{self._name}/commits")
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def last_plan(self) -> int:
        """Number of the newest plan that a batch goes by, ended or not; 0 before the first."""
        offsets = f"{self._name}/offsets"
        names = [name for name in self.root.names(offsets) if name.isdigit()]
        text = self.root.read(f"{offsets}/{max(names, key=int)}") if names else None
        return max((int(number) for number in _PLAN.findall(text or "")), default=0)

    def last_step(self) -> int:
        return self.base + self.last_batch() + 1

    def committed(self, batch: int) -> None:
        """Spark has committed a batch: note its step now and then, since a crash leaves no time to."""
        step = self.base + batch + 1
        if step > self.base == self.noted or step >= self.noted + _NOTED_EVERY:
            self.note(step)

    def note(self, step: int) -> None:
        """Note how far steps have come."""
        text = json.dumps({"format": FORMAT, "run": self.run, "base": self.base, "step": step})
        self.root.write(_RUN, text)
        replace_file(self.folder / _RUN, text.encode())
        self.noted = step

    @staticmethod
    def is_broken_by(fault: str) -> bool:
        """Whether a query ended because its checkpoint cannot be read, and never will be. A full disk or a file system
        that does not answer is no fault of it. `fault` has all causes, without stack traces.
        """
        return any(part in fault for part in _BROKEN) and not any(part in fault for part in _PASSING)

    def successor(self, step: int) -> Checkpoint:
        """A new checkpoint in the place of one that cannot be read, which is kept aside until the next."""
        base = max(step, self.last_step()) + _MARGIN_STEPS
        made = Checkpoint(self.root, self.folder, self.run + 1, base, _PUT_ASIDE)
        made.note(made.base)
        self.root.delete(f"checkpoint-{self.run - 1}")
        return made


def _noted_facts(text: str | None) -> dict[str, Any] | None:
    """Facts of ``run.json``; None where a crash left it damaged or there is none."""
    try:
        facts = json.loads(text or "")
        return {name: int(facts[name]) for name in ("format", "run", "base", "step")}
    except (ValueError, KeyError, TypeError):
        return None


_LOST = (
    "the checkpoint is lost. What was committed stays; results of windows that were open will name the agents of which "
    "records are missing"
)
_PUT_ASIDE = (
    "the checkpoint could not be read five times and was put aside. What was committed stays; results of windows that "
    "were open will name the agents of which records are missing"
)


class HadoopFolder:
    """A folder by Hadoop's file systems: a local path, or any URI that the session's Hadoop knows."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.name = root
        self._jvm: Any = spark._jvm
        self._path = self._jvm.org.apache.hadoop.fs.Path(root)
        self._files = self._path.getFileSystem(spark._jsc.hadoopConfiguration())  # type: ignore[attr-defined]
        self._files.mkdirs(self._path)

    def child(self, name: str) -> str:
        return str(self._child(name).toString())

    def names(self, name: str) -> list[str]:
        """Names in a folder below; none where there is no such folder."""
        path = self._child(name)
        if not self._files.exists(path):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(path)]

    def read(self, name: str) -> str | None:
        path = self._child(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace a file. A crash in mid-way may leave none, never a part."""
        made = self._child(f".{name}.new")
        stream = self._files.create(made, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.delete(self._child(name), False)
        self._files.rename(made, self._child(name))

    def delete(self, name: str) -> None:
        self._files.delete(self._child(name), True)

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)
