r"""The regular expressions that RE2 and Java read alike."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.dataflow.expressions.patterns import PatternError, name_groups, portable_pattern


@pytest.mark.parametrize(
    ("pattern", "text", "names"),
    [
        (r"a.c$", r"a[^\n]c\z", ()),
        (r"\s+\S", r"[\t\n\f\r ]+[^\t\n\f\r ]", ()),
        (r"[\s\d-]", r"[\t\n\f\r 0-9-]", ()),
        (r"[[&^]", r"[\[\&\^]", ()),
        (r"[^a]\.\\", r"[^a]\.\\", ()),
        (r"(?P<a_b>x)(y)?(?:z{2,3}?)*", r"(x)(y)?(?:z{2,3}?)*", ("a_b", None)),
        (r"^(a|b)\w", r"^(a|b)[0-9A-Za-z_]", (None,)),
    ],
)
def test_pattern_spelled_differently_by_engines_is_rewritten(
    pattern: str, text: str, names: tuple[str | None, ...]
) -> None:
    assert portable_pattern(pattern) == (text, names)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(?=a)", "allowed: (…), (?:…), (?P<name>…)"),
        ("(?i)a", "allowed: (…)"),
        (r"(a)\1", r"\1 is not common"),
        (r"\bword\b", r"\b is not common"),
        (r"\p{L}", r"\p is not common"),
        (r"[\S]", r"\S is not common"),
        ("(a)*", "a group that captures is repeated"),
        ("(?:x(a))+", "a group that captures is repeated"),
        ("a**", "* repeats nothing"),
        ("a{2", "a repetition cannot be read"),
        ("a{3,2}", "a repetition cannot be read"),
        ("a{1001}", "up to 1000"),
        ("(a", "a group is not closed"),
        ("a)", r"allowed: \)"),
        ("a]", r"allowed: \]"),
        ("[]a]", "[] is empty"),
        ("[z-a]", "it cannot be read"),
        ("[a", "it ends too early"),
        ("a\\", "it ends too early"),
        ("(?P<a>x)(?P<a>y)", "two groups have the name 'a'"),
    ],
)
def test_uncommon_pattern_is_refused_with_the_allowed_form(pattern: str, says: str) -> None:
    with pytest.raises(PatternError) as caught:
        portable_pattern(pattern)
    assert says in str(caught.value)


def test_groups_are_named_for_arrow_only() -> None:
    assert name_groups(r"(a)(?:b)\((c)[(]") == r"(?P<g1>a)(?:b)\((?P<g2>c)[(]"


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=r"ab\dsw.[]()*+?{}1,|^$-P<>:", max_size=12))
def test_rewritten_pattern_is_portable_without_group_names(pattern: str) -> None:
    """Accepted patterns are read by RE2, and are portable themselves but for the end of the text."""
    try:
        text, names = portable_pattern(pattern)
    except PatternError:
        return
    assert portable_pattern(text.replace(r"\z", "$")).names == (None,) * len(names)
