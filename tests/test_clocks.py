"""No test asks for the time when it is imported: it would be minutes old when the test runs, or of another clock."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

_TESTS = Path(__file__).resolve().parent
_CLOCKS = {"datetime", "date", "dt", "time", "timezone"}
_QUESTIONS = {"now", "utcnow", "today", "time", "time_ns", "localtime", "gmtime"}
_OF_THE_RUN = {"tests/clock.py"}


def _asked(node: ast.AST) -> Iterator[int]:
    """Lines that ask for the time when the module is imported; bodies of functions run later, their defaults do not."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        if is_function and child not in (node.args, *getattr(node, "decorator_list", ())):
            continue
        if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and child.func.attr in _QUESTIONS:
            subject = child.func.value
            if (subject.attr if isinstance(subject, ast.Attribute) else getattr(subject, "id", "")) in _CLOCKS:
                yield child.lineno
        yield from _asked(child)


def test_no_test_asks_for_the_time_when_it_is_imported() -> None:
    found = []
    for path in sorted(_TESTS.rglob("*.py")):
        text, name = path.read_text(), str(path.relative_to(_TESTS.parent))
        if name not in _OF_THE_RUN and any(f"{question}(" in text for question in _QUESTIONS):
            found += [f"{name}:{line}" for line in _asked(ast.parse(text))]
    assert not found, f"{', '.join(found)}: ask `run_moment` of tests/clock.py, with the mark `moment`"


def test_questions_at_import_are_found_wherever_they_stand() -> None:
    text = (
        "NOW = timezone.now()\n"
        "def f(at=datetime.now(UTC)): return time.time()\n"
        "class C:\n    day = dt.date.today()\n"
        "@mark(time.time_ns())\ndef g(): now()\n"
        "late = lambda: timezone.now()\n"
        "early = lambda at=time.time(): at\n"
    )
    assert list(_asked(ast.parse(text))) == [1, 2, 4, 5, 8]
