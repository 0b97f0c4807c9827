"""Each line of docs/threat-model.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text()
COMPONENTS = {
    title: re.findall(r"^\| ([A-Z]) \| .* \| (.+) \|$", text, re.MULTILINE)
    for title, _, text in (part.partition("\n") for part in PAGE.split("\n## ")[1:])
    if "\n| | threat |" in text
}
each_component = pytest.mark.parametrize("title", COMPONENTS)


@each_component
def test_component_has_a_line_for_each_letter_of_stride(title: str) -> None:
    assert {letter for letter, _ in COMPONENTS[title]} == set("STRIDE")


@each_component
def test_every_line_names_tests_that_exist(title: str) -> None:
    for _, cell in COMPONENTS[title]:
        names = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", cell)
        assert names, cell
        for path, name in names:
            assert (ROOT / path).is_file(), path
            assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE), f"{path}::{name}"


def test_every_line_of_a_table_is_read() -> None:
    lines = [line for line in PAGE.splitlines() if re.match(r"\| [A-Z] \|", line)]
    assert len(lines) == sum(map(len, COMPONENTS.values()))
