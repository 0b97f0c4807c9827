"""Replay of recorded arrivals under other policies: its document, its faults and its sums."""

from __future__ import annotations

import json
import math

import pytest

from engine.__main__ import main
from engine.errors import DocumentError
from engine.klink.replay import ReplayQuery, _arrivals, command
from engine.klink.settings import POLICIES
from engine.klink.simulation.run import SimulatedOperator, SimulatedQuery


def replay(document):
    return command(document).to_dict()


def query(name="a", **more):
    return {"id": name, "cost_ms": 0.1, "period_ms": 2_000, "arrivals": [500] * 10, "delays_ms": [100] * 4} | more


def test_unloaded_window_waits_only_for_its_watermark():
    answer = replay({"queries": [query()]})
    assert (answer["bins"], answer["duration_s"], tuple(answer["policies"])) == (10, 10.0, POLICIES)
    for entry in answer["policies"].values():
        assert (entry["windows"], entry["unswept"], entry["overflow"], entry["waiting"]) == (4, 0, 0.0, 0.0)
        assert entry["records"] == entry["processed"] == pytest.approx(5_000)
        assert 100 <= entry["mean_ms"] <= entry["p99_ms"] <= entry["most_ms"] < 130
        assert entry["busy_share"] == pytest.approx(0.05, rel=0.01)
        assert entry["queries"]["a"]["mean_ms"] == entry["mean_ms"]


def test_smaller_budget_makes_records_wait_and_overflow():
    short = {"queries": [query("a", cost_ms=1.0), query("b", cost_ms=1.0)], "cores": 0.5}
    for entry in replay(short)["policies"].values():
        assert entry["overflow"] > 3_000
        assert entry["processed"] + entry["overflow"] + entry["waiting"] == pytest.approx(entry["records"])
        assert entry["overflow_share"] == pytest.approx(entry["overflow"] / entry["records"])
        assert entry["memory_peak_bytes"] > 0
    patient = replay(short | {"schedule": {"backlog_periods": 10, "backlog_most_s": 600}})["policies"]["fcfs"]
    assert patient["overflow"] == 0 and patient["waiting"] > 3_000


def test_policies_differ_when_windows_compete():
    queries = [query("short", cost_ms=0.05, arrivals=[20] * 10), query("long", cost_ms=1.9, arrivals=[490] * 10)]
    asked = {"queries": queries, "policies": list(POLICIES), "schedule": {"backlog_periods": 5}}
    answer = replay(asked)["policies"]
    assert tuple(answer) == POLICIES
    assert answer["klink"]["queries"]["short"]["mean_ms"] < answer["fcfs"]["queries"]["short"]["mean_ms"]
    assert replay(asked) == replay(asked)


def test_missing_watermark_is_replaced_by_the_next():
    entry = replay({"queries": [query(delays_ms=[None, 100, None])], "policies": ["klink"]})["policies"]["klink"]
    assert (entry["windows"], entry["unswept"]) == (3, 1)
    assert entry["most_ms"] == pytest.approx(4_020, abs=30)  # not swept until the end, 10.02 s, of one due at 6 s


def test_late_start_comes_late_and_does_not_shift_what_the_policy_expects():
    delays = [12_000.0, *(float(250 + 7 * place % 100) for place in range(40))]
    windows = SimulatedQuery("a", (SimulatedOperator(0.1, 1.0),), period_ms=2_000.0, first_ms=2_000.0)
    arrivals = _arrivals(ReplayQuery.parse(query(arrivals=[500] * 90, delays_ms=delays)), windows, 1_000.0)
    assert arrivals.marks_ms[0, 0] == 14_000.0
    assert arrivals.mean_ms[0, 0] == max(delays[1:]) and list(arrivals.mean_ms[1:, 0]) == delays[1:]
    assert (arrivals.square_ms2 == arrivals.mean_ms**2).all()


def test_query_without_windows_has_no_latencies():
    plain = {"id": "a", "cost_ms": 0.1, "arrivals": [500] * 10}
    answer = replay({"queries": [plain], "policies": ["klink"]})["policies"]["klink"]
    assert (answer["windows"], answer["mean_ms"], answer["p99_ms"]) == (0, None, None)
    assert not any(isinstance(entry, float) and math.isnan(entry) for entry in answer.values())


def test_every_fault_is_told_at_once():
    with pytest.raises(DocumentError) as caught:
        replay(
            {
                "queries": [
                    query(cost_ms=-1, arrivals=[1, math.nan]),
                    query(arrivals=[1], period_ms=5, delays_ms=["soon"]),
                    {"id": "c", "cost_ms": 1, "arrivals": [1, 2], "delays_ms": [1], "colour": "red"},
                ],
                "policies": ["best"],
                "bin_ms": 1,
                "schedule": {"cycle_ms": 1},
                "cores": 0,
            }
        )
    assert {fault.path for fault in caught.value.faults} >= {
        "queries[0].cost_ms", "queries[0].arrivals[1]", "queries[1].id", "queries[1].period_ms",
        "queries[1].delays_ms[0]", "queries[2].colour", "queries[2].delays_ms", "policies[0]", "bin_ms",
        "schedule.cycle_ms", "cores",
    }  # fmt: skip
    plain = {"id": "c", "cost_ms": 1, "arrivals": [1, 2], "delays_ms": [1]}
    with pytest.raises(DocumentError) as caught:
        replay({"queries": [query(), query(arrivals=[1]), plain]})
    assert [fault.path for fault in caught.value.faults] == [
        "queries[1].id", "queries[1].arrivals", "queries[2].arrivals", "queries[2].delays_ms",
    ]  # fmt: skip


def test_command_line_equals_the_function(tmp_path, capsys):
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps({"queries": [query()]}))
    assert main(["replay", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["result"] == replay({"queries": [query()]})
