"""Documents of pipelines: what is read, what is refused, what stays the same under which changes, where it may run."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from typing import Any

import pytest

from engine.dataflow import Pipeline
from engine.dataflow.documents import OPERATIONS, PipelineOperatorRecord
from engine.errors import DocumentError
from tests.engine.dataflow.documents import document, pipeline

WINDOW = {"op": "window", "size_s": 10}
FILTER = {"op": "filter", "where": "i = 0"}
COUNT = {"op": "aggregate", "by": ["s"], "compute": {"n": "count(*)"}}
TABLE = {"columns": {"k": "string", "v": "int64"}, "rows": [["a", 1]]}
JOIN = {"op": "join", "table": "t", "on": {"s": "k"}, "take": {"v": "v"}}


def faults_of(given: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as caught:
        Pipeline.parse(given)
    return {fault.path: fault.message for fault in caught.value.faults}


def fingerprints(*expressions: dict[str, Any], **more: Any) -> list[str]:
    return [operator.fingerprint for operator in pipeline(*expressions, **more).operators]


def test_live_pipeline_has_a_window_and_an_aggregate() -> None:
    made = pipeline(WINDOW, FILTER, COUNT)
    assert (made.aggregate, made.source_operators, made.not_live) == (2, 3, ())
    assert made.window is not None and made.window.size_us == made.window.slide_us == 10_000_000
    assert made.output_schema.names == ["window_start", "s", "n"]
    assert [operator.stateful for operator in made.operators] == [False, False, True]


@pytest.mark.parametrize(
    ("expressions", "says"),
    [
        ([WINDOW, FILTER], "there is no aggregate; allowed: a window and an aggregate after it"),
        ([FILTER, COUNT], "o1 has no window before it; allowed: a window, then the aggregate"),
        ([WINDOW, {**COUNT, "compute": {"m": "median(x)"}}], "o1 computes m (median)"),
    ],
)
def test_pipeline_that_cannot_run_live_is_refused_with_the_reason(expressions: list[dict[str, Any]], says: str) -> None:
    assert any(says in fault.message for fault in pipeline(*expressions).not_live)


def test_all_faults_are_reported_at_once() -> None:
    given = document({"op": "filter", "where": "q = 1"}, {"op": "map", "set": {"a": "nope", "b": "i +"}}, {"op": "x"})
    given["operators"][0]["kind"] = "join"
    given["operators"][1]["id"] = "o0"
    given["operators"].append({"id": "late", "expression": {"op": "window"}, "copies": 0})
    given["source"]["time"] = "i"
    given["more"] = 1
    assert set(faults_of(given)) == {
        "more",
        "source.time",
        "operators[0].kind",
        "operators[0].expression.where",
        "operators[1].id",
        "operators[1].expression.set.a",
        "operators[1].expression.set.b",
        "operators[2].expression.op",
        "operators[3].copies",
        "operators[3].expression.size_s",
    }


@pytest.mark.parametrize("given", [None, [], "a", {}, {"source": 1, "operators": {}}, {"source": {}, "operators": [1]}])
def test_value_that_is_no_pipeline_is_refused(given: Any) -> None:
    assert all("allowed" in text or "missing" in text for text in faults_of(given).values())


def test_faulty_static_tables_are_refused() -> None:
    tables = {
        "t": {"columns": {"k": "string", "v": "int64"}, "rows": [["a", 1], ["a"], [1, True], [None, None]]},
        "u": {"columns": {"v": "int64", "k": "string"}, "rows": []},
        "w": {"columns": {"k": "string"}, "rows": [], "order": ["k", "v"]},
    }
    result = faults_of(document(FILTER, tables=tables))
    assert result["tables.t.rows[1]"] == "item 1 has 1 values; allowed: 2"
    assert "tables.t.rows[2]" in result and result["tables.w.order"] == "order is k, v; allowed: each of k"
    assert result["tables.u.order"] == "order is missing; columns (v, k) are not in the order of the alphabet"
    twice = {"t": {**TABLE, "rows": [["a", 1], ["a", 2]]}}
    assert "stands 2 times; allowed: keys that are unique" in "".join(faults_of(document(JOIN, tables=twice)).values())


def test_key_order_does_not_change_fingerprints() -> None:
    given = document(WINDOW, {"op": "map", "set": {"b2": "i", "a2": "j"}}, COUNT)
    turned = json.loads(json.dumps(given, sort_keys=True), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    entry, other = Pipeline.parse(given), Pipeline.parse(turned)
    assert entry.digest == other.digest
    assert [a.output_schema for a in entry.operators] == [b.output_schema for b in other.operators]


def test_digest_ignores_number_notation() -> None:
    given = document({"op": "window", "size_s": 10}, COUNT)
    assert Pipeline.parse(document({"op": "window", "size_s": 10.0}, COUNT)).digest == Pipeline.parse(given).digest
    assert Pipeline.parse(document({"op": "window", "size_s": 11}, COUNT)).digest != Pipeline.parse(given).digest


def test_pipeline_is_independent_of_its_document() -> None:
    given = copy.deepcopy(document(WINDOW, COUNT))
    made = Pipeline.parse(given)
    before = copy.deepcopy(dict(made.document))
    given["operators"][0]["expression"]["size_s"] = 99
    assert made.document == before


def test_fingerprint_survives_a_redeploy_of_an_unchanged_operator() -> None:
    plain = fingerprints(WINDOW, FILTER, COUNT)
    assert fingerprints(WINDOW, {"op": "filter", "where": "( i=0 )"}, COUNT) == plain
    renamed = document(WINDOW, FILTER, COUNT)
    renamed["operators"][1]["id"] = "another"
    assert [operator.fingerprint for operator in Pipeline.parse(renamed).operators] == plain
    after = fingerprints(WINDOW, FILTER, COUNT, {"op": "filter", "where": "n > 1"})
    assert after[:3] == plain


def test_fingerprint_changes_with_the_operator_and_those_before_it() -> None:
    plain = fingerprints(WINDOW, FILTER, COUNT)
    changed = fingerprints(WINDOW, {"op": "filter", "where": "i = 1"}, COUNT)
    assert changed[0] == plain[0] and changed[1] != plain[1] and changed[2] != plain[2]
    small = fingerprints(JOIN, tables={"t": TABLE})
    assert small != fingerprints(JOIN, tables={"t": {**TABLE, "rows": [["a", 1], ["b", 2]]}})
    assert fingerprints(WINDOW) != fingerprints(WINDOW, columns={"at": "timestamp"})


def test_rule_1_refuses_exact_aggregates_and_advises_quantile() -> None:
    for compute in ("median(x)", "percentile(x, 0.9)", "count(distinct s)"):
        made = pipeline(WINDOW, {**COUNT, "compute": {"m": compute}})
        assert [rule.number for rule in made.rules] == [None, 1] and made.source_operators == 1
        assert "quantile()" in made.rules[1].reason and made.operators[1].not_runnable is not None


def test_rule_2_keeps_operators_after_the_aggregate_at_the_stream_processor() -> None:
    made = pipeline(WINDOW, COUNT, {"op": "filter", "where": "n > 1"}, {"op": "map", "set": {"m": "n + 1"}})
    assert [rule.number for rule in made.rules] == [None, None, 2, 2] and made.source_operators == 2
    assert made.not_live == () and "o1" in made.rules[2].reason


def test_rule_4_keeps_copying_operators_at_the_stream_processor() -> None:
    given = document(WINDOW, FILTER, COUNT)
    given["operators"][1]["copies"] = 3
    made = Pipeline.parse(given)
    assert [rule.number for rule in made.rules] == [None, 4, None] and made.not_live == ()
    assert "3 physical copies" in made.rules[1].reason


def test_document_schema_covers_every_operation() -> None:
    forms = PipelineOperatorRecord.json_schema()["properties"]["expression"]["oneOf"]
    assert [form["properties"]["op"]["const"] for form in forms] == list(OPERATIONS)


def test_pipeline_can_be_pickled() -> None:
    made = pipeline(JOIN, FILTER, tables={"t": TABLE})
    assert pickle.loads(pickle.dumps(made)).operators[1].fingerprint == made.operators[1].fingerprint


@pytest.mark.process
def test_package_loads_neither_sqlglot_nor_pandas() -> None:
    code = (
        "import sys, engine.dataflow.arrow.kernels, engine.dataflow.templates;"
        "print([name for name in ('sqlglot', 'pandas', 'scipy', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
