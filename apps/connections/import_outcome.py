"""Outcome of storing a look: what it made, changed and ended, and what was found on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction

from apps.connections.models import ImportedJob
from apps.core.errors import SluiceError
from engine.connectors.picture import Finding, FindingLevel

__all__ = ["ImportOutcome", "finding_document"]


@dataclass
class ImportOutcome:
    """Effects of storing a look, in the words of a document's import: `node n1`, `query orders`, `source clicks`."""

    created: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    jobs: list[ImportedJob] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def find(self, level: FindingLevel, code: str, subject: str, message: str) -> None:
        """Add a finding, unless it is there."""
        self.find_all([Finding(level, code, subject, message)])

    def find_all(self, findings: Iterable[Finding]) -> None:
        """Add findings that are not there."""
        self.findings += [finding for finding in findings if finding not in self.findings]

    def attempt(self, change: Callable[[], object], code: str, subject: str) -> None:
        """Make a change that other things may stand against; then it is a finding, and the rest is stored."""
        try:
            with transaction.atomic():
                change()
        except SluiceError as error:
            self.find("warning", code, subject, error.message)

    def as_dict(self) -> dict[str, Any]:
        """As the job's result shows it."""
        names = [job.query.name for job in self.jobs]
        return {"created": self.created, "updated": self.updated, "ended": self.ended, "queries": names}


def finding_document(finding: Finding) -> dict[str, str]:
    """A finding as it is kept and shown."""
    names = ("level", "code", "subject", "message")
    return {name: getattr(finding, name) for name in names}
