"""Queries of a document in the words of the model: rates stay, gaps and unknown kinds are told, costs are nominal."""

from __future__ import annotations

from typing import Any

import pytest

from engine.document.elements import (
    AggregateFeatures,
    EventFields,
    FilterFeatures,
    Input,
    JoinFeatures,
    Operator,
    Window,
)
from engine.document.translation import stream_rates, translate_query, with_nominal_costs
from engine.query_graph.flow import nominal_flow

FIELDS = {"s": EventFields(2, 1, 1), "t": EventFields(1, 0, 0)}
KEEP = FilterFeatures("<=", "double")


def operator(name: str, kind: str, *inputs: tuple[str, float], **more: Any) -> Operator:
    entries = tuple(Input(source, selectivity, never_ran=True) for source, selectivity in inputs)
    return Operator(name, (), entries, kind=kind, query="q", **more)


@pytest.mark.parametrize(
    "window",
    [
        Window("time", "tumbling", 4.0),
        Window("time", "sliding", 4.0, 1.0),
        Window("count", "tumbling", 20.0),
        Window("count", "sliding", 20.0, 5.0),
    ],
)
def test_translated_operators_put_out_what_the_document_says(window: Window) -> None:
    plan = [
        operator("keep", "filter", ("s", 0.25), filter=KEEP),
        operator("meet", "join", ("keep", 0.2), ("t", 0.1), join=JoinFeatures("int"), window=window),
        operator("sum", "aggregate", ("meet", 0.05), aggregate=AggregateFeatures("mean", "int"), window=window),
        operator("out", "sink", ("sum", 1.0)),
    ]
    query = translate_query(plan, stream_rates(plan, {"s": 80.0, "t": 30.0}, 1.0), FIELDS)
    assert query.faults == () and not any(node.stands_for for node in query.graph.operators)
    assert nominal_flow(query.graph).out_eps[:3] == pytest.approx([20.0, 7.0, 0.35])
    assert query.owners == (0, 1, 2, 3, 0, 1)  # two sources nobody wrote down, beside their readers


def test_everything_the_model_misses_is_told_at_once() -> None:
    plan = [
        operator("keep", "filter", ("s", 0.5)),
        operator("meet", "join", ("keep", 1.0), ("t", 1.0)),
        operator("sum", "aggregate", ("meet", 0.1)),
    ]
    query = translate_query(plan, stream_rates(plan, {"s": 5.0, "t": 0.0}, 1.0), {"s": FIELDS["s"]})
    assert [fault.path for fault in query.faults] == [
        "operators[0].filter",
        "operators[1].join",
        "operators[1].window",
        "operators[2].aggregate",
        "operators[2].window",
        "operators[1].inputs[1].from",
        "operators[1].inputs[1].from",
    ]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (
            operator(
                "meet", "join", ("s", 1.0), ("s", 1.0), join=JoinFeatures("int"), window=Window("time", "tumbling", 2.0)
            ),
            "Operator meet reads 's' twice; the model knows different streams alone.",
        ),
        (
            operator(
                "sum",
                "aggregate",
                ("s", 0.1),
                aggregate=AggregateFeatures("mean", "int"),
                window=Window("count", "sliding", 10, 2.5),
            ),
            "Operator sum has a window of 10 events every 2.5; the model knows whole numbers of events.",
        ),
    ],
)
def test_what_the_corpus_cannot_hold_is_told(plan: Operator, words: str) -> None:
    assert [
        fault.message for fault in translate_query([plan], stream_rates([plan], {"s": 5.0}, 1.0), FIELDS).faults
    ] == [words]


def test_windows_with_gaps_stand_for_something_else() -> None:
    plan = [
        operator(
            "sum",
            "aggregate",
            ("s", 0.1),
            aggregate=AggregateFeatures("mean", "int"),
            window=Window("time", "sliding", 2.0, 5.0),
        )
    ]
    nodes = translate_query(plan, stream_rates(plan, {"s": 5.0}, 1.0), FIELDS).graph.operators
    assert nodes[0].stands_for == "windows that leave events between them out"


def test_operators_the_model_does_not_know_say_what_they_stand_for() -> None:
    plan = [
        operator("parse", "map", ("s", 3.0)),
        operator("same", "filter", ("parse", 0.5), filter=FilterFeatures("==", "int")),
        operator("both", "filter", ("same", 0.5), ("parse", 0.5), filter=KEEP),
        operator(
            "count",
            "aggregate",
            ("both", 0.1),
            aggregate=AggregateFeatures("count", "string"),
            window=Window("count", "tumbling", 10.0),
        ),
    ]
    query = translate_query(plan, stream_rates(plan, {"s": 5.0}, 1.0), FIELDS)
    words = [node.stands_for for node in query.graph.operators[:4]]
    assert words == [
        "a map",
        "a comparison by '=='",
        "a union of 2 streams",
        "an aggregation by 'count'",
    ]


def test_nominal_costs_fill_only_what_never_ran() -> None:
    known = Operator("a", (), (Input("s", 1.0, 7.0),), kind="filter", query="q")
    new = operator("b", "filter", ("a", 0.5), filter=KEEP)
    kept, filled = with_nominal_costs([known, new], {"s": 10.0}, 1.0)
    assert kept is known
    assert filled.never_ran and filled.inputs[0].cycles_per_event > 0
    assert filled.evidence is not None and filled.evidence.kind == "predicted"


def test_operator_bears_the_source_that_nobody_wrote_down() -> None:
    alone = operator("keep", "filter", ("s", 0.5), filter=KEEP)
    source, behind = operator("read", "source", ("s", 1.0)), operator("keep", "filter", ("read", 0.5), filter=KEEP)
    together = with_nominal_costs([source, behind], {"s": 10.0}, 1.0)
    cost = sum(op.inputs[0].cycles_per_event for op in together)
    assert with_nominal_costs([alone], {"s": 10.0}, 1.0)[0].inputs[0].cycles_per_event == pytest.approx(cost, rel=0.05)


def test_plans_that_no_model_takes_have_costs_all_the_same() -> None:
    plan = [operator("none", "join"), operator("three", "join", ("s", 1.0), ("t", 1.0), ("s", 1.0), ("none", 1.0))]
    costs = [entry.cycles_per_event for op in with_nominal_costs(plan, {}, 1.0) for entry in op.inputs]
    assert len(costs) == 4 and min(costs) > 0
