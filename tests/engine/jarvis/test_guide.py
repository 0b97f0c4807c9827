"""The tables of docs/models/jarvis.md and the documents they describe agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.fields import FieldTable, ListOf
from engine.jarvis.partition import PROBLEM
from engine.jarvis.refined_config import RefinedAdaptation
from engine.jarvis.settings import AdaptationSettings
from engine.records import Record, record_fields

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "models" / "jarvis.md").read_text()


def rows(section: str) -> list[list[str]]:
    """Cells of a section's table, without its head."""
    text = PAGE.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return [line.strip("| ").split(" | ") for line in re.findall(r"^\| `.*$", text, re.MULTILINE)]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def fields(table: FieldTable | type[Record], within: str = "") -> list[str]:
    """Paths of a document's fields; settings have a table of their own."""
    if isinstance(table, FieldTable):
        kinds = {field.name: (field.kind, False) for field in table.fields}
        kinds = {
            name: (kind.item, True) if isinstance(kind, ListOf) else (kind, False) for name, (kind, _) in kinds.items()
        }
        inner = {name: kind if isinstance(kind, FieldTable) else None for name, (kind, _) in kinds.items()}
        listed = {name: is_list for name, (_, is_list) in kinds.items()}
    else:
        found = {name: field.record for name, field in record_fields(table).items()}
        inner = {name: None if record is AdaptationSettings else record for name, record in found.items()}
        listed = {name: field.is_list for name, field in record_fields(table).items()}
    paths = []
    for name, record in inner.items():
        path = f"{within}{name}{'[]' * (listed[name] and record is not None)}"
        paths += [path] if record is None else fields(record, f"{path}.")
    return paths


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("The closed form", PROBLEM),
        ("Settings", AdaptationSettings),
        ("Refined configurations", RefinedAdaptation),
    ],
)
def test_guide_describes_every_field_and_no_other(section, table):
    assert sorted(name for first, *_ in rows(section) for name in names(first)) == sorted(fields(table))


def test_guide_states_the_settings_defaults():
    sent: dict[str, str] = {}
    for first, defaults, *_ in rows("Settings"):
        sent |= dict(zip(names(first), defaults.replace("`", "").split(", "), strict=True))
    known = {
        name: f"{entry:g}" if isinstance(entry, float | int) else entry
        for name, entry in AdaptationSettings().to_dict().items()
    }
    assert sent == known | {"load_factors": "none"}
