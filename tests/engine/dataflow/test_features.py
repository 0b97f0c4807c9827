"""Features of executable operators: what an expression says of itself."""

from __future__ import annotations

from typing import Any

import pytest

from engine.dataflow.features import event_fields, operator_features
from tests.engine.dataflow.documents import pipeline


def features(*expressions: dict[str, Any]) -> dict[str, Any]:
    return operator_features(pipeline(*expressions).operators[-1])


@pytest.mark.parametrize(
    ("where", "function", "literal"),
    [
        ("i < 5", "<", "int"),
        ("5 < i", ">", "int"),
        ("x >= 0.5", ">=", "double"),
        ("s = 'a'", "==", "string"),
        ("starts_with(s, 'a')", "startswith", "string"),
        ("i < 5 and x > 1", "other", "int"),
    ],
)
def test_filter_says_its_comparison_and_literal(where: str, function: str, literal: str) -> None:
    assert features({"op": "filter", "where": where})["filter"] == {"function": function, "literal_type": literal}


def test_aggregate_says_its_function_and_types() -> None:
    window = {"op": "window", "size_s": 10}
    spec = {"op": "aggregate", "by": ["s"], "compute": {"m": "avg(x)"}}
    said = features(window, spec)
    assert said["aggregate"] == {"function": "mean", "argument_type": "double", "group_by_type": "string"}


def test_columns_count_by_the_type_of_their_values() -> None:
    source = pipeline({"op": "filter", "where": "true"}).source
    assert sum(event_fields(source.columns).values()) == len(source.columns)
