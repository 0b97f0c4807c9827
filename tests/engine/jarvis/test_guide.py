"""The tables of docs/models/jarvis.md and the documents they describe agree."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.jarvis.partition import PartitionProblem
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


def fields(table: type[Record], within: str = "") -> list[str]:
    """Paths of a document's fields; settings have a table of their own."""
    paths = []
    for name, field in record_fields(table).items():
        record = None if field.record is AdaptationSettings else field.record
        path = f"{within}{name}{'[]' * (field.is_list and record is not None)}"
        paths += [path] if record is None else fields(record, f"{path}.")
    return paths


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("The closed form", PartitionProblem),
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
