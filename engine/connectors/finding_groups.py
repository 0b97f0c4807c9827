"""Findings folded by kind: what changes the answer first, the rest as counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

from engine.connectors.picture import Finding, FindingLevel
from engine.records import Record, Words

__all__ = ["FindingKind", "fold_findings", "is_decisive"]

#: Findings by which figures are unknown, intervals instead of numbers, or one of two counts: costs, edges, what runs.
_UNKNOWN_COSTS = {
    "batches_drift",
    "busy_time_missing",
    "contended",
    "counters_missing",
    "few_polls",
    "fixed_time_unknown",
    "no_events",
    "no_statistics",
    "poll_missing",
    "slots_contended",
    "still_measuring",
    "thread_looks_few",
}
_UNKNOWN_EDGES = {
    "arrivals_missing",
    "checkpoints_unmeasured",
    "exchange_open",
    "plan_unread",
    "selectivity_unknown",
    "window_unknown",
}
_CONTRADICTIONS = {
    "busy_beyond_time",
    "clocks_apart",
    "counts_differ",
    "held_back_unbusy",
    "offsets_below_read",
    "offsets_jump",
    "source_backpressured",
    "source_behind",
    "threads_contradict",
    "time_unaccounted",
}
_WHAT_RUNS = {
    "batch_job",
    "job_gone",
    "job_missing",
    "job_not_asked",
    "job_too_large",
    "job_twice",
    "jobs_missing",
    "operators_unplaced",
    "part_unreadable",
    "places_missing",
    "progress_idle",
    "progress_missing",
}
_DECISIVE = _UNKNOWN_COSTS | _UNKNOWN_EDGES | _CONTRADICTIONS | _WHAT_RUNS
_LEVELS = ("warning", "missing", "assumed", "found")


@dataclass(frozen=True)
class FindingKind(Record):
    """Findings of one code and level."""

    TITLE = "findings of one kind"

    level: FindingLevel
    code: str
    decisive: Annotated[bool, Words("Whether it changes the answer: an unknown cost or edge, a contradiction.")]
    count: Annotated[int, Words("How many findings are of it.")]
    subjects: Annotated[tuple[str, ...], Words("What they are about, each once.")]
    message: Annotated[str, Words("Sentence of the first.")]


def is_decisive(finding: Finding) -> bool:
    """Whether a finding changes the answer; what was merely found does not."""
    return finding.code in _DECISIVE and finding.level != "found"


def fold_findings(findings: Iterable[Finding]) -> tuple[FindingKind, ...]:
    """Kinds of findings: those that change the answer first, then by level, each in the order of its first finding."""
    by_kind: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        by_kind.setdefault((finding.level, finding.code), []).append(finding)
    kinds = [
        FindingKind(
            level=own[0].level,
            code=own[0].code,
            decisive=is_decisive(own[0]),
            count=len(own),
            subjects=tuple(dict.fromkeys(finding.subject for finding in own if finding.subject)),
            message=str(own[0].message),
        )
        for own in by_kind.values()
    ]
    return tuple(sorted(kinds, key=lambda kind: (not kind.decisive, _LEVELS.index(kind.level))))
