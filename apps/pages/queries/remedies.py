"""Facts of a query's remedies for their page: a line for each, what it does to others, and what was tried in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from apps.estimates.choices import DecidedBy
from apps.estimates.models import ObjectiveStatus
from apps.jobs.models import Job
from apps.planning.remedies import KeptRemedies, remedies_job, remedies_latest
from apps.planning.remedy_parts import RemediesSeen, RemedyPart, remedies_seen
from apps.queries.choices import ObjectiveState
from apps.queries.masks import OTHER
from apps.queries.models import Query
from apps.ui.numbers import MISSING, seconds
from engine.remedies.answer import QueryRemedies, Remedy, RemedyEffect
from engine.words import counted, duration_words, listed

__all__ = ["KIND_LABELS", "RemediesFacts", "RemedyLine", "best_remedy_words"]

KIND_LABELS = {
    "move": "Moving operators",
    "parallelism": "More subtasks",
    "plan": "Another plan",
    "add_node": "More nodes",
    "scale_rate": "Reading less",
    "stop": "Stopping others",
    "objective": "A looser objective",
}
_PREVIEWS = {
    "placement": "Preview moves",
    "scenario": "Preview scenario",
    "parallelism": "Preview parallelism",
    "plans": "Open plans",
}
_SHOWN = 12  # others of a remedy


@dataclass(frozen=True)
class RemedyLine:
    """A remedy, as the page shows it; `at` is when it was found."""

    remedy: Remedy
    at: datetime
    part: RemedyPart | None = None  #: to members of a team

    @property
    def kind(self) -> str:
        return KIND_LABELS[self.remedy.kind]

    @property
    def action(self) -> str:
        return _PREVIEWS[self.remedy.preview]

    @property
    def latency(self) -> str:
        return str(seconds(self.remedy.estimate_s))

    @property
    def interval(self) -> str:
        low, high = self.remedy.low_s, self.remedy.high_s
        return MISSING if low is None or high is None else f"{seconds(low)} to {seconds(high)}"

    @property
    def won(self) -> str:
        """Seconds won; of what never catches up that it does."""
        won_s = self.remedy.won_s
        if won_s is None:
            return "it catches up"
        return "none" if won_s <= 0.0 else str(seconds(won_s))

    @property
    def ready(self) -> str:
        """The time until it helps, from when it is done."""
        ready_s = self.remedy.ready_s
        if ready_s is None:
            return "not known"
        return "at once" if ready_s < 1.0 else f"after {duration_words(ready_s)}"

    @property
    def others(self) -> list[RemedyEffect]:
        """Others that change, those that it breaks first and those that it mends next."""
        first = dict.fromkeys(self.remedy.breaks, 0) | dict.fromkeys(self.remedy.mends, 1)
        return sorted(self.remedy.effects[1:], key=lambda effect: first.get(effect.query, 2))[:_SHOWN]

    @property
    def more(self) -> int:
        return max(0, len(self.remedy.effects) - 1 - _SHOWN)

    @property
    def effect(self) -> str:
        """Effect on everybody else, in a clause."""
        told = [
            f"breaks {_named(self.remedy.breaks)}" if self.remedy.breaks else "",
            f"mends {_named(self.remedy.mends)}" if self.remedy.mends else "",
        ]
        told = [text for text in told if text]
        changed = len(self.remedy.effects) - 1 + (self.part.others if self.part else 0)
        return " and ".join(told) or (
            f"no objective breaks; {changed} change" if changed > 0 else "nobody else changes"
        )


def _named(queries: Sequence[str]) -> str:
    """Queries in a row; those of other teams in a number."""
    own = [name for name in queries if name != OTHER]
    others = len(queries) - len(own)
    return listed([*own, f"{counted(others, 'query', 'queries')} of other teams"] if others else own)


class RemediesFacts:
    """The newest remedies of a query, and the job that finds the next."""

    def __init__(self, query: Query) -> None:
        self.query = query

    @cached_property
    def job(self) -> Job | None:
        """A job that is under way, or that failed last."""
        job = remedies_job(self.query)
        return None if job is None or job.state == "succeeded" else job

    @cached_property
    def kept(self) -> KeptRemedies | None:
        return remedies_latest(self.query)

    @cached_property
    def seen(self) -> RemediesSeen | None:
        """The remedies as the reader sees them."""
        return None if self.kept is None else remedies_seen(self.query, self.kept.answer)

    @property
    def answer(self) -> QueryRemedies | None:
        return None if self.seen is None else self.seen.answer

    @property
    def requests(self) -> list[RemedyPart]:
        """Texts by which members of a team may ask an operator of the cluster."""
        parts = (self.seen.parts if self.seen else None) or {}
        return [part for part in parts.values() if part.request and self.kept and not self.kept.is_stale]

    @cached_property
    def is_late_by_measurement(self) -> bool:
        """Whether it is measured late while its estimate holds."""
        if self.answer is None or self.answer.state != "holds":
            return False
        late = [ObjectiveState.BREACHED, ObjectiveState.AT_RISK]
        return ObjectiveStatus.objects.filter(
            query=self.query, state__in=late, decided_by=DecidedBy.MEASUREMENT
        ).exists()

    @property
    def lines(self) -> list[RemedyLine]:
        if self.kept is None or self.seen is None:
            return []
        parts = self.seen.parts or {}
        return [RemedyLine(row, self.kept.at, parts.get(row.id)) for row in self.seen.answer.remedies]

    @property
    def tried(self) -> list[tuple[str, str]]:
        """(kind, why it does not help) of what was tried in vain."""
        return [] if self.answer is None else [(KIND_LABELS[row.kind], str(row.why)) for row in self.answer.tried]

    @property
    def unknown(self) -> list[str]:
        return [] if self.answer is None else [str(text) for text in self.answer.unknown]


def best_remedy_words(answer: QueryRemedies) -> str:
    """The first remedy in a sentence; empty where there is none."""
    if not answer.remedies:
        return ""
    first = answer.remedies[0]
    helps = "What helps" if first.is_enough else "What helps in part"
    return f"{helps}: {str(first.title)[:1].lower()}{str(first.title)[1:]} ({seconds(first.estimate_s)})."
