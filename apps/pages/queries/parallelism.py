"""Facts of a query's parallelisms for their page: a line for each, operators, and the export of the one chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django import forms
from django.http import QueryDict

from apps.exports.services import parallelism_export
from apps.jobs.models import Job
from apps.pages.exports import ExportFacts, export_facts
from apps.planning.parallelism import KeptPlan, parallelism_job, parallelism_latest
from apps.queries.models import Query
from apps.ui.numbers import MISSING, ratio, seconds
from engine.parallelism.answer import OperatorScaling, ParallelismChoice
from engine.parallelism.question import ParallelismQuestion
from engine.words import counted
from engine.words.capacity import rate_words

__all__ = ["ChoiceLine", "ParallelismFacts", "ParallelismForm"]


class ParallelismForm(forms.Form):
    """Operators that are scaled, and seconds of a restart."""

    operators = forms.MultipleChoiceField(
        label="Operators",
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: all that can be scaled.",
    )
    restart_s = forms.FloatField(
        label="Restart",
        required=False,
        min_value=0,
        max_value=86_400,
        help_text="Seconds from stopping to running again. Empty: as measured, or an assumed range.",
    )

    def __init__(self, query: Query, data: QueryDict | None = None) -> None:
        super().__init__(data)
        version = query.running_version
        names = [] if version is None else version.operators.values_list("name", flat=True)
        self.fields["operators"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]

    @property
    def question(self) -> Mapping[str, object]:
        """The question, as the service takes it."""
        asked = {"operators": self.cleaned_data["operators"] or None, "restart_s": self.cleaned_data["restart_s"]}
        return {name: value for name, value in asked.items() if value is not None}


@dataclass(frozen=True)
class ChoiceLine:
    """A parallelism, as the table shows it; `at` is when the plan was made."""

    choice: ParallelismChoice
    at: datetime
    name: str
    is_recommended: bool = False

    @property
    def sustained(self) -> str:
        choice = self.choice
        if choice.rate_per_s is not None:
            return rate_words(choice.rate_per_s)
        if choice.slots_short:
            return f"{counted(choice.slots_short, 'slot')} short"
        return "unknown" if choice.at_most_per_s is None else f"at most {rate_words(choice.at_most_per_s)}"

    @property
    def interval(self) -> str:
        low, high = self.choice.low_per_s, self.choice.high_per_s
        return MISSING if low is None or high is None else f"{rate_words(low)} to {rate_words(high)}"

    @property
    def gain(self) -> str:
        """The rate over that of now; a range where keys are only assumed to be even."""
        choice = self.choice
        if choice.gain is None:
            return MISSING
        if choice.gain_low is None or choice.gain - choice.gain_low < 0.005:
            return ratio(choice.gain)
        return f"{ratio(choice.gain_low)} to {ratio(choice.gain)}"

    @property
    def latency(self) -> str:
        return MISSING if self.choice.estimate_s is None else str(seconds(self.choice.estimate_s))

    @property
    def restart(self) -> str:
        restart = self.choice.restart
        if restart is None or not restart.high_s:
            return MISSING
        return f"{restart.low_s:.0f} to {restart.high_s:.0f} s, {restart.basis}"

    @property
    def back_at(self) -> datetime | None:
        """When nothing is late any more."""
        restart = self.choice.restart
        return None if restart is None or restart.back_s is None else self.at + timedelta(seconds=restart.back_s)

    @property
    def back_high(self) -> datetime | None:
        """The latest that may be; None where it may be never."""
        restart = self.choice.restart
        has_none = restart is None or restart.back_high_s is None
        return None if has_none or restart is None else self.at + timedelta(seconds=restart.back_high_s or 0.0)

    @property
    def remarks(self) -> list[str]:
        """Remarks for the last column."""
        choice = self.choice
        told = [
            "as it is" if choice.is_now else "",
            "if keys are even" if choice.skew == "assumed_even" else "",
            f"breaks {', '.join(choice.breaks)}" if choice.breaks else "",
            f"mends {', '.join(choice.mends)}" if choice.mends else "",
            f"unknown then: {', '.join(choice.unknown)}" if choice.unknown else "",
            *map(str, choice.notes),
        ]
        return [text for text in told if text]


class ParallelismFacts:
    """The newest plan of a query, and the job that makes the next."""

    def __init__(self, query: Query, chosen: str = "") -> None:
        self.query, self._chosen = query, chosen

    @cached_property
    def job(self) -> Job | None:
        """A job that is under way, or that failed last."""
        job = parallelism_job(self.query)
        return None if job is None or job.state == "succeeded" else job

    @cached_property
    def kept(self) -> KeptPlan | None:
        return parallelism_latest(self.query)

    @property
    def words(self) -> str:
        return "" if self.kept is None else self.kept.plan.words

    @cached_property
    def lines(self) -> list[ChoiceLine]:
        """Parallelisms, with what the autoscaler would do last."""
        kept = self.kept
        if kept is None:
            return []
        plan = kept.plan
        lines = [
            ChoiceLine(choice, kept.at, str(choice.parallelism), choice.parallelism == plan.recommended)
            for choice in plan.choices
        ]
        return [*lines, ChoiceLine(plan.autoscaler, kept.at, "Autoscaler")] if plan.autoscaler else lines

    @property
    def operators(self) -> tuple[OperatorScaling, ...]:
        return () if self.kept is None else self.kept.plan.operators

    @property
    def is_observed(self) -> bool:
        """Whether the autoscaler sees the busy time of any operator."""
        return any(row.autoscaler is not None for row in self.operators)

    @property
    def notes(self) -> list[str]:
        return [] if self.kept is None else [str(note) for note in self.kept.plan.notes]

    @property
    def question(self) -> ParallelismQuestion | None:
        return None if self.kept is None else self.kept.question

    @cached_property
    def export(self) -> ExportFacts | None:
        """Export of the chosen parallelism, else of the recommended one; None where there is nothing to export."""
        if self.kept is None:
            return None
        plan, told = self.kept.plan, self._chosen
        count = int(told) if told.isascii() and told.isdigit() and len(told) < 10 else plan.recommended
        choice = None if count is None else plan.choice(count)
        if choice is None or choice.is_now:
            return None
        base = f"/api/v1/queries/{self.query.pk}/parallelism/export"
        count = choice.parallelism
        return export_facts(lambda: parallelism_export(self.query, count), base, parallelism=count)
