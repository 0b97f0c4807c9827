"""Documents of queries, hosts, placements and traces: what is read, and what is refused with every fault."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest

from engine.costream.documents import read_trace
from engine.errors import DocumentError
from tests.engine.costream.ensembles import make_trace, trace_document
from tests.engine.costream.readers import graph_of, hosts_of


def test_latencies_of_a_trace_become_seconds() -> None:
    trace = make_trace()
    assert trace.label is not None
    assert (trace.label.throughput_eps, trace.label.processing_latency_s) == (8.0, 4.1)
    assert trace.hosts[0].latency_s == pytest.approx(0.04)


def test_run_without_success_has_no_costs() -> None:
    document = trace_document()
    document["label"] = {"T": 0.0, "Lp": 0.0, "Le": 0.0, "R": 0.0, "RO": 0, "S": 0}
    label = read_trace(document).label
    assert label is not None
    assert not label.success
    assert (label.throughput_eps, label.processing_latency_s, label.end_to_end_latency_s) == (None, None, None)


def test_edges_and_successors_say_the_same() -> None:
    query = trace_document()["query"]
    edges = {"ops": query["ops"], "edges": [[i, j] for i, j in enumerate(query["succ"]) if j >= 0]}
    assert graph_of(edges) == graph_of(query)


def test_strength_follows_from_the_rest_where_it_is_not_given() -> None:
    hosts = [{name: value for name, value in host.items() if name != "bin"} for host in trace_document()["hosts"]]
    assert [hosts_of(hosts)[j].strength for j in (0, 3)] == [0, 2]


def test_tumbling_window_slides_by_its_size() -> None:
    query = trace_document()["query"]
    del query["ops"][4]["wslide"]
    assert graph_of(query).operators[4].window_slide == 40


def _set(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the query: a field of an operator, or the streams."""

    def change(query: dict[str, Any]) -> None:
        if path == "succ":
            query["succ"] = value
            return
        i, name = path.split(".")
        if value is None:
            del query["ops"][int(i)][name]
        else:
            query["ops"][int(i)][name] = value

    return change


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        (_set("2.type", "filtre"), "ops[2].type", "did you mean 'filter'"),
        (_set("2.type", None), "ops[2].type", "allowed: source, filter, join, agg, sink"),
        (_set("2.sel", None), "ops[2].sel", "sel is missing; a filter needs it"),
        (_set("3.sel", None), "ops[3].sel", "a join needs it"),
        (_set("4.sel", -0.1), "ops[4].sel", "from 0 to 1"),
        (_set("2.sel", math.nan), "ops[2].sel", "a finite number"),
        (_set("2.sel", True), "ops[2].sel", "sel is true"),
        (_set("0.rate", "400"), "ops[0].rate", "rate is '400'"),
        (_set("0.n_int", 1.5), "ops[0].n_int", "a whole number"),
        (_set("0.rate", math.inf), "ops[0].rate", "a finite number"),
        (_set("3.wslide", None), "ops[3].wslide", "sliding windows need it"),
        (_set("3.wslide", 5), "ops[3].wslide", "at most wsize (4)"),
        (_set("4.wslide", 20), "ops[4].wslide", "allowed for tumbling windows: wsize (40)"),
        (_set("4.wsize", 40.5), "ops[4].wsize", "a whole number of tuples"),
        (_set("4.fn", "median"), "ops[4].fn", "allowed: min, max, mean, avg"),
        (_set("2.window", 5), "ops[2].window", "not a field of a filter"),
        (_set("succ", [2, 3, 3, 4, 3, -1]), "", "form a cycle"),
        (_set("succ", [2, 3, 3, 4, 9, -1]), "succ[4]", "below 6"),
        (_set("succ", [2, 3, 3, 4, 5]), "succ", "6, one per operator"),
        (_set("succ", [2, 2, 3, 4, 5, -1]), "ops[3]", "this join reads 1 stream; allowed: 2"),
        (_set("succ", [2, 3, 3, 5, -1, -1]), "ops[4]", "this aggregation reads no stream"),
    ],
)
def test_faulty_query_is_refused_with_its_field(change: Callable[[Any], None], path: str, words: str) -> None:
    query = copy.deepcopy(trace_document()["query"])
    change(query)
    with pytest.raises(DocumentError) as refused:
        graph_of(query)
    assert any(fault.path == path and words in fault.message for fault in refused.value.faults), refused.value.faults


def test_query_of_too_many_operators_is_refused_with_what_is_allowed() -> None:
    source = trace_document()["query"]["ops"][0]
    with pytest.raises(DocumentError) as refused:
        graph_of({"ops": [source] * 65, "succ": [-1] * 65})
    (fault,) = refused.value.faults
    assert fault.path == "ops" and fault.message == "ops has 65 items; allowed: 2 to 64"


def test_all_faults_of_a_trace_are_told_at_once() -> None:
    document = trace_document()
    document["query"]["ops"][2]["sel"] = 2
    document["query"]["ops"][3]["keytype"] = "bool"
    document["hosts"][1]["cpu"] = 0
    document["hosts"][2]["ram"] = -1
    document["label"]["S"] = 2
    with pytest.raises(DocumentError) as refused:
        read_trace(document)
    assert {fault.path for fault in refused.value.faults} == {
        "query.ops[2].sel",
        "query.ops[3].keytype",
        "hosts[1].cpu",
        "hosts[2].ram",
        "label.S",
    }


def test_every_fault_of_an_operator_and_of_its_streams_is_told_at_once() -> None:
    query = copy.deepcopy(trace_document()["query"])
    query["ops"][3] |= {"sel": 2, "wslide": 5}
    query["ops"][4] |= {"fn": "median", "wsize": 40.5}
    query["succ"] = [2, 2, 3, 4, 5, -1]
    with pytest.raises(DocumentError) as refused:
        graph_of(query)
    assert [fault.path for fault in refused.value.faults] == [
        "ops[3].sel",
        "ops[3].wslide",
        "ops[4].fn",
        "ops[4].wsize",
        "ops[4].wslide",
        "ops[3]",
    ]


@pytest.mark.parametrize("path", ["query.ops[2].sel", "hosts[1].cpu", "hosts[1].bin", "placement[3]", "label.T"])
def test_number_that_is_not_finite_is_refused_once(path: str) -> None:
    document = trace_document()
    *steps, last = path.replace("[", ".").replace("]", "").split(".")
    part: Any = document
    for step in steps:
        part = part[int(step) if step.isdigit() else step]
    part[int(last) if last.isdigit() else last] = math.nan
    with pytest.raises(DocumentError) as refused:
        read_trace(document)
    assert [fault.path for fault in refused.value.faults] == [path]


@pytest.mark.parametrize("placement", [[0, 1, 2], [0, 4], [0, -1], [0, 0.5], "01", [0, True]])
def test_placement_that_does_not_fit_is_refused(placement: Any) -> None:
    document = trace_document()
    source, *_, sink = document["query"]["ops"]
    document |= {"query": {"ops": [source, sink], "succ": [1, -1]}, "placement": placement}
    document["hosts"] = document["hosts"][:4]
    with pytest.raises(DocumentError) as refused:
        read_trace(document)
    assert all(fault.path.startswith("placement") for fault in refused.value.faults)
