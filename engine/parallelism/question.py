"""Question about parallelism: which operators, which numbers of subtasks, and what somebody states of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from engine.errors import DocumentError, Fault, suggestion
from engine.kinds import Number
from engine.parallelism.job import SOURCE, ScalableJob
from engine.parallelism.key_groups import MAX_GROUPS
from engine.records import ItemCount, Record, Words

__all__ = ["MAX_CHOICES", "ParallelismQuestion", "own_name"]

MAX_CHOICES = 16
_Count = Annotated[int, Number(least=1, most=MAX_GROUPS, whole=True)]


@dataclass(frozen=True)
class ParallelismQuestion(Record):
    """Operators and parallelisms that are asked about; what is left out is chosen."""

    TITLE: ClassVar[str] = "a question about parallelism"

    operators: Annotated[
        tuple[str, ...] | None, ItemCount(1), Words("names within the query; left out: all that can be scaled")
    ] = None
    parallelism: Annotated[
        tuple[_Count, ...] | None,
        ItemCount(1, MAX_CHOICES),
        Words("subtasks, beside what it has; left out: some about that"),
    ] = None
    restart_s: Annotated[
        Annotated[float, Number(least=0, most=86_400)] | None, Words("seconds that a restart takes, if they are known")
    ] = None
    partitions: Annotated[Mapping[str, _Count], Words("partitions that a source reads, by its operator")] = field(
        default_factory=dict
    )

    def stated(self, job: ScalableJob) -> ScalableJob:
        """The job with what the question states of it.

        Raises
        ------
        DocumentError
            With every fault: operators that the query does not have, or that cannot be scaled.
        """
        ids = {own_name(name, job.query): name for name in job.operators}
        faults = []
        for path, names in (("operators", self.operators or ()), ("partitions", tuple(self.partitions))):
            for k, name in enumerate(names):
                at = f"{path}[{k}]" if path == "operators" else f"{path}.{name}"
                if name not in ids:
                    allowed = suggestion(name, list(ids)) or f"; allowed: {', '.join(sorted(ids))}"
                    faults.append(Fault(at, f"{name!r} is no operator of {job.query}{allowed}"))
                elif path == "operators" and (grounds := job.grounds(ids[name])) is not None:
                    faults.append(Fault(at, f"{name!r} keeps its parallelism: {grounds}"))
                elif path == "partitions" and job.operators[ids[name]].feed != SOURCE:
                    faults.append(Fault(at, f"{name!r} is no source; allowed: sources"))
        if faults:
            raise DocumentError(faults, "question about parallelism")
        stated = {
            ids[name]: replace(job.operators[ids[name]], partitions=count) for name, count in self.partitions.items()
        }
        told = replace(job, operators={**job.operators, **stated})
        return told if self.restart_s is None else told.stated(self.restart_s)


def own_name(name: str, query: str) -> str:
    """Name of an operator within its query."""
    return name.removeprefix(f"{query}/")
