"""Sentences made of templates: one line, names escaped; and the filters that write numbers and names."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from django.template import engines

from apps.ui.sentences import sentence


def finding(**facts: object) -> str:
    defaults: dict[str, object] = {"cluster": None, "running_count": 1, "row_count": 1, "judged": 0, "held": 0}
    defaults |= {name: group() for name in ("breached", "risky", "unknown")}
    return sentence("pages/overview/sentences/finding.html", findings=SimpleNamespace(**{**defaults, **facts}))


def group(*names: str) -> SimpleNamespace:
    return SimpleNamespace(count=len(names), first=[row(name) for name in names])


def row(name: str) -> SimpleNamespace:
    return SimpleNamespace(query=SimpleNamespace(name=name), bound_s=10.0)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"running_count": 0}, "No query runs here yet."),
        ({"running_count": 2, "row_count": 0}, "2 queries have not been estimated yet."),
        (
            {"judged": 2, "held": 1, "breached": group("a")},
            "1 of 2 objectives hold. <b>a</b> is over its objective.",
        ),
        (
            {"judged": 2, "breached": group("a", "b")},
            "0 of 2 objectives hold. <b>a</b> and <b>b</b> are over their objectives.",
        ),
        (
            {"judged": 1, "risky": group("a<b"), "risky_high": "10.4 s"},
            "<b>a&lt;b</b> may go over its objective of 10\u00a0s: its interval reaches 10.4 s.",
        ),
        (
            {"judged": 1, "least": row("a"), "held": 1, "least_headroom": (5.0, 0.5)},
            "The objective holds. Least headroom: <b>5\u00a0s</b>, a (50% of its objective).",
        ),
    ],
)
def test_finding_is_one_line_that_agrees_with_its_numbers(facts: dict[str, object], expected: str) -> None:
    assert finding(**facts) == expected


def test_filters_write_numbers_with_nouns_and_names_in_a_row() -> None:
    template = engines["django"].from_string(
        '{% load ui %}{{ n|counted:"node" }}, {{ n|counted:"query,queries" }}; {{ names|listed }}; {{ names|listed:9 }}'
    )
    assert template.render({"n": 1, "names": ["a"]}) == "1 node, 1 query; a; a"
    assert template.render({"n": 2, "names": list("abcd")}) == "2 nodes, 2 queries; a, b and 2 more; a, b, c and d"
