"""Name check of `./sluice lint`: modules, classes, constants and docstrings follow the glossary.

`python -m launcher.names [FOLDER ...]` lists what breaks a rule, one finding a line; without folders it reads the
source packages and the tests. It needs the standard library only.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NameFinding", "check_names", "main"]

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ("agent", "apps", "client", "console", "engine", "lab", "launcher", "spark_jobs", "workers")
TESTS = ("tests",)

#: Words in -ing that are nouns of the field or of everyday language.
NOUNS_IN_ING = frozenset(
    {
        "accounting", "binding", "building", "ceiling", "encoding", "forecasting", "forwarding", "grouping", "heading",
        "housekeeping", "learning", "listing", "mapping", "meeting", "monitoring", "padding", "ping", "planning",
        "polling", "pricing", "provisioning", "ranking", "resampling", "ring", "routing", "sampling", "scheduling",
        "setting", "sizing", "spelling", "staffing", "staging", "string", "thing", "throttling", "timing", "tracing",
        "training", "warning", "wording",
    }
)  # fmt: skip

#: Words in -ed and -ly that are no participles and no adverbs.
NOUNS_IN_ED = frozenset({"bed", "embed", "feed", "need", "seed", "shed", "speed", "testbed"})
NOUNS_IN_LY = frozenset({"anomaly", "assembly", "family", "reply", "supply"})

#: Participles that do not end in -ed, and adverbs that do not end in -ly.
IRREGULAR = frozenset(
    {
        "been", "begun", "broken", "brought", "built", "chosen", "done", "drawn", "driven", "felt", "forgotten",
        "found", "given", "gone", "grown", "heard", "held", "hidden", "kept", "known", "left", "lent", "lost", "made",
        "met", "paid", "said", "seen", "sent", "shown", "spoken", "spent", "stood", "taken", "taught", "thought",
        "told", "torn", "understood", "won", "worn", "written", "afar", "again", "ahead", "alone", "already", "anew",
        "apart", "aside", "away", "back", "elsewhere", "ever", "here", "meanwhile", "never", "often", "once",
        "otherwise", "seldom", "soon", "still", "there", "together", "twice",
    }
)  # fmt: skip

#: Words that the glossary replaces: the word, and what to say instead.
REPLACED = {
    "beginnings": "generation, restart",
    "bump": "migration pause, state transfer",
    "doubt": "statistics origin",
    "evidence": "statistics origin",
    "hand": "attention list",
    "hands": "attention list",
    "hungry": "starvation limit",
    "hunt": "local search",
    "life": "generation",
    "lineup": "session, run queue, ready queue",
    "lives": "generation",
    "news": "update, report",
    "seat": "session",
    "turns": "scheduling quantum, run queue",
    "walk": "local search",
}

#: Classes of one name that may stand in several modules, and why.
REPEATED_CLASSES = {
    "Command": "Django's management commands",
    "Meta": "Django's inner options",
    "Migration": "Django's migrations",
    "Evidence": "origin of a statistic: the engine's enum and the choices of its column",
    "Link": "a link of the fleet: the engine's, and its row",
    "Node": "a node of the fleet: the engine's, and its row",
    "NodePool": "a pool of nodes: the engine's, and its row",
    "Operator": "an operator of a query: the engine's, and its row",
    "StaticTable": "a table to join with: the engine's, and its row",
}

_INDIRECT = ("How", "What", "Whatever", "Who", "Whoever", "Whose")
_SUPERLATIVE = re.compile(r"_?(MOST|LEAST)_[A-Z0-9_]+")
_WORD = re.compile(r"[a-z]+")
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # where a statement holds others


@dataclass(frozen=True, order=True)
class NameFinding:
    """A name that breaks a rule, and where it stands."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def check_names(root: Path, source: Sequence[str] = SOURCE, tests: Sequence[str] = TESTS) -> list[NameFinding]:
    """Findings in the packages `source` and `tests` below `root`, by path and line."""
    classes: dict[str, list[tuple[str, int]]] = defaultdict(list)
    findings: list[NameFinding] = []
    for package in (*source, *tests):
        for file in sorted((root / package).rglob("*.py")):
            if "migrations" in file.parts:
                continue
            path = file.relative_to(root).as_posix()
            tree = ast.parse(file.read_text(), filename=path)
            findings += (NameFinding(path, 1, message) for message in _module_faults(file.relative_to(root)))
            for statement in _statements(tree):
                findings += (NameFinding(path, line, message) for line, message in _statement_faults(statement))
                if package in source and isinstance(statement, ast.ClassDef) and not statement.name.startswith("_"):
                    classes[statement.name].append((path, statement.lineno))
    findings += _repeated_classes(classes)
    return sorted(set(findings))


def _module_faults(path: Path) -> Iterator[str]:
    """Faults of the last name of a module's path: its own, or its package's where it is the `__init__`.

    The last word is the noun; words before it may be of any kind (`refined_config`), but no replaced ones.
    """
    name = path.parent.name if path.stem == "__init__" else path.stem
    words = _WORD.findall(name.removeprefix("test_"))
    for word in words:
        if word in REPLACED:
            yield f"module {name!r}: the glossary says {REPLACED[word]!r} instead of {word!r}"
    if words and words[-1] not in REPLACED and (fault := _noun_fault(words[-1])):
        yield f"module {name!r}: {fault}"


def _noun_fault(word: str) -> str:
    """The rule that a module's noun breaks; empty where it breaks none."""
    if word.endswith("ing") and word not in NOUNS_IN_ING:
        return f"{word!r} is a gerund; a module is a noun of what it holds"
    if word in IRREGULAR or (word.endswith("ed") and word not in NOUNS_IN_ED):
        return f"{word!r} is a participle or an adverb; a module is a noun of what it holds"
    if word.endswith("ly") and word not in NOUNS_IN_LY:
        return f"{word!r} is an adverb; a module is a noun of what it holds"
    return ""


def _statements(tree: ast.Module) -> list[ast.AST]:
    """The module and its statements, inner ones included; nothing that is checked stands in an expression."""
    statements: list[ast.AST] = [tree]
    for statement in statements:  # it grows meanwhile
        for block in _BLOCKS:
            statements += getattr(statement, block, ())
    return statements


def _statement_faults(statement: ast.AST) -> Iterator[tuple[int, str]]:
    """Faults of docstrings and constants."""
    if isinstance(statement, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = (ast.get_docstring(statement, clean=False) or "").split(maxsplit=1)[:1]
        if first and first[0] in _INDIRECT:
            line = 1 if isinstance(statement, ast.Module) else statement.lineno
            yield line, f"a docstring begins with {first[0]!r}; say what the thing is or does"
        yield from _constant_faults(statement.body)


def _constant_faults(body: Iterable[ast.stmt]) -> Iterator[tuple[int, str]]:
    for statement in body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        names = [part for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
        for name in names:
            if _SUPERLATIVE.fullmatch(name.id):
                yield statement.lineno, f"constant {name.id}: bounds are MAX_ and MIN_, limits of a request LIMIT"


def _repeated_classes(classes: dict[str, list[tuple[str, int]]]) -> Iterator[NameFinding]:
    for name, places in classes.items():
        if len(places) > 1 and name not in REPEATED_CLASSES:
            for path, line in places:
                others = ", ".join(sorted({other for other, _ in places} - {path})) or "the same module"
                yield NameFinding(path, line, f"class {name} stands in {others}, too")


def main() -> int:
    """Print all findings; 1 where there are any."""
    findings = check_names(ROOT, *([tuple(sys.argv[1:]), ()] if sys.argv[1:] else []))
    for finding in findings:
        print(finding)
    return int(bool(findings))


if __name__ == "__main__":
    raise SystemExit(main())
