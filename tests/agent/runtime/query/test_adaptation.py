"""Adaptation in the runtime: load factors settle, and faults lose nothing and do not diverge."""

from __future__ import annotations

import json

import pytest

from engine.jarvis.settings import METHODS, AdaptationSettings
from tests.agent.runtime.epochs import by_hand
from tests.agent.runtime.hosts import PIPELINE, Host, exact, settled
from tests.agent.runtime.pipelines import probes_pipeline
from tests.thoroughness import share_of


def test_query_starts_at_the_stream_processor_and_settles_at_its_budget(tmp_path):
    host = Host(tmp_path, cores=0.15)
    first, *rows = host.epochs(12)
    assert first["p"] == [0.0] * 4
    assert settled(rows[5:])
    assert all(row["u"] >= 0.8 * row["b"] for row in rows[5:])
    state = host.state()
    assert state["load_factors"] == pytest.approx(rows[-1]["p"], abs=0.1)
    assert (state["phase"], state["adapting"], state["refined"], state["refused"]) == ("probe", "stable", None, None)
    assert state["reason"]
    assert 0.25 <= state["z"] <= 4
    assert state["moves"] >= 1
    json.dumps(host.runtime.state(), allow_nan=False)
    assert exact(host)


def test_budget_changes_take_effect_within_few_epochs(tmp_path):
    host = Host(tmp_path, cores=0.1)
    host.epochs(12)
    host.apply(cores=0.5)
    rows = host.epochs(5)
    assert rows[-1]["p"] == pytest.approx([1.0] * 4, abs=0.01), "the whole chain fits"
    host.apply(cores=0.1)
    rows = host.epochs(10)
    assert rows[0]["o"] > 0, "the first epoch could not know"
    assert settled(rows[6:])
    assert host.state()["changes"], "each change is told"
    assert exact(host)


def test_budget_of_zero_stops_operators_and_a_raise_starts_them_again(tmp_path):
    host = Host(tmp_path, cores=0.5)
    host.epochs(6)
    host.quota = 0.0
    rows = host.epochs(6)
    assert sum(row["o"] for row in rows) == rows[0]["n"], "what was let in before anybody knew, once it waited too long"
    assert [(row["o"], row["p"], row["b"]) for row in rows[4:]] == [(0, [0.0] * 4, 0.0)] * 2
    host.quota = 64.0
    rows = host.epochs(5)
    assert rows[-1]["p"] == pytest.approx([1.0] * 4, abs=0.01)
    assert exact(host)


def test_a_quota_that_is_lowered_is_the_budget_from_the_next_epoch_on(tmp_path):
    host = Host(tmp_path, cores=0.5)
    host.epochs(6)
    host.quota = 0.1
    rows = host.epochs(10)
    assert [row["b"] for row in rows[2:]] == pytest.approx([0.1] * 8, abs=0.03)
    assert settled(rows[6:])
    assert exact(host)


def test_operator_that_becomes_ten_times_as_expensive_keeps_the_budget(tmp_path):
    host = Host(tmp_path, cores=0.5)
    host.epochs(10)
    host.costs_us["stats"] *= 10
    rows = host.epochs(30)
    assert rows[0]["o"] > 0
    late = rows[15:]
    assert sum(row["o"] for row in late) < 0.05 * sum(row["n"] for row in late)
    assert sum(row["u"] for row in late) > 0.7 * sum(row["b"] for row in late)
    assert exact(host)


@pytest.mark.night
def test_operator_that_fails_rests_and_works_again(tmp_path, caplog):
    host = Host(tmp_path, cores=0.8)
    host.epochs(8)
    host.broken.add("tors")
    rows = host.epochs(20)
    assert rows[0]["o"] > 0
    assert sum(row["o"] == 0 for row in rows) >= 12, "it is not fed for long"
    assert "operator tors: no such luck" in host.state()["faults"]
    host.broken.clear()
    rows = host.epochs(40)
    assert rows[-1]["p"] == pytest.approx([1.0] * 4, abs=0.01)
    assert exact(host)


def test_expanding_operator_stays_within_its_bound(tmp_path):
    host = Host(tmp_path, cores=0.3, rate_per_s=300, pipelines=(probes_pipeline(slide_s=2),))
    rows = host.epochs(20)
    assert settled(rows[8:])
    processed = host.reference.total("records_processed", operator="window")
    assert host.reference.total("records_out", operator="window") == 5 * processed > 0
    assert exact(host)


def test_queries_beside_each_other_leave_the_margin_of_the_budget(tmp_path):
    pipelines = tuple(probes_pipeline(where=f"rtt_us > {i}") for i in range(4))
    host = Host(tmp_path, cores=0.6, rate_per_s=2000, pipelines=pipelines)
    host.epochs(15)
    by_query = list(host.runtime.unreported().values())
    late = [rows[-5:] for rows in by_query]
    assert all(sum(row["o"] for row in rows) < 0.05 * sum(row["n"] for row in rows) for rows in late)
    used = sum(row["u"] for rows in late for row in rows) / 5
    assert 0.5 < used <= 0.6
    assert max(row["u"] for rows in late for row in rows) < 0.25, "fair shares"
    assert exact(host)


@pytest.mark.parametrize("method", share_of(METHODS, 3))
def test_every_method_runs_and_leaves_the_result_alone(tmp_path, method):
    factors = (0.5,) if method == "fixed" else ()
    host = Host(tmp_path, cores=0.15, settings=AdaptationSettings(method=method, load_factors=factors))
    for change in ({}, {"cores": 0.4}, {"cores": 0.05}):
        host.apply(**change)
        host.epochs(6)
    json.dumps(host.runtime.state(), allow_nan=False)
    assert exact(host)


def test_load_factors_by_hand_stay(tmp_path):
    host = Host(tmp_path, cores=0.05, settings=by_hand(1.0, 0.5))
    assert all(row["p"] == [1.0, 0.5, 0.0, 0.0] for row in host.epochs(4))
    host.apply(settings=by_hand(0.2))
    assert all(row["p"] == [0.2, 0.0, 0.0, 0.0] for row in host.epochs(3))
    assert host.state()["load_factors"] == [0.2, 0.0, 0.0, 0.0]


def test_idle_hour_sends_marks_only(tmp_path):
    host = Host(tmp_path, cores=0.3, rate_per_s=0)
    rows = host.epochs(50)
    assert all(row["o"] == row["n"] == 0 for row in rows)
    host.source.rate_per_s = 2000
    assert settled(host.epochs(10)[6:])
    assert exact(host)


def test_failed_controller_keeps_its_load_factors_and_reports_the_fault(tmp_path, monkeypatch, caplog):
    host = Host(tmp_path, cores=0.5)
    host.epochs(6)
    (chain,) = host.runtime._registry.pipelines.values()
    before = chain.adaptation.load_factors

    def fails(observation):
        raise ZeroDivisionError("no such luck")

    with monkeypatch.context() as patched:
        patched.setattr(chain.adaptation._controller, "decide", fails)
        assert host.epochs(3)[-1]["p"] == pytest.approx(before)
        assert host.state()["faults"] == ["load factors stay as they are: ZeroDivisionError: no such luck"]
    host.epochs(1)
    assert host.state()["faults"] == []
    assert PIPELINE.digest == host.state()["plan"]
