"""The guide of the agent names every command, field, option and column that there is."""

from __future__ import annotations

import re

import pytest

from agent.cli import _COMMANDS
from agent.collect.options import HOST_COLUMNS, OPTIONS, PROBE_COLUMNS, DrawnColumn, ProbedPeer
from agent.config import AgentConfig, ChildConfig, QueryConfig, RelayConfig, SourceConfig
from agent.settings import SettingsFile
from engine.klink.settings import RefinedSchedule, ScheduleSettings
from engine.records import Record, record_fields
from launcher.places import ROOT

GUIDE = (ROOT / "docs" / "agent.md").read_text()
NAMED = set(re.findall(r"`([\w.\[\]]+)`", GUIDE.replace("`[local]`", "`local`")))


RECORDS = (AgentConfig, SourceConfig, QueryConfig, RelayConfig, ChildConfig, SettingsFile, ProbedPeer)


@pytest.mark.parametrize("record", [*OPTIONS.values(), *RECORDS, ScheduleSettings, RefinedSchedule])
def test_every_field_is_named(record: type[Record]) -> None:
    assert set(record_fields(record)) <= NAMED


def test_defaults_of_scheduling_are_those_of_the_guide() -> None:
    told: dict[str, str] = {}
    section = GUIDE.split("### How queries share the core\n", 1)[1].split("\n## ", 1)[0]
    for first, defaults, *_ in (row.strip("| ").split(" | ") for row in re.findall(r"^\| `.*$", section, re.MULTILINE)):
        told |= dict(zip(re.findall(r"`(\w+)`", first), defaults.split(", "), strict=True))
    known = {
        name: f"{one:,}".removesuffix(".0") if name != "policy" else one
        for name, one in ScheduleSettings().to_dict().items()
    }
    assert told == known


def test_every_column_and_way_to_make_one_is_named() -> None:
    assert {*HOST_COLUMNS, *PROBE_COLUMNS, *record_fields(DrawnColumn)} <= NAMED


def test_every_command_is_named() -> None:
    assert set(re.findall(r"`\./sluice agent (\w+)", GUIDE)) == set(_COMMANDS)


@pytest.mark.parametrize("kind", OPTIONS)
def test_every_collector_has_a_section(kind: str) -> None:
    assert f"\n### {kind}" in GUIDE
