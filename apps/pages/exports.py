"""Exports shown on pages: a decision or a proposal in terms of its engine, with files to download."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from apps.core.errors import SluiceError
from apps.ui.marks import Mark
from engine.exports.export import EngineExport, ExportedOperator, ExportNote, export_text

__all__ = ["ExportFacts", "export_facts"]

_ENGINES = {"flink": "Flink", "spark": "Spark"}
_FILES = (
    ("Everything, YAML", {"format": "yaml"}),
    ("Everything, JSON", {"format": "json"}),
    ("Patch", {"part": "patch"}),
    ("Patch that undoes it", {"part": "patch", "direction": "reverse"}),
)
_CALLS = (
    ("Call, JSON", {"part": "calls", "format": "json"}),
    ("Call that undoes it", {"part": "calls", "format": "json", "direction": "reverse"}),
)
_MARKS = {
    "lost": Mark("watch", "watch", "Cannot be expressed"),
    "program": Mark("info", "muted", "Only in the program"),
    "assumed": Mark("info", "muted", "Assumed"),
    "info": Mark("info", "muted", "To know"),
}


@dataclass(frozen=True)
class ExportFacts:
    """An export on a page; `base` is the address that its files are read from, `named` what it asks for besides."""

    export: EngineExport
    base: str
    named: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        return _ENGINES[self.export.engine]

    @property
    def operators(self) -> Sequence[ExportedOperator]:
        return self.export.operators

    @property
    def has_groups(self) -> bool:
        return any(getattr(row, "slot_sharing_group", None) for row in self.export.operators)

    @property
    def notes(self) -> list[tuple[Mark, ExportNote]]:
        """Notes, those on what gets lost first."""
        order = list(_MARKS)
        return [(_MARKS[note.level], note) for note in sorted(self.export.notes, key=lambda n: order.index(n.level))]

    @property
    def settings(self) -> str:
        """Settings as a file of configuration has them."""
        return export_text(dict(self.export.apply.settings), "yaml") if self.export.apply.settings else ""

    @property
    def files(self) -> list[tuple[str, str]]:
        """(label, address) of each file."""
        files = (*_FILES, *_CALLS) if self.export.apply.calls else _FILES
        return [(label, f"{self.base}?{urlencode({**self.named, **asked})}") for label, asked in files]


def export_facts(make: Callable[[], EngineExport], base: str, **named: str | int) -> ExportFacts | None:
    """Facts of the export that `make` gives; None where there is nothing to export."""
    try:
        return ExportFacts(make(), base, named)
    except SluiceError:
        return None
