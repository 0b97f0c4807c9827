"""Job of an engine that a query is: where it runs, how it was measured, and what became of it."""

from __future__ import annotations

from functools import cached_property

from apps.connections.choices import ConnectionState
from apps.connections.models import ImportedJob
from apps.connections.selectors import STALE_AFTER, imported_job_of, statistics_age
from apps.pages.connections.facts import EventLine, accuracy_url_of, event_lines, measured_inputs_of
from apps.pages.connections.looks import Look, MarkerLine, job_mark
from apps.pages.connections.tables import connection_address, connection_mark
from apps.pages.context import url_of
from apps.queries.models import Query
from engine.connectors.picture import Finding
from engine.words import duration_words

__all__ = ["ImportedFacts", "imported_facts"]

_WARNING_CODES = {"contended", "source_backpressured"}  # without which its numbers cannot be read


class ImportedFacts:
    """Origin of a query that is a job of an engine."""

    def __init__(self, job: ImportedJob) -> None:
        self.job = job
        self.connection = job.connection
        self.slug = job.connection.cluster.slug
        self.mark = connection_mark(self.connection)
        self.job_mark = job_mark(job.state)
        self.address = connection_address(self.connection)

    @property
    def url(self) -> str:
        return url_of("pages:connection", self.slug, self.connection.pk)

    @property
    def accuracy_url(self) -> str:
        return accuracy_url_of(self.job)

    @property
    def polls(self) -> int:
        return self.job.polls.count()

    @property
    def markers(self) -> MarkerLine | None:
        return Look(self.connection).markers_of(self.job)

    @property
    def is_away(self) -> bool:
        return self.connection.state in {ConnectionState.AWAY, ConnectionState.REFUSED}

    @property
    def age(self) -> str:
        """Age of its statistics in words; empty where nothing was measured yet."""
        age = statistics_age(self.job)
        return "" if age is None else duration_words(max(age.total_seconds(), 1.0))

    @cached_property
    def measured_inputs(self) -> tuple[int, int]:
        """(inputs with measured statistics, all inputs) of its version."""
        _, measured, inputs = measured_inputs_of([self.job.version_id] if self.job.version_id else []).get(
            self.job.version_id or 0, (0.0, 0, 0)
        )
        return measured, inputs

    @property
    def is_old(self) -> bool:
        age = statistics_age(self.job)
        return age is not None and age > STALE_AFTER and self.measured_inputs[0] > 0

    @property
    def events(self) -> list[EventLine]:
        return event_lines(self.job)[:5]

    @property
    def warnings(self) -> list[Finding]:
        """Warnings of the last look that its numbers cannot be read without, such as of contention."""
        rows = [row for row in self.connection.kept_findings if row.code in _WARNING_CODES]
        return [row for row in rows if row.job == self.job.name][:2]


def imported_facts(query: Query) -> ImportedFacts | None:
    """Origin of a query; None where no engine runs it."""
    job = imported_job_of(query)
    return ImportedFacts(job) if job is not None else None
