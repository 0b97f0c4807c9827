"""Sentences: whatever kind the engine finds has one, every sentence is of such a kind, and what fills it is given."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from string import Formatter

import engine
from engine.words import admission
from engine.words.sentences import SENTENCES

ENGINE = Path(engine.__file__).parent
APPS = ENGINE.parent / "apps"
KINDS = {f"{subject}.{kind}" for subject, table in SENTENCES.items() for kind in table}


@cache
def modules() -> dict[str, ast.Module]:
    """The engine's modules by path, but for those of words, and the apps' that find facts themselves."""
    paths = [path for path in sorted(ENGINE.rglob("*.py")) if path.parent.name != "words"]
    paths += [path for path in sorted(APPS.rglob("*.py")) if " Fact(" in path.read_text()]
    return {str(path.relative_to(ENGINE.parent)): ast.parse(path.read_text()) for path in paths}


@cache
def nodes() -> list[ast.AST]:
    return [node for module in modules().values() for node in ast.walk(module)]


@cache
def texts() -> set[str]:
    """Every text of the modules that are no words."""
    return {node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def calls(*names: str) -> Iterator[ast.Call]:
    for node in nodes():
        if isinstance(node, ast.Call) and (getattr(node.func, "id", "") or getattr(node.func, "attr", "")) in names:
            yield node


def facts() -> Iterator[tuple[ast.Call, str]]:
    """Facts whose kinds are stated, findings of readers and notes of exports among them."""
    for call in calls("Fact"):
        chosen = [call.args[0].body, call.args[0].orelse] if isinstance(call.args[0], ast.IfExp) else call.args[:1]
        yield from ((call, kind.value) for kind in chosen if isinstance(kind, ast.Constant))
    for call in calls("of", "find"):
        subject = "exports" if "ExportNote" in ast.unparse(call.func) else "connectors"
        kind = call.args[3] if len(call.args) > 3 else call.args[1] if len(call.args) > 1 else None
        if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
            yield call, f"{subject}.{kind.value}"


def stems() -> set[str]:
    """Beginnings of kinds that are put together, as ``f"costream.{gap}"`` is."""
    made = {call.args[0].values[0] for call in calls("Fact") if isinstance(call.args[0], ast.JoinedStr)}
    return {stem.value for stem in made if isinstance(stem, ast.Constant)}


def fields_of(template: str) -> set[str]:
    names = (name for _, name, _, _ in Formatter().parse(template) if name)
    return {name.partition("[")[0].partition(".")[0] for name in names}


def test_every_kind_that_is_found_has_a_sentence() -> None:
    assert [(kind, ast.unparse(call)) for call, kind in facts() if kind not in KINDS] == []
    named = [call for call in calls("named_reason", "NamedGround") if call.args]
    kinds = [next((word.value for word in call.keywords if word.arg == "kind"), call.args[0]) for call in named]
    stated = {kind.value for kind in kinds if isinstance(kind, ast.Constant) and kind.value}
    assert len(stated) > 3 and stated <= set(admission._NAMED)


def test_every_sentence_is_of_a_kind_that_is_found() -> None:
    found = texts() | {f"{stem}{text}" for stem in stems() for text in texts()}
    assert sorted(KINDS - found) == []
    assert [kind for kind in admission._NAMED if kind.removesuffix("+") not in texts()] == []


def test_facts_give_what_their_sentences_are_filled_with() -> None:
    for call, kind in facts():
        subject, _, own = kind.partition(".")
        words, given = SENTENCES[subject][own], {word.arg for word in call.keywords}
        if isinstance(words, str) and None not in given:
            needed = {name for name in fields_of(words) if not name.isdecimal()}
            assert needed <= given, ast.unparse(call)
