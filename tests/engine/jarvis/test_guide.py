"""The tables of docs/models/jarvis.md and the documents they describe agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.fields import FieldTable, ListOf
from engine.jarvis.partition import PROBLEM
from engine.jarvis.refined_config import REFINED_CONFIG
from engine.jarvis.settings import SETTINGS, AdaptationSettings

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "models" / "jarvis.md").read_text()


def rows(section: str) -> list[list[str]]:
    """Cells of a section's table, without its head."""
    text = PAGE.split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return [line.strip("| ").split(" | ") for line in re.findall(r"^\| `.*$", text, re.MULTILINE)]


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def fields(table: FieldTable, within: str = "") -> list[str]:
    """Paths of a table's fields; settings have a table of their own."""
    result = []
    for field in table.fields:
        listed = isinstance(field.kind, ListOf)
        kind = field.kind.item if isinstance(field.kind, ListOf) else field.kind
        path = f"{within}{field.name}{'[]' * (listed and isinstance(kind, FieldTable))}"
        result += fields(kind, f"{path}.") if isinstance(kind, FieldTable) and kind is not SETTINGS else [path]
    return result


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("The closed form", PROBLEM),
        ("Settings", SETTINGS),
        ("Refined configurations", REFINED_CONFIG),
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
