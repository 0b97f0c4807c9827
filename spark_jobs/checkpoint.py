"""The checkpoint of the streaming query: where Spark keeps offsets, commits and the state of its operators.

It lies on any file system that Hadoop knows. Beside it stands ``run.json``: which checkpoint is in use, and the number
from which its batches count as steps, so that steps grow over checkpoints.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis

from agent.wire.broker import publish_committed
from spark_jobs.plans import INHERITED
from spark_jobs.variables import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Checkpoint", "NewerCheckpoint"]

_RUN = "run.json"
_MARGIN_STEPS = 10_000  # beyond the last known step, where the checkpoint that knew it is lost
#: What Spark says of a state or a log that it cannot read, as parts of error classes and messages.
_BROKEN = (
    "CANNOT_LOAD_STATE_STORE",
    "STATE_STORE_",
    "STATE_DATA_SOURCE",
    "CANNOT_READ_CHECKPOINT",
    "checksum",
    "Checksum",
    "Corruption",
    "corrupt",
    "malformed",
    "Incomplete log file",
    "does not exist",
    "ZipException",
    "EOFException",
)
_FULL = ("No space left", "Disk quota")


class NewerCheckpoint(RuntimeError):
    """A later release wrote the state."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, in use by one driver."""

    root: HadoopFolder
    run: int = 0
    base: int = 0  #: batch n of it is step base + n + 1
    messages: tuple[str, ...] = field(default=())  #: what was done about one before, in words

    @classmethod
    def open(cls, spark: SparkSession, folder: Path, root: str, client: redis.Redis) -> Checkpoint:
        """The checkpoint to go on from.

        Parameters
        ----------
        folder
            Of the stream processor, where earlier releases kept a state of their own.
        root
            Path or URI of the folder of checkpoints.

        Raises
        ------
        NewerCheckpoint
        """
        place = HadoopFolder(spark, root)
        told = place.read(_RUN)
        if told is None:
            made = _from_earlier_release(place, folder, client)
            made.note(made.base)
            _drop_earlier_state(folder)
            return made
        facts = json.loads(told)
        if facts["format"] > FORMAT:
            raise NewerCheckpoint(
                f"the state in {root} is of a newer release (format {facts['format']}; this one reads up to {FORMAT}): "
                "install that release again, or move the folder away to begin without open windows"
            )
        made = cls(place, facts["run"], facts["base"])
        if made.last_batch() < 0 and facts["step"] > made.base:
            made = replace(made, base=facts["step"] + _MARGIN_STEPS, messages=(_LOST,))
            made.note(made.base)
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

    def last_step(self) -> int:
        return self.base + self.last_batch() + 1

    def note(self, step: int) -> None:
        """Note how far steps have come."""
        facts = {"format": FORMAT, "run": self.run, "base": self.base, "step": step}
        self.root.write(_RUN, json.dumps(facts))

    @staticmethod
    def is_broken_by(fault: str) -> bool:
        """Whether a query ended because its checkpoint cannot be read; a full disk is no fault of it."""
        return any(part in fault for part in _BROKEN) and not any(part in fault for part in _FULL)

    def successor(self, step: int) -> Checkpoint:
        """A new checkpoint in the place of one that cannot be read, which is kept aside until the next."""
        made = Checkpoint(self.root, self.run + 1, max(step, self.last_step()) + _MARGIN_STEPS, (_BROKEN_WORDS,))
        made.note(made.base)
        self.root.delete(f"checkpoint-{self.run - 1}")
        return made


_LOST = (
    "the checkpoint is lost. What was committed stays; results of windows that were open will name the agents of which "
    "records are missing"
)
_BROKEN_WORDS = (
    "the checkpoint could not be read five times and was put aside. What was committed stays; results of windows that "
    "were open will name the agents of which records are missing"
)


class HadoopFolder:
    """A folder by Hadoop's file systems: a local path, or any URI that the session's Hadoop knows."""

    def __init__(self, spark: SparkSession, root: str) -> None:
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
        """Whole or not at all."""
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


# -- states of earlier releases


def _from_earlier_release(root: HadoopFolder, folder: Path, client: redis.Redis) -> Checkpoint:
    """A first checkpoint; where an earlier release kept a state, it goes on behind what that had worked off."""
    facts = _earlier_facts(folder / "states")
    if facts is None:
        return Checkpoint(root)
    publish_committed(client, {(agent, life): seq for agent, life, seq in facts["positions"]})
    for flow in facts["flows"]:
        kept = {name: flow.get(name) or 0 for name in ("watermark_us", "passed_us", "late", "early", "started_us")}
        client.hset(INHERITED, f"{flow['query']}|{flow['plan']}", json.dumps(kept))
    is_open = sum(1 for flow in facts["flows"] for _, window in flow["windows"] if window["revision"] < 0)
    words = (
        f"the state of an earlier release ends with step {facts['step']}: its {len(facts['positions'])} positions and "
        f"{len(facts['flows'])} watermarks are taken over; {is_open} windows that were open lack what came before, and "
        "their results will name the agents; sums of statistics begin anew"
    )
    return Checkpoint(root, 0, int(facts["step"]), (words,))


def _earlier_facts(states: Path) -> dict[str, Any] | None:
    """Facts of the newest state that can be read."""
    for path in sorted(states.glob("*.state"), reverse=True):
        try:
            with zipfile.ZipFile(io.BytesIO(path.read_bytes())) as file:
                facts: dict[str, Any] = json.loads(file.read("facts.json"))
        except (OSError, zipfile.BadZipFile, KeyError, ValueError):
            continue
        return facts
    return None


def _drop_earlier_state(folder: Path) -> None:
    """The query of an earlier release has other operators: its checkpoint is of no use."""
    for path in (folder / "states", folder / "warmup", *folder.glob("checkpoint-*")):
        shutil.rmtree(path, ignore_errors=True)
