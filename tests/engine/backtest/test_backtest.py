"""Recorded periods replayed through policies: a period period whole, what policies differ in, what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from engine.backtest.comparison import backtest_policies
from engine.backtest.period import RecordedPeriod, RecordedStop, SourceRecord
from engine.backtest.policy import RECORDED, ReplayPolicy, read_policy
from engine.document.deployment import Replica
from engine.errors import DocumentError, InfeasibleError
from tests.engine.admission.stories import ARRIVALS
from tests.engine.backtest.periods import HOUR_S, SINCE_S, asks, recorded_period


def replayed(period: RecordedPeriod, **rules: Any) -> dict[str, Any]:
    return backtest_policies(period, read_policy(rules)).to_dict()


def late(part: dict[str, Any], query: str) -> list[float | None]:
    """Latencies, but for the tenth of a millisecond that an event's own service takes."""
    return [None if value is None else round(value, 3) for value in part["queries"][query]["latency_s"]]


def test_replay_of_an_admitted_request_reports_latency_violations_and_loads() -> None:
    result = replayed(recorded_period(asks()), admission="everything")
    tested, recorded = result["tested"], result["recorded"]
    assert late(tested, "c") == [0.8, 0.8, 9.6, 0.8]
    assert late(tested, "p") == [0.8, 0.8, 9.4, 0.8]  # within a slice it comes first
    assert late(recorded, "p") == [0.0] * 4 and "c" not in recorded["queries"]
    assert (tested["admitted"], recorded["admitted"], tested["asked"]) == (1, 0, 1)
    assert [
        (violation["query"], violation["segments"], violation["seconds_over"]) for violation in tested["violations"]
    ] == [
        ("c", [0, 1, 2, 3], 4 * HOUR_S),  # 1.1 times the capacity is late in time, however short the stretch
        ("p", [0, 1, 2, 3], 4 * HOUR_S),
    ]
    assert [violation["endless_segments"] for violation in tested["violations"]] == [4, 4]
    first = tested["violations"][0]
    assert (first["worst_s"], first["worst_at_s"]) == (pytest.approx(9.6, abs=1e-3), SINCE_S + 2 * HOUR_S)
    assert recorded["violations"] == [] and (tested["moves"], recorded["moves"]) == (0, 0)
    assert tested["loads"]["n1"] == pytest.approx({"mean": 1.375, "peak": 2.2})
    assert recorded["loads"]["n1"] == pytest.approx({"mean": 0.625, "peak": 1.0})
    (request,) = result["requests"]
    assert request["differs"] and (request["outcome"], request["recorded"]) == ("admitted", "rejected")
    assert result["headline"].replace("\u00a0", " ") == (
        "It would have admitted 1 of 1, one more than was; c and p over their objectives, c for 4 h; "
        "as recorded every objective held"
    )
    assert result["sources"] == {"a": {"measured": 1, "history": 3, "filled": 0}}
    json.dumps(result, allow_nan=False)


def test_objective_that_random_costs_may_break_is_at_risk_and_said_to_be() -> None:
    """Half of the node is taken, and nothing waits in the mean; with costs of a cv2 of 10,000 something may."""
    result = replayed(recorded_period(rates=(10.0,) * 3, cv2=10_000.0), admission="recorded")
    recorded = result["recorded"]
    assert recorded["violations"] == []
    (row,) = recorded["at_risk"]
    assert (row["query"], row["segments"], row["seconds_at_risk"]) == ("p", [0, 1, 2], 3 * HOUR_S)
    assert row["worst_high_s"] > 1.5 >= max(late(recorded, "p"))
    assert "every objective held in the median, p at risk for 3 h" in result["headline"].replace("\u00a0", " ")


def test_mace_policy_rejects_a_request_that_would_break_objectives() -> None:
    result = replayed(recorded_period(asks()), admission="mace")
    assert result["tested"]["violations"] == []
    (request,) = result["requests"]
    assert (request["outcome"], request["verdict"]) == ("rejected", "reject")
    assert "never catches up: n1 gets 1.10 times its capacity" in request["reason"]


def test_mace_policy_admits_a_request_on_a_free_node() -> None:
    result = replayed(recorded_period(asks(placed=False), nodes=("n1", "n2")), admission="mace")
    assert result["requests"][0]["outcome"] == "admitted"
    assert late(result["tested"], "c") == pytest.approx([0.0, 0.0, 1.6, 0.0])  # 1.2 of n2 for 8 s
    assert late(result["tested"], "p") == [0.0] * 4


def test_decision_uses_the_load_of_its_segment() -> None:
    assert replayed(recorded_period(asks(cost=3.0)), admission="mace")["requests"][0]["outcome"] == "admitted"
    assert replayed(recorded_period(asks(cost=3.0, at=2.5)), admission="mace")["requests"][0]["outcome"] == "rejected"


def test_headroom_tightens_objectives() -> None:
    # A burst of 40 events at 4 cycles is 0.6 s late by mean costs, 0.74 s as its events come, of 1 s that it may be.
    period = recorded_period(
        asks(cost=4.0, placed=False, bound_s=1.0), nodes=("n1", "n2"), arrivals=ARRIVALS, rates=(13.75,) * 2
    )
    assert late(replayed(period, at_risk="admit")["tested"], "c") == pytest.approx([0.6, 0.6])
    assert replayed(period, at_risk="admit", headroom=0.2)["tested"]["admitted"] == 1
    (refused,) = replayed(period, at_risk="admit", headroom=0.5)["requests"]
    assert refused["outcome"] == "rejected" and "0.5" in refused["reason"]


def test_request_at_risk_is_reviewed_or_admitted_as_the_policy_says() -> None:
    asking = asks(cost=4.0, placed=False, bound_s=1.0, spread=0.3)
    period = recorded_period(asking, nodes=("n1", "n2"), arrivals=ARRIVALS, rates=(13.75,) * 2)
    assert replayed(period, at_risk="review")["requests"][0]["outcome"] == "review"
    assert replayed(period, at_risk="admit")["requests"][0]["outcome"] == "admitted"


def test_recorded_admission_starts_the_query_in_its_segment() -> None:
    result = replayed(recorded_period(asks(at=1.5, outcome="admitted")), admission="recorded")
    assert late(result["recorded"], "c") == pytest.approx([None, 0.8, 9.6, 0.8])
    assert result["tested"] == result["recorded"] and not result["requests"][0]["differs"]


def test_query_recorded_on_a_removed_node_is_placed_again() -> None:
    request = asks(outcome="admitted")
    object.__setattr__(request.decided, "placement", {"c/op": (Replica("gone"),)})
    assert late(replayed(recorded_period(request), admission="recorded")["recorded"], "c")[0] == pytest.approx(0.8)


def test_stopped_query_has_no_latency_afterwards() -> None:
    period = recorded_period(asks(), stops=(RecordedStop(SINCE_S + 2 * HOUR_S, "c"),))
    assert late(replayed(period, admission="everything")["tested"], "c") == pytest.approx([0.8, 0.8, None, None])
    replayed(period, admission="mace")  # it never ran there: nothing to stop


def test_search_moves_operators_of_a_threatened_objective_up_to_the_limit() -> None:
    period = recorded_period(asks(), nodes=("n1", "n2"))
    moved = replayed(period, admission="everything", placement="search")["tested"]
    (move,) = moved["moved"]
    assert (move["operator"], move["after"], move["at_s"]) == ("p/op", ["n2"], SINCE_S)
    assert moved["moves"] == 1 and late(moved, "p")[2:] == [0.0, 0.0]
    kept = replayed(period, admission="everything", placement="search", max_moves=0)["tested"]
    assert kept["moves"] == 0 and late(kept, "p")[2] == 9.4


def test_live_waits_are_added_and_measured_latencies_reported() -> None:
    measured = {"p": np.array([0.4, np.nan, 2.0, 0.4])}
    result = replayed(recorded_period(added_s={"p": 1.0}, measured_s=measured), admission="recorded")
    assert late(result["recorded"], "p") == [1.0] * 4
    assert result["measured"] == [
        {
            "query": "p",
            "segments": 3,
            "measured_s": 0.4,
            "replayed_s": pytest.approx(1.0, abs=1e-3),
            "within": 2,
            "series_s": [0.4, None, 2.0, 0.4],
        }
    ]


def test_gaps_are_filled_with_the_last_known_rate_and_noted() -> None:
    nan = float("nan")
    result = replayed(recorded_period(asks(), rates=(nan, 20.0, nan, 10.0)), admission="everything")
    assert late(result["tested"], "p") == [9.4, 9.4, 9.4, 0.8]
    assert any("Gaps were filled" in note for note in result["notes"])


def test_period_without_records_or_with_too_many_segments_is_refused() -> None:
    nothing = SourceRecord(np.full(4, np.nan), 0, 10.0)
    with pytest.raises(InfeasibleError, match="nothing was recorded in this period"):
        backtest_policies(recorded_period(sources={"a": nothing}), RECORDED)
    with pytest.raises(InfeasibleError, match="has 401 segments; allowed: 1 to 400"):
        backtest_policies(recorded_period(rates=(10.0,) * 401), RECORDED)


def test_equal_input_gives_equal_backtests() -> None:
    period = recorded_period(asks(), nodes=("n1", "n2"))
    rules = ReplayPolicy("everything", placement="search")
    assert backtest_policies(period, rules) == backtest_policies(period, rules)


def test_progress_rises_and_an_exception_from_it_ends_the_backtest() -> None:
    shares: list[float] = []
    backtest_policies(recorded_period(asks()), ReplayPolicy(), lambda share, step: shares.append(share))
    assert shares == sorted(shares) and shares[-1] == 1.0

    def stop(share: float, step: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backtest_policies(recorded_period(asks()), ReplayPolicy(), stop)


def test_policy_is_read_strictly_with_every_fault() -> None:
    assert read_policy({"headroom": 0.2, "max_moves": None}) == ReplayPolicy(headroom=0.2)
    with pytest.raises(DocumentError) as refused:
        read_policy({"admission": "all", "headroom": 1, "max_moves": 1.5, "other": 1})
    assert {fault.path for fault in refused.value.faults} == {
        "policy.admission",
        "policy.headroom",
        "policy.max_moves",
        "policy.other",
    }
