"""Refined configurations at the agent: accepted between epochs, refused with reasons, expired after their TTL."""

from __future__ import annotations

from typing import Any

import pytest

from engine.jarvis.refined_config import seal
from engine.jarvis.settings import AdaptationSettings
from tests.agent.runtime.doubles import SECOND_US
from tests.agent.runtime.epochs import by_hand
from tests.agent.runtime.hosts import PIPELINE, QUERY, Host
from tests.agent.runtime.pipelines import AGENT, probes_pipeline

NOW_US = 1_700_000_000 * SECOND_US


def document(version: int = 118, *factors: float, **changes: Any) -> dict[str, Any]:
    """Settings alone: these load factors for the query of `hosts`."""
    fields: dict[str, Any] = {
        "schema": 1,
        "config": f"c-{version}",
        "version": version,
        "parent": version - 1,
        "query": QUERY,
        "plan": PIPELINE.digest,
        "agent": AGENT,
        "settings": {"method": "fixed", "load_factors": list(factors or (0.5, 0.5))},
        "record_bytes": [30],
        "operators": [],
        "fitted": None,
        "plan_prior": None,
        "valid_from_us": NOW_US,
        "ttl_s": 3600,
        "fallback": "local",
    }
    return seal({**fields, **changes})


def learned(version: int, cost_s: float, records: int) -> dict[str, Any]:
    """Costs of its operators."""
    operators = [
        {"id": name, "cost_s": cost_s, "relay": 0.8, "records": records} for name in ("window", "ok", "tors", "stats")
    ]
    return document(version, operators=operators, record_bytes=[30] * 5, settings={})


def told(host: Host) -> tuple[Any, Any]:
    """Version in force and version refused, as the heartbeat reports them."""
    state = host.state()
    refused = state["refused"]
    return state["refined"] and state["refined"]["version"], refused and refused["version"]


def test_refined_configuration_takes_effect_with_an_epoch_and_is_reported_at_once(tmp_path):
    host = Host(tmp_path, settings=by_hand(1.0))
    host.epochs(1)
    host.apply(refined=document())
    assert (told(host), host.news) == ((None, None), 0), "the epoch under way ends as it began"
    host.runtime.tick()
    assert (told(host), host.news) == ((118, None), 1)
    assert host.state()["refined"] == {"version": 118, "config": "c-118"}
    (row,) = host.epochs(1)
    assert (row["p"], row["v"]) == ([0.5, 0.5, 0.0, 0.0], 118)


def test_same_version_and_its_renewal_change_and_report_nothing(tmp_path):
    host = Host(tmp_path, refined=document())
    host.epochs(1)
    host.apply()
    host.epochs(1)
    host.apply(refined=document(valid_from_us=NOW_US + 1800 * SECOND_US))
    host.epochs(1)
    assert (told(host), host.news) == ((118, None), 1)
    host.clock.pass_s(4000)  # the first one's time is over
    host.epochs(1)
    assert told(host) == (118, None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"query": "here/other"}, "it is for query here/other; here runs here/probes"),
        ({"plan": "0" * 64}, "it is for plan 000000000000; here runs"),
        ({"agent": "somebody"}, "it is for agent somebody; this one is"),
        ({"valid_from_us": NOW_US - 3700 * SECOND_US}, "it was valid for 3600 s and is older"),
        ({"settings": {"method": "fixed", "load_factors": [1] * 5}}, "it sets 5 load factors; here may run 4"),
    ],
)
def test_document_for_another_agent_is_refused_with_its_reason_and_the_old_one_stays(tmp_path, changes, reason):
    host = Host(tmp_path, refined=document(117, 1.0))
    host.epochs(1)
    host.apply(refined=document(**changes))
    (row,) = host.epochs(1)
    assert (told(host), row["v"], row["p"][0], host.news) == ((117, 118), 117, 1.0, 2)
    assert reason in host.state()["refused"]["reasons"][0]
    host.apply(refined=document(119))
    host.epochs(1)
    assert told(host) == (119, None)


@pytest.mark.parametrize(
    ("torn", "version"),
    [
        (document() | {"config": "c-119"}, 118),
        ({name: value for name, value in document().items() if name != "query"}, 118),
        (document(settings={"method": "scalar", "margin": 0.5}), 118),
        (document(version=-4), None),
        ({"schema": 1}, None),
        ("c-118", None),
        ([], None),
    ],
)
def test_a_torn_document_is_refused_and_the_query_goes_on(tmp_path, torn, version):
    host = Host(tmp_path, settings=by_hand(0.7))
    host.apply(refined=torn)
    (row,) = host.epochs(1)
    assert (told(host), host.news, row["p"][0]) == ((None, version), 1, 0.7)
    assert host.state()["refused"]["reasons"]
    assert host.state()["faults"] == []


def test_late_version_is_refused_after_a_restart_too(tmp_path):
    host = Host(tmp_path, refined=document(118))
    host.epochs(1)
    host.refined = document(117)
    host.restart()
    host.epochs(1)
    assert told(host) == (None, 117)
    assert host.state()["refused"]["reasons"] == ["version 117 is not above 118, which is in force"]
    host.refined = document(118)
    host.restart()
    host.epochs(1)
    assert told(host) == (118, None), "what was taken before is taken up again"
    host.refined = document(118, 0.9)
    host.restart()
    host.epochs(1)
    assert told(host) == (None, 118), "the same number with other words"


def test_another_plan_of_the_query_keeps_the_newest_version(tmp_path):
    other = probes_pipeline(where="err = 1")
    host = Host(tmp_path, refined=document(118), pipelines=(PIPELINE,))
    host.epochs(1)
    host.reference.pipelines[other.digest] = other
    host.apply(pipelines=(other,), refined=document(117, plan=other.digest))
    host.epochs(1)
    assert told(host) == (None, 117)
    host.apply(refined=document(119, plan=other.digest))
    host.epochs(1)
    assert told(host) == (119, None)


def test_without_a_refined_configuration_the_settings_hold(tmp_path):
    host = Host(tmp_path, settings=by_hand(1.0), refined=document())
    host.epochs(1)
    host.apply(refined=None)
    assert host.epochs(1)[0]["p"] == [1.0, 0.0, 0.0, 0.0]
    assert (told(host), host.news) == ((None, None), 2)
    host.apply(refined=document())
    host.epochs(1)
    assert (told(host), host.news) == ((118, None), 3)


@pytest.mark.parametrize(("fallback", "factors"), [("local", [0.7, 0, 0, 0]), ("all-sp", [0.0] * 4)])
def test_refined_configuration_expires_while_the_console_is_away(tmp_path, fallback, factors):
    host = Host(tmp_path, settings=by_hand(0.7), refined=document(fallback=fallback))
    host.epochs(1)
    host.clock.pass_s(3601)
    (row,) = host.epochs(1)
    assert (row["p"], row["v"], told(host), host.news) == (factors, None, (None, None), 2)
    assert host.state()["faults"][0].startswith("c-118 was valid for 3,600 s and is older: on with ")
    host.restart()
    host.epochs(1)
    assert told(host) == (None, None), "what was taken before is not refused for its age"
    assert len(host.state()["faults"]) == 1
    host.apply(refined=document(fallback=fallback, valid_from_us=host.clock.wall_us()))
    host.epochs(1)
    assert (told(host), host.state()["faults"]) == ((118, None), [])


def test_costs_far_from_the_measured_ones_are_refused(tmp_path):
    host = Host(tmp_path, cores=0.8, settings=AdaptationSettings(method="all-src"))
    host.epochs(3)
    host.apply(refined=learned(118, cost_s=0.01, records=40))
    host.epochs(1)
    assert told(host) == (None, 118)
    assert any("more than tenfold apart" in reason for reason in host.state()["refused"]["reasons"])
    host.apply(refined=learned(119, cost_s=0.01, records=5000))
    host.epochs(1)
    assert told(host) == (119, None)


def test_learned_delays_start_a_stream(tmp_path):
    plan = {"lo": 1, "hi": 4, "theta": 0.4, "load_factors": [1.0, 0.4, 1.0, 1.0]}
    operators = [
        {"id": name, "cost_s": us / 1e6, "relay": relay, "records": 50_000}
        for name, us, relay in (("window", 10, 1.0), ("ok", 20, 0.8), ("tors", 40, 0.8), ("stats", 100, 0.1))
    ]
    says = document(operators=operators, record_bytes=[30] * 5, settings={}, plan_prior=plan)
    host = Host(tmp_path, cores=0.2, refined=says)
    assert host.epochs(1)[0]["p"] == pytest.approx([1.0, 0.4, 1.0, 1.0])
