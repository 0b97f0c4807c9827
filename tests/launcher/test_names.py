"""The name check: one small tree for each rule, and the repository itself where it follows all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.names import check_names


def findings(root: Path, files: dict[str, str]) -> list[str]:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return [str(finding) for finding in check_names(root, source=("app",), tests=("tests",))]


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("giving", "'giving' is a gerund"),
        ("rollout_moving", "'moving' is a gerund"),
        ("reported", "'reported' is a participle or an adverb"),
        ("given", "'given' is a participle or an adverb"),
        ("put_aside", "'aside' is a participle or an adverb"),
        ("quickly", "'quickly' is an adverb"),
        ("lineup", "the glossary says 'session, run queue, ready queue' instead of 'lineup'"),
        ("agent_lives", "the glossary says 'generation' instead of 'lives'"),
    ],
)
def test_module_that_is_no_noun_is_found(tmp_path: Path, name: str, fault: str) -> None:
    (finding,) = findings(tmp_path, {f"app/{name}.py": ""})
    assert finding.startswith(f"app/{name}.py:1: module {name!r}: {fault}")


@pytest.mark.parametrize(
    "name",
    ["scheduling", "mapping", "string", "key_ring", "provisioning", "planning", "feed", "family", "refined_config"],
)
def test_module_that_is_a_noun_passes(tmp_path: Path, name: str) -> None:
    assert findings(tmp_path, {f"app/{name}.py": ""}) == []


def test_package_is_checked_by_its_folder(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, {"app/hearing/__init__.py": "", "app/hearing/report.py": ""})
    assert finding.startswith("app/hearing/__init__.py:1: module 'hearing'")


def test_test_file_is_checked_without_its_prefix(tmp_path: Path) -> None:
    (finding,) = findings(tmp_path, {"tests/test_judging.py": "", "tests/test_report.py": ""})
    assert finding.startswith("tests/test_judging.py:1: module 'test_judging': 'judging' is a gerund")


def test_public_class_name_in_two_modules_is_found_at_both(tmp_path: Path) -> None:
    files = {"app/a.py": "class Outcome: ...\n", "app/b.py": "\n\nclass Outcome: ...\n"}
    assert findings(tmp_path, files) == [
        "app/a.py:1: class Outcome stands in app/b.py, too",
        "app/b.py:3: class Outcome stands in app/a.py, too",
    ]


def test_allowed_and_private_and_test_classes_may_repeat(tmp_path: Path) -> None:
    text = "class _Row: ...\nclass Meta: ...\n"
    assert findings(tmp_path, {"app/a.py": text, "app/b.py": text}) == []
    assert findings(tmp_path, {"app/c.py": "class Case: ...\n", "tests/test_c.py": "class Case: ...\n"}) == []


@pytest.mark.parametrize("word", ["What", "How", "Whoever", "Whose"])
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('"""{} it does."""\n', 1),
        ('\nclass A:\n    """{} it does."""\n', 2),
        ('\n\ndef run():\n    """{} it does."""\n', 3),
        ('async def run():\n    """\n    {} it does.\n    """\n', 1),
    ],
)
def test_docstring_that_opens_with_an_indirect_question_is_found(
    tmp_path: Path, word: str, text: str, line: int
) -> None:
    (finding,) = findings(tmp_path, {"app/a.py": text.format(word)})
    assert finding == f"app/a.py:{line}: a docstring begins with {word!r}; say what the thing is or does"


def test_docstring_that_says_what_the_thing_is_passes(tmp_path: Path) -> None:
    assert findings(tmp_path, {"app/a.py": '"""Guard of a rollout: how it compares."""\n'}) == []


@pytest.mark.parametrize("text", ["MOST_ROWS = 5", "_LEAST_S: float = 1.0", "A, MOST_B = 1, 2"])
def test_bound_that_is_no_max_or_min_is_found(tmp_path: Path, text: str) -> None:
    (finding,) = findings(tmp_path, {"app/a.py": f"\n{text}\n"})
    assert finding.startswith("app/a.py:2: constant ")
    (inner,) = findings(tmp_path, {"app/a.py": f"class A:\n    {text}\n"})
    assert inner.startswith("app/a.py:2: constant ")


def test_migrations_are_left_out(tmp_path: Path) -> None:
    assert findings(tmp_path, {"app/migrations/0001_moving.py": '"""What it does."""\nMOST_ROWS = 1\n'}) == []
