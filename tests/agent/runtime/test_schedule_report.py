"""Reports of scheduling: heartbeat, rows of epochs, swept windows; and refined schedules."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from engine.dataflow import Pipeline
from engine.klink.settings import ScheduleSettings
from engine.refined_document import seal
from tests.agent.runtime.doubles import SECOND_US
from tests.agent.runtime.epochs import ALL
from tests.agent.runtime.hosts import COSTS_US, PIPELINE, QUERY, Host, exact
from tests.agent.runtime.pipelines import AGENT, probes_pipeline

NOW_US = 1_700_000_000 * SECOND_US
OTHER = probes_pipeline(slide_s=5)


def document(version: int = 12, policy: str = "round-robin", **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "schema": 1,
        "config": f"c-{version}",
        "version": version,
        "parent": version - 1,
        "agent": AGENT,
        "schedule": {"policy": policy},
        "valid_from_us": NOW_US,
        "ttl_s": 3600,
        "fallback": "default",
    }
    return seal({**fields, **changes})


def host_of(tmp_path, *pipelines: Pipeline, **options: Any) -> Host:
    host = Host(tmp_path, settings=ALL, cores=0.9, rate_per_s=500, pipelines=pipelines or (PIPELINE,), **options)
    host.costs_us = COSTS_US
    return host


def told(host: Host) -> tuple[Any, ...]:
    """Policy in force, its version, and which version was refused."""
    says = host.runtime.state()["schedule"]
    return (
        says["policy"],
        says["refined"] and says["refined"]["version"],
        says["refused"] and says["refused"]["version"],
    )


def test_the_heartbeat_says_how_queries_share_the_core(tmp_path):
    host = host_of(tmp_path)
    host.epochs(2)
    assert host.runtime.state()["schedule"] == {
        "policy": "klink",
        "mode": "latency",
        "memory_bytes": 0,
        "memory_bound": 4 * 2**20,
        "cycle_ms": 120.0,
        "starved": 0,
        "reason": "watermarks that are here by how late they are for their work, then least slack",
        "refined": None,
        "refused": None,
    }
    assert host.state()["late"] == ""


def test_rows_report_backlog_forecast_sweeps_and_spans(tmp_path):
    host = host_of(tmp_path, PIPELINE, OTHER)
    rows = host.epochs(45)
    assert all(row["q"] == row["qb"] == 0 for row in rows), "there is time for everything"
    assert all(row["t"] and 0 <= begin <= 1000 and length > 0 for row in rows for begin, length in row["t"])
    swept = [sweep for row in rows for sweep in row["w"]]
    deadlines = [deadline for deadline, *_ in swept]
    assert deadlines == [NOW_US + k * 10 * SECOND_US for k in range(1, 5)]
    assert [least is None for _, least, *_ in swept] == [True, True, True, False], "from three windows on"
    for deadline_us, _, _, arrived_us, swept_us, emitted_us in swept:
        assert deadline_us <= arrived_us <= swept_us <= emitted_us <= deadline_us + 2 * SECOND_US
    mean_us, least_us, most_us = rows[-1]["x"]
    assert least_us <= mean_us <= most_us < NOW_US + 52 * SECOND_US
    assert mean_us >= NOW_US + 50 * SECOND_US
    assert 3 < rows[-1]["l"] < 6
    other = host.runtime.unreported()[f"{QUERY}-1"]
    assert len([sweep for row in other for sweep in row["w"]]) == 9 - 1


def test_rows_forecast_an_overdue_watermark_from_now_on(tmp_path):
    host, draw = host_of(tmp_path), random.Random(2)
    host.source.watermark_us = lambda: host.source._asked_us - draw.randrange(SECOND_US)  # type: ignore[method-assign]
    host.epochs(250)
    stood_us = host.source.watermark_us()
    host.source.watermark_us = lambda: stood_us  # type: ignore[method-assign]
    rows = host.epochs(30)[-2:]
    (_, least_us, _), (mean_us, later_us, most_us) = (row["x"] for row in rows)
    assert later_us - least_us == pytest.approx(SECOND_US, abs=10_000)
    assert stood_us + 25 * SECOND_US < later_us <= mean_us <= most_us


def test_swept_windows_go_to_the_stream_processor(tmp_path):
    host = host_of(tmp_path)
    rows = host.epochs(45)
    sent = host.reference.sweeps
    names = ("deadline_us", "least_us", "most_us", "arrived_us", "swept_us", "emitted_us")
    assert [[sweep[name] for name in names] for sweep in sent] == [sweep for row in rows for sweep in row["w"]]
    first, *_, last = sent
    assert (first["query"], first["plan"], first["stream"]) == (QUERY, PIPELINE.digest, "probes")
    assert first["period_us"] == 10 * SECOND_US
    assert first["mean_us"] is None
    assert last["least_us"] <= last["mean_us"] <= last["most_us"]
    assert all(sweep["delay_s"] == (sweep["arrived_us"] - sweep["deadline_us"]) / 1e6 for sweep in sent)
    assert not any(sweep["clamped"] for sweep in sent)


def test_clock_that_is_ahead_is_clamped_and_reported(tmp_path):
    host = host_of(tmp_path)
    host.source.watermark_us = lambda: host.source._asked_us + 7 * SECOND_US  # type: ignore[method-assign]
    host.epochs(45)
    assert [(sweep["delay_s"], sweep["clamped"]) for sweep in host.reference.sweeps] == [(0.0, True)] * 5
    assert host.state()["late"] == "event time is 7 s ahead of the clock"


def test_a_stream_whose_watermark_stands_still_is_late_and_its_query_goes_on(tmp_path):
    host = host_of(tmp_path, PIPELINE, OTHER, sub_epochs=2)
    host.epochs(30)
    stood_us = host.source.watermark_us()
    host.source.watermark_us = lambda: stood_us  # type: ignore[method-assign]
    rows = host.epochs(120)
    assert host.state()["late"] == "no watermark for 120 s"
    assert all(row["t"] for row in rows), "records are processed as they come"
    assert host.reference.total("records_overflow") == 0
    del host.source.watermark_us
    host.epochs(2)
    assert host.state()["late"] == ""


@pytest.mark.parametrize("policy", ["klink", "stimulus-time", "fcfs", "round-robin"])
def test_results_do_not_depend_on_the_policy(tmp_path, policy):
    host = host_of(tmp_path, PIPELINE, OTHER, schedule=ScheduleSettings(policy=policy))
    host.epochs(12)
    host.costs_us = {name: 30 * cost_us for name, cost_us in COSTS_US.items()}
    host.epochs(10)
    assert host.reference.total("records_overflow") > 0
    assert exact(host)


def test_a_query_whose_cost_explodes_takes_nothing_from_the_others_windows(tmp_path):
    host = host_of(tmp_path, PIPELINE, OTHER, schedule=ScheduleSettings(starvation_s=2))
    host.epochs(20)
    dear = host.runtime._registry.pipelines[QUERY, PIPELINE.digest]
    dear.stages[0].kernel._host = _DearHost(host)
    host.epochs(30)
    other = host.runtime.unreported()[f"{QUERY}-1"][-20:]
    assert all(row["t"] for row in other), "no epoch without a turn"
    assert len([sweep for row in other for sweep in row["w"]]) == 4


class _DearHost:
    """A thousand times the cost, of one query's operators."""

    def __init__(self, host: Host) -> None:
        self.clock, self.broken = host.clock, host.broken
        self.costs_us = {name: 1000 * cost_us for name, cost_us in COSTS_US.items()}


# Refined schedules


def test_refined_schedule_takes_effect_with_an_epoch_and_is_reported_at_once(tmp_path):
    host = host_of(tmp_path, schedule=ScheduleSettings(policy="fcfs"))
    host.epochs(1)
    host.apply(refined_schedule=document())
    assert (told(host), host.news) == (("fcfs", None, None), 0)
    host.runtime.tick()
    assert (told(host), host.news) == (("round-robin", 12, None), 1)
    assert host.runtime.state()["schedule"]["refined"] == {"version": 12, "config": "c-12"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 13, "agent": "somebody"}, "it is for agent somebody; this one is"),
        ({"version": 13, "valid_from_us": NOW_US - 3700 * SECOND_US}, "it was valid for 3600 s and is older"),
        ({"version": 11, "config": "c-11"}, "version 11 is not above 12, which is in force"),
        ({"version": 13, "schedule": {"cycle_ms": 5}}, "schedule.cycle_ms: cycle_ms is 5; allowed:"),
        ({"version": 13, "schedule": {"policy": "luck"}}, "schedule.policy: policy is"),
        ({"version": 13, "fallback": "none"}, "fallback: fallback is"),
    ],
)
def test_schedule_of_another_agent_is_refused_and_the_old_one_stays(tmp_path, changes, reason):
    host = host_of(tmp_path, refined_schedule=document(12))
    host.epochs(1)
    host.apply(refined_schedule=document(**changes))
    host.epochs(1)
    assert told(host) == ("round-robin", 12, changes.get("version", 12))
    assert reason in host.runtime.state()["schedule"]["refused"]["reasons"][0]


def test_torn_refined_document_is_refused_without_refusing_the_configuration(tmp_path):
    host = host_of(tmp_path)
    host.apply(refined_schedule=document() | {"config": "c-13"})
    host.epochs(1)
    assert told(host) == ("klink", None, 12)
    assert host.runtime.state()["config_version"] == 2


def test_expired_schedule_gives_way_to_the_configured_one(tmp_path):
    host = host_of(tmp_path, refined_schedule=document())
    host.epochs(1)
    host.clock.pass_s(3601)
    host.epochs(1)
    assert (told(host), host.news) == (("klink", None, None), 2)
    assert host.runtime.state()["faults"] == [
        "c-12 was valid for 3,600 s and is older: on with the schedule of the configuration"
    ]


def test_older_version_is_refused_after_a_restart_too(tmp_path):
    host = host_of(tmp_path, refined_schedule=document(12))
    host.epochs(1)
    host.refined_schedule = document(11)
    host.restart()
    host.epochs(1)
    assert told(host) == ("klink", None, 11)
    host.refined_schedule = document(12)
    host.restart()
    host.epochs(1)
    assert told(host) == ("round-robin", 12, None)


@pytest.mark.process
def test_an_agent_that_schedules_loads_neither_scipy_nor_numba():
    code = "import sys, agent.runtime.runtime; print(sorted({'scipy', 'numba', 'pandas'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
