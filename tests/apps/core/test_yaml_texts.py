"""YAML of strangers: nothing is lost of it in silence, and nothing of it becomes large."""

from __future__ import annotations

import pytest

from apps.core.errors import Malformed
from apps.core.yaml_texts import read_yaml, read_yaml_documents


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("margin: 0.1\nmargin: 0.2\n", 'the key "margin" stands twice in one object at line 2, column 1'),
        ("teams:\n- {team: a, team: b}\n", 'the key "team" stands twice in one object at line 2, column 13'),
        ("a: {<<: {x: 1}, y: 2, y: 3}", 'the key "y" stands twice'),
        ('{"a": 1, "a": 1}', 'the key "a" stands twice'),
        ("a: 1\n---\nb: 2\n", "holds 2 documents; allowed: one"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
    ],
)
def test_what_would_be_lost_or_run_is_refused(text: str, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        read_yaml(text, "text")
    (fault,) = refused.value.faults
    assert fault.path == "text" and words in fault.message


def test_aliases_and_merged_mappings_are_written_out() -> None:
    text = "base: &base {x: 1, y: 2}\none: {<<: *base, y: 3}\ntwo: {<<: *base}\nbase again: *base\n"
    read = read_yaml(text, "text")
    assert (read["one"], read["two"]) == ({"x": 1, "y": 3}, {"x": 1, "y": 2}) and read["base again"] == read["base"]
    chain = "a: &a {x: 1}\nb: &b {<<: *a, y: 2}\nc: {<<: *b, x: 5}\nd: {<<: *b}\n"
    assert read_yaml(chain, "text")["d"] == {"x": 1, "y": 2}
    assert read_yaml("", "text") is None and read_yaml_documents("a: 1\n---\nb: 2\n", "text") == [{"a": 1}, {"b": 2}]
