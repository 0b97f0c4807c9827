"""Sentences: whatever kind the engine finds has one, every sentence is of such a kind, and what fills it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from string import Formatter

import pytest

import engine
from engine.words import admission, connectors, costream, latency, placement, plans

ENGINE = Path(engine.__file__).parent
#: Functions that take a kind, and where among their arguments it may stand; the last one given counts.
CONNECTORS, ADMISSION = {"of": (1, 3), "find": (1, 3)}, {"named_reason": (0,), "NamedGround": (0,)}
TABLES: list[tuple[Mapping[str, tuple[int, ...]], Mapping[str, str]]] = [
    (CONNECTORS, connectors._SENTENCES),
    (ADMISSION, admission._NAMED),
    ({"remark": (0,)}, placement._REMARKS),
    ({"placement_reason": (0,)}, costream._SENTENCES),
    ({"StandingFact": (0,)}, latency._STANDINGS),
    ({"PlanFact": (0,)}, plans._CLAUSES),
]


@cache
def nodes() -> list[ast.AST]:
    """All that the engine's modules consist of, but for those of words."""
    modules = [path for path in sorted(ENGINE.rglob("*.py")) if path.parent.name != "words"]
    return [node for path in modules for node in ast.walk(ast.parse(path.read_text()))]


def calls(names: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[ast.Call, str]]:
    for node in nodes():
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", "") or getattr(node.func, "attr", "")
            if name in names and node.args:
                yield node, name


@cache
def texts() -> set[str]:
    """Every text of the engine's modules that are no words."""
    return {node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def fields_of(template: str) -> set[str]:
    names = (name for _, name, _, _ in Formatter().parse(template) if name is not None)
    return {name.partition("[")[0].partition(".")[0] for name in names}


@pytest.mark.parametrize(("names", "table"), TABLES, ids=[next(iter(names)) for names, _ in TABLES])
def test_every_kind_that_is_found_has_a_sentence(
    names: Mapping[str, tuple[int, ...]], table: Mapping[str, str]
) -> None:
    found = 0
    for call, name in calls(names):
        given = [call.args[place] for place in names[name] if place < len(call.args)]
        kinds = [keyword.value for keyword in call.keywords if keyword.arg == "kind"] or given[-1:]
        for kind in kinds:
            if isinstance(kind, ast.Constant) and kind.value:
                found += 1
                assert kind.value in table, ast.unparse(call)
    assert found > 3


@pytest.mark.parametrize("table", [table for _, table in TABLES], ids=[next(iter(names)) for names, _ in TABLES])
def test_every_sentence_is_of_a_kind_that_is_found(table: Mapping[str, str]) -> None:
    assert [kind for kind in table if kind.removesuffix("+") not in texts()] == []


def test_findings_give_what_their_sentences_are_filled_with() -> None:
    for call, _ in calls(CONNECTORS):
        if len(call.args) == 3 and isinstance(call.args[1], ast.Constant) and all(word.arg for word in call.keywords):
            needed = fields_of(connectors._SENTENCES[call.args[1].value])
            assert needed <= {word.arg for word in call.keywords}, ast.unparse(call)
