"""Rewritten plans: on concrete events each rule keeps the multiset of results; where meaning is unknown it refuses."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.document.elements import Operator
from engine.document.reader import OperatorRecord
from engine.plans.chains import find_cheapest_order, must_follow
from engine.plans.rewrites import RewriteSearch, Rewriting, rewrite
from engine.plans.rules import Dataflow
from lab.plans.samples import Function, PlanRunner

Event = dict[str, Any]
FIELDS = ("a", "b", "c")
WINDOW = {"policy": "time", "type": "tumbling", "size": 4}


def plan(*operators: dict[str, Any]) -> tuple[Operator, ...]:
    return tuple(OperatorRecord.parse(_read(operator)).operator() for operator in operators)


def _read(item: dict[str, Any]) -> dict[str, Any]:
    """Missing statistics are 1."""
    inputs = [{"selectivity": 1.0, "cycles_per_event": 1.0, **entry} for entry in item["inputs"]]
    return {**item, "inputs": inputs}


def op(name: str, kind: str, *sources: str, sel: float = 1.0, cost: float = 1.0, **more: Any) -> dict[str, Any]:
    inputs = [{"from": source, "selectivity": sel, "cycles_per_event": cost} for source in sources]
    stateless = {"stateless": True} if kind in ("filter", "map", "source") else {}
    return {"id": name, "kind": kind, "inputs": inputs, **stateless, **more}


# -- functions that do what a plan's operators state
def predicate(reads: Iterable[str], modulus: int) -> Function:
    names = tuple(reads)
    return lambda event, position: [event] if sum(event[name] for name in names) % modulus else []


def mapping(reads: Iterable[str], writes: Iterable[str], copies: int) -> Function:
    names, written = tuple(reads), tuple(writes)

    def run(event: Event, position: int) -> list[Event]:
        total = sum(event[name] for name in names)
        return [event | dict.fromkeys(written, total + k) for k in range(copies)]

    return run


def joining(keys: Iterable[str], window_s: float) -> Function:
    """An equi-join in tumbling windows; the pair holds the fields of both."""
    names = tuple(keys)
    seen: tuple[dict[Any, list[Event]], dict[Any, list[Event]]] = (defaultdict(list), defaultdict(list))

    def run(event: Event, position: int) -> list[Event]:
        key = (event["t"] // window_s, *(event[name] for name in names))
        seen[position][key].append(event)
        return [{**event, **other, "t": max(event["t"], other["t"])} for other in seen[1 - position][key]]

    return run


def results(operators: Iterable[Operator], make: Callable[[], dict[str, Function]], events: list[Any]) -> Counter[Any]:
    runner = PlanRunner(tuple(operators), make())
    result = [item for source, event in events for _, item in runner.push(source, event)]
    return Counter(tuple(sorted(item.items())) for item in result)


def check(
    operators: tuple[Operator, ...], make: Callable[[], dict[str, Function]], events: list[Any], **more: Any
) -> Rewriting:
    """Every plan the rules reach, cheaper or not, gives the results of the first."""
    rates, hop = more.get("rates", {}), more.get("hop_cycles", 0.0)
    expected = results(operators, make, events)
    sources = {e.source: 1.0 for operator in operators for e in operator.inputs}
    for variant in RewriteSearch(sources | rates, hop, 500).run(Dataflow(operators)):
        assert results(variant.operators, make, events) == expected, [step.words for step in variant.steps]
    return rewrite(operators, **more)


# -- properties
steps = st.lists(
    st.tuples(
        st.sampled_from(("filter", "map")),
        st.lists(st.sampled_from(FIELDS), min_size=1, max_size=2, unique=True),
        st.lists(st.sampled_from(FIELDS), max_size=2, unique=True),
        st.sampled_from((0.2, 0.5, 0.9)),
        st.sampled_from((1.0, 5.0, 40.0)),
        st.integers(1, 2),
    ),
    min_size=2,
    max_size=5,
)
streams = st.lists(st.fixed_dictionaries({name: st.integers(0, 5) for name in FIELDS}), min_size=5, max_size=30)


@settings(max_examples=120, deadline=None)
@given(steps, streams, st.sampled_from((0.0, 0.5)))
def test_reordered_or_fused_chain_gives_the_same_results(chain: Any, stream: list[Event], hop: float) -> None:
    operators, functions, above = [op("in", "source", "s", writes=list(FIELDS))], {}, "in"
    functions["in"] = lambda event, position: [event]
    for i, (kind, reads, writes, sel, cost, copies) in enumerate(chain):
        name = f"{kind}{i}"
        if kind == "filter":
            operators.append(op(name, kind, above, sel=sel, cost=cost, reads=reads))
            functions[name] = predicate(reads, i + 2)
        else:
            operators.append(op(name, kind, above, sel=float(copies), cost=cost, reads=reads, writes=writes))
            functions[name] = mapping(reads, writes, copies)
        above = name
    check(plan(*operators), lambda: functions, [("s", event) for event in stream], hop_cycles=hop)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 5)), max_size=40))
def test_filter_below_a_join_gives_the_same_results(drawn: list[tuple[int, int, int]]) -> None:
    operators = plan(
        op("left", "source", "l", writes=["k", "x"]),
        op("right", "source", "r", writes=["k", "y"]),
        op("match", "join", "left", "right", sel=1.5, cost=3, window=WINDOW, reads=["k"], writes=[]),
        op("on-x", "filter", "match", sel=0.3, cost=2, reads=["x"]),
        op("on-y", "filter", "on-x", sel=0.5, cost=1, reads=["y"]),
        op("on-k", "filter", "on-y", sel=0.5, cost=1, reads=["k"]),
        op("on-both", "filter", "on-k", sel=0.5, cost=9, reads=["x", "y"]),
    )

    def functions() -> dict[str, Function]:
        keep: Function = lambda event, position: [event]  # noqa: E731
        filters = {f"on-{name}": predicate(name, 2) for name in "xyk"}
        return {"left": keep, "right": keep, "match": joining("k", 4), "on-both": predicate("xy", 3), **filters}

    events = [("lr"[side], {"t": i // 3, "k": key, "xy"[side]: value}) for i, (side, key, value) in enumerate(drawn)]
    result = check(operators, functions, events)
    below = {str(step.words) for variant in result.plans for step in variant.steps if "below join" in str(step.words)}
    assert {"filter `on-x` moved below join `match`", "filter `on-y` moved below join `match`"} <= below
    assert any("may come from either side" in str(refusal.why) for refusal in result.refused)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=36),
    st.booleans(),
)
def test_exchanged_joins_give_the_same_results(drawn: list[tuple[int, int, int]], one_key: bool) -> None:
    second = "k" if one_key else "q"
    operators = plan(
        op("a", "source", "sa", writes=sorted({"k", second, "x"})),
        op("b", "source", "sb", writes=["k", "y"]),
        op("c", "source", "sc", writes=[second, "z"]),
        op("ab", "join", "a", "b", sel=4.0, cost=3, window=WINDOW, reads=["k"], writes=[]),
        op("abc", "join", "ab", "c", sel=0.1, cost=1, window=WINDOW, reads=[second], writes=[]),
    )
    events = []
    for i, (which, key, other) in enumerate(drawn):
        event = {"t": i // 4, "k": key, second: key if one_key else other, "xyz"[which]: i}
        if which == 1 and not one_key:
            event.pop("q")
        if which == 2 and not one_key:
            event.pop("k")
        events.append((("sa", "sb", "sc")[which], event))

    def functions() -> dict[str, Function]:
        names = {name: (lambda event, position: [event]) for name in "abc"}
        return {**names, "ab": joining("k", 4), "abc": joining([second], 4)}

    result = check(operators, functions, events, rates={"sa": 2.0, "sb": 5.0, "sc": 1.0})
    assert [step.rule for variant in result.plans for step in variant.steps]
    assert all("independence" in str(words) for variant in result.plans for words in variant.assumed)
    assert all(operator.evidence and operator.evidence.kind == "assumed" for operator in result.plans[0].operators[-2:])


# -- the cheapest order is the cheapest
@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(("filter", "map")), st.floats(0.05, 2.0), st.floats(0.1, 50.0)),
        min_size=2,
        max_size=6,
    )
)
def test_order_of_a_chain_is_optimal(drawn: list[tuple[str, float, float]]) -> None:
    names = [
        op(
            f"o{i}",
            kind,
            f"o{i - 1}" if i else "s",
            sel=min(sel, 1.0) if kind == "filter" else sel,
            cost=cost,
            reads=[FIELDS[i % 3]],
            writes=[FIELDS[(i + 1) % 3]] if kind == "map" else [],
        )
        for i, (kind, sel, cost) in enumerate(drawn)
    ]
    chain = plan(*names)
    after = must_follow(chain)

    def cost(order: tuple[int, ...]) -> float:
        rate, total = 1.0, 0.0
        for i in order:
            total += rate * chain[i].inputs[0].cycles_per_event
            rate *= chain[i].inputs[0].selectivity
        return total

    legal = [
        o
        for o in itertools.permutations(range(len(chain)))
        if all(o.index(i) < o.index(j) for j in range(len(chain)) for i in after[j])
    ]
    result = find_cheapest_order(chain)
    order = tuple(next(i for i, op in enumerate(chain) if op is operator) for operator in result.operators)
    assert cost(order) == pytest.approx(min(map(cost, legal)))
    assert not result.capped


# -- what is not stated is not guessed
CHAIN = (
    op("in", "source", "s", writes=["a", "b"]),
    op("parse", "map", "in", cost=10, reads=["a"], writes=["c"]),
    op("rules", "filter", "parse", sel=0.1, reads=["a"]),
)


def changed(name: str, **fields: Any) -> tuple[Operator, ...]:
    return plan(*({**item, **fields} if item["id"] == name else item for item in CHAIN))


def refusals(operators: tuple[Operator, ...], **more: Any) -> str:
    return "\n".join(refusal.words for refusal in rewrite(operators, **more).refused)


def test_filter_moves_before_maps_that_it_does_not_depend_on() -> None:
    (result,) = rewrite(plan(*CHAIN)).plans
    assert [operator.id for operator in result.operators] == ["in", "rules", "parse"]
    assert str(result.steps[0].words) == "filter `rules` moved before `parse`"
    assert result.cost_cps == pytest.approx(1 + 1 + 0.1 * 10)
    assert rewrite(plan(*CHAIN)).cost_cps == pytest.approx(12)


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("parse", {"writes": None}, "`rules` is not moved below `parse`: what parse writes is not stated"),
        ("rules", {"reads": None}, "`rules` is not moved below `parse`: what rules reads is not stated"),
        ("rules", {"reads": ["c"]}, "`rules` is not moved below `parse`: it reads `c`, which parse writes"),
        ("parse", {"stateless": None}, "whether parse keeps state is not stated"),
        ("parse", {"stateless": False}, "parse keeps state"),
        ("parse", {"kind": "aggregate"}, "parse is an aggregate"),
        ("parse", {"kind": None}, "what kind of operator parse is is not stated"),
        ("parse", {"window": {"policy": "count", "type": "tumbling", "size": 100}}, "parse counts events in a window"),
        ("rules", {"stateless": False}, "`rules` is not moved below `parse`: rules keeps state"),
    ],
)
def test_operators_of_unknown_meaning_are_not_rewritten(name: str, fields: dict[str, Any], why: str) -> None:
    operators = changed(name, **{key: value for key, value in fields.items() if value is not None})
    gone = {key for key, value in fields.items() if value is None}
    operators = tuple(_without(operator, gone) if operator.id == name else operator for operator in operators)
    result = rewrite(operators)
    assert not result.plans
    assert why in refusals(operators)


def _without(operator: Operator, names: set[str]) -> Operator:
    from dataclasses import replace

    return replace(operator, **dict.fromkeys(names))


def test_stream_read_by_others_is_not_fused_away() -> None:
    operators = plan(*CHAIN, op("copy", "sink", "parse"))
    assert not rewrite(operators).plans
    assert "rules and copy read parse, and all of them would get less" in refusals(operators)


def test_fusion_needs_the_cost_of_a_queue_and_one_core() -> None:
    operators = changed("rules", reads=["c"])
    assert "the cycles that a queue between two operators costs are not stated" in refusals(operators)
    (result,) = rewrite(operators, hop_cycles=0.4).plans
    assert [operator.id for operator in result.operators] == ["in", "parse+rules"]
    fused = result.operators[-1]
    assert fused.inputs[0].cycles_per_event == pytest.approx(10.6)
    assert (fused.inputs[0].selectivity, fused.kind, fused.reads) == (0.1, "map", ("a", "c"))
    apart = plan(
        *({**item, "node": name} for item, name in zip(({**i} for i in _plain(operators)), "xyz", strict=True))
    )
    assert "they run on different cores" in refusals(apart, hop_cycles=0.4)


def _plain(operators: tuple[Operator, ...]) -> list[dict[str, Any]]:
    from engine.document.export import operator_document

    return [operator_document(operator) for operator in operators]


def test_joins_with_sliding_windows_or_unstated_fields_keep_their_order() -> None:
    sliding = {"policy": "time", "type": "sliding", "size": 4, "slide": 1}
    joins = [
        op("a", "source", "sa", writes=["k", "x"]),
        op("b", "source", "sb", writes=["k", "y"]),
        op("c", "source", "sc"),
        op("ab", "join", "a", "b", window=sliding, reads=["k"], writes=[]),
        op("abc", "join", "ab", "c", window=WINDOW, reads=["k"], writes=[]),
        op("on-x", "filter", "abc", sel=0.1, reads=["x"]),
    ]
    said = refusals(plan(*joins))
    assert "which events meet depends on the order" in said
    assert "which fields the events of c hold is not stated" in said


def test_limit_of_rewritten_plans_is_reported() -> None:
    sources = [op(f"s{i}", "source", f"in{i}", writes=["k", f"x{i}"]) for i in range(4)]
    one = {"window": WINDOW, "reads": ["k"], "writes": []}
    pairs = [("s0", "s1"), ("j1", "s2"), ("j2", "s3")]
    operators = plan(*sources, *(op(f"j{i}", "join", *pair, sel=0.5, **one) for i, pair in enumerate(pairs, 1)))
    result = rewrite(operators, cap=5)
    assert result.capped and result.examined <= 6
    whole = rewrite(operators)
    assert not whole.capped and whole.examined >= 15  # the trees of four streams
