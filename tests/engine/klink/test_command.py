"""The commands: every fault at once with its path, and the paper's method beside the exact one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.__main__ import main
from engine.errors import DocumentError
from engine.klink.command import forwarding_command, memory_command, pick_command, slack_command


def problem(**changed: Any) -> dict[str, Any]:
    stream = {"mu": [300.0, 310.0, 290.0], "chi": [91_000.0, 97_000.0, 85_000.0], "period": 3000.0}
    query = {"cost": 200.0, "streams": [stream | {"last_swm_generated": 9000.0}]}
    return {"t": 12_250.0, "r": 120.0, "f": 0.95, "h": 400, "query": query} | changed


def paths(command: Any, document: Any) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        command(document)
    return [fault.path for fault in caught.value.faults]


def test_algorithm_1_approaches_the_closed_form_as_the_cycle_shrinks():
    exact = slack_command(problem(f=0.999999)).slack
    loops = [slack_command(problem(f=0.999999, r=r)).streams[0].slack_alg1 for r in (120.0, 10.0, 0.1)]
    errors = [loop - exact for loop in loops]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 30
    assert abs(errors[-1]) < 0.1


def test_printed_interval_is_two_standard_deviations():
    (stream,) = slack_command(problem(z_mode="two_sigma")).streams
    assert stream.tmax - stream.mean == pytest.approx(2 * stream.var**0.5)


def test_join_reports_the_stream_due_first_and_the_one_opening_the_window():
    first, last = ({**problem()["query"]["streams"][0], "period": period} for period in (3000.0, 5000.0))
    result = slack_command(problem(query={"cost": 200.0, "streams": [first, last]}))
    assert (result.slack, result.slack_last) == tuple(stream.slack for stream in result.streams)


def test_slack_command_reports_all_faults_at_once():
    stream = {"mu": [300.0, float("nan")], "chi": [80_000.0, 1.0], "period": 0, "last_swm_generated": "Infinity"}
    document = problem(t=float("inf"), h=0, f=1, var_mode="x", query={"cost": -1, "streams": [stream]})
    assert paths(slack_command, document) == [
        "t", "h", "query.cost", "query.streams[0].mu[1]", "query.streams[0].period",
        "query.streams[0].last_swm_generated", "var_mode", "f", "query.streams[0].chi[0]",
    ]  # fmt: skip


@pytest.mark.parametrize("f", [1.0, 1 - 1e-16, 1.5])
def test_confidence_of_zero_or_one_is_refused(f):
    assert paths(slack_command, problem(f=f)) == ["f"]


def test_algorithm_1_with_too_many_steps_is_refused():
    assert paths(slack_command, problem(r=1e-9)) == ["r"]
    assert paths(slack_command, problem(r=1e-320)) == ["r"]


def test_series_of_different_lengths_are_refused():
    stream = {"mu": [1.0], "chi": [1.0, 2.0], "period": 1, "last_swm_generated": 0}
    assert paths(slack_command, problem(query={"cost": 1, "streams": [stream]})) == ["query.streams[0].chi"]


def test_memory_command_reports_all_faults_at_once():
    queries = {
        "a": {"queued": [1.0, 2.0], "selectivity": [0.5], "cost_ms": [0.1, -1]},
        "b": {"queued": [], "selectivity": [1], "cost_ms": [1]},
    }
    document = {"queries": queries, "slacks": {"a": float("nan"), "c": 1}, "r": 0}
    assert paths(memory_command, document) == [
        "queries.a.cost_ms[1]", "queries.b.queued", "slacks.a", "r", "queries.a.selectivity", "slacks.b", "slacks.c",
    ]  # fmt: skip


def test_pick_from_no_query_is_refused():
    assert paths(pick_command, {"slacks": {}}) == ["slacks"]
    assert paths(pick_command, {"slacks": {"a": float("inf")}}) == ["slacks.a"]
    assert paths(memory_command, {"queries": {}, "slacks": {}, "r": 1}) == ["queries"]
    assert paths(forwarding_command, {"ops": [], "watermark_at": "source"}) == ["ops"]


def test_forwarding_command_reports_all_faults_at_once():
    document = {"ops": [["a", "N"], ["a", ""], ["source", "M"], ["b"]], "watermark_at": "c"}
    assert paths(forwarding_command, document) == [
        "ops[1][1]",
        "ops[3]",
        "ops[1][0]",
        "ops[2][0]",
        "watermark_at",
    ]


def test_command_line_accepts_a_bare_document(tmp_path, capsys):
    file = tmp_path / "pick.json"
    file.write_text('{"slacks": {"b": 3, "a": -2.5}}')
    assert main(["pick", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == {"picked": "a"}


def test_watermark_that_came_in_the_future_is_refused():
    stream = {"mu": [1.0], "chi": [1.0], "period": 1, "last_swm_generated": 0}
    query = {"cost": 1, "streams": [stream, {**stream, "pending_swm_ingested": 101.0}]}
    assert paths(slack_command, problem(t=100.0, query=query)) == ["query.streams[1].pending_swm_ingested"]
    query["streams"][1]["pending_swm_ingested"] = 100.0
    assert slack_command(problem(t=100.0, query=query)).streams[1].slack == -1.0
