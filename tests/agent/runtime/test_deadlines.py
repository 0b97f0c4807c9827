"""Latency constraints under overload: what is processed, sent on at once or shed, and what was in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.config import AgentConfig
from agent.runtime.deadlines import WaitingRecords, records_to_drop
from engine.klink.settings import ScheduleSettings
from tests.agent.runtime.epochs import ALL, by_hand
from tests.agent.runtime.hosts import PIPELINE, QUERY, Host, exact
from tests.agent.runtime.pipelines import probes_pipeline
from tests.agent.runtime.scheduler_bench import counting

SECOND_US = 1_000_000
STREAM_S = 2.0
OVERLOAD = {
    "rate_per_s": 600,
    "cores": 0.3,
    "settings": ALL,
    "sub_epochs": 4,
}  # two and a half times what there is time for
PATIENT = ScheduleSettings(backlog_periods=1.0, backlog_most_s=6.0)


class DeadlineHost(Host):
    """A host whose queries have these latency constraints, in their order."""

    def __init__(self, folder: Any, constraints_s: tuple[float | None, ...], **options: Any) -> None:
        self.constraints_s = constraints_s
        self.priorities: tuple[int, ...] = options.pop("priorities", (0,) * len(constraints_s))
        self.shed_late: bool = options.pop("shed_late", False)
        super().__init__(folder, schedule=PATIENT, stream_delay_s=STREAM_S, **{**OVERLOAD, **options})
        self.costs_us = {name: 10 * cost_us for name, cost_us in self.costs_us.items()}

    def config(self) -> AgentConfig:
        told = super().config()
        queries = zip(told.queries, self.constraints_s, self.priorities, strict=True)
        return replace(
            told,
            queries=tuple(
                replace(query, latency_constraint_s=limit_s, priority=priority, shed_late=self.shed_late)
                for query, limit_s, priority in queries
            ),
        )


def latencies_s(rows: list[dict[str, Any]]) -> list[float]:
    """From the end of each window until it left the agent."""
    return [(window[5] - window[0]) / SECOND_US for row in rows for window in row["w"]]


def counted_sums(host: Host, query: str = QUERY) -> dict[str, int]:
    names = ("records_in", "records_processed", "records_drained", "records_overflow", "records_shed")
    return {name: host.reference.total(name, entry=0, query=query) for name in names}


def test_windows_are_in_time_under_overload_and_exact(tmp_path: Any) -> None:
    host = DeadlineHost(tmp_path, (4.0,))
    rows = host.epochs(32)
    assert host.runtime.state()["schedule"]["mode"] == "saturated"
    assert latencies_s(rows)[1:]  # the first may end before the overload is seen
    assert max(latencies_s(rows)[1:]) <= 4.0 - STREAM_S
    assert sum(row["ot"] for row in rows) == sum(row["oc"] for row in rows) == len(latencies_s(rows))
    assert sum(row["u"] for row in rows) > 0.95 * 32 * 0.3  # no time is left unused
    sums = counted_sums(host)
    queued = rows[-1]["q"]
    gone = sums["records_processed"] + sums["records_drained"] + sums["records_overflow"]
    assert sums["records_in"] == gone + queued
    assert sums["records_shed"] == 0
    assert exact(host)


def test_records_before_a_late_watermark_are_due_with_the_window_that_it_ends(tmp_path: Any) -> None:
    host = DeadlineHost(tmp_path, (4.0,))
    host.source.watermark_us = lambda: max(host.source._asked_us - 900_000, 0)  # a second's records of the next window
    rows = host.epochs(24)
    assert latencies_s(rows)[1:]
    assert max(latencies_s(rows)[1:]) <= 4.0 - STREAM_S


def test_without_a_constraint_records_wait_as_long_as_they_may(tmp_path: Any) -> None:
    rows = DeadlineHost(tmp_path, (None,)).epochs(18)
    assert max(latencies_s(rows)) > 5
    assert all("oc" not in row and row["sl"] == 0 for row in rows)


def test_constraint_that_nobody_can_keep_changes_nothing(tmp_path: Any) -> None:
    (without, within) = (DeadlineHost(tmp_path / name, (limit_s,)) for name, limit_s in (("a", None), ("b", 2.5)))
    rows, others = without.epochs(18), within.epochs(18)
    assert [row["q"] for row in rows] == [row["q"] for row in others]
    assert sum(row["oc"] for row in others) == 1
    assert sum(row["ot"] for row in others) == 0


def test_without_overload_nothing_is_given_up(tmp_path: Any) -> None:
    host = DeadlineHost(tmp_path, (4.0,), rate_per_s=100)
    rows = host.epochs(25)
    assert sum(row["o"] for row in rows) == 0
    assert sum(row["ot"] for row in rows) == sum(row["oc"] for row in rows) == 2


@pytest.mark.parametrize("shed_late", [False, True])
def test_records_that_are_late_everywhere_are_shed_only_where_that_is_allowed(tmp_path: Any, shed_late: bool) -> None:
    host = DeadlineHost(tmp_path, (4.0,), shed_late=shed_late)
    before = host.epochs(17)
    assert sum(row["sl"] for row in before) == 0
    host.clock.pass_s(6)  # the host sleeps, until well after the window's end
    rows = host.epochs(1)
    sums = counted_sums(host)
    assert (sum(row["sl"] for row in rows) > 0) == shed_late
    assert sums["records_shed"] == sum(row["sl"] for row in rows)
    assert sums["records_overflow"] >= sums["records_shed"]


def test_records_of_a_query_without_windows_count_when_they_leave(tmp_path: Any) -> None:
    host = DeadlineHost(tmp_path, (4.0,), pipelines=(counting(None),), settings=by_hand(1.0))
    host.costs_us["keep"] = 1200.0
    host.reference.take = lambda data: None  # it knows queries with windows only
    rows = host.epochs(12)
    records = sum(row["oc"] for row in rows)
    assert records == sum(row["n"] for row in rows) - rows[-1]["q"]
    assert sum(row["ot"] for row in rows) == records  # nothing outlives an epoch


def test_query_without_a_constraint_keeps_its_share(tmp_path: Any) -> None:
    host = DeadlineHost(tmp_path, (4.0, None), pipelines=(PIPELINE, probes_pipeline(where="err = 1")))
    rows = host.epochs(24)
    assert max(latencies_s(rows)[1:]) <= 4.0 - STREAM_S
    used = [host.reference.total("used_cpu_ns", entry=0, query=query) for query in (QUERY, f"{QUERY}-1")]
    assert 0.4 < used[0] / sum(used) < 0.6
    assert exact(host)


def test_records_of_higher_priority_are_processed_and_the_others_sent_on() -> None:
    def dropped(*priorities: int) -> list[int]:
        dues = [(1_000_000, 60), (2_000_000, 40)]
        waiting = [WaitingRecords(dues, 0.01, 2.0**priority, 2.0) for priority in priorities]
        return records_to_drop(waiting, now_us=0, ends_us=1_000_000, epoch_us=1_000_000, begun_s=0.0, cores=0.5)

    assert dropped(0, 1) == [90, 10]  # fifty fit into each second
    assert dropped(1, 0) == [10, 90]
    assert sum(dropped(0, 0)) == 100


def test_work_that_was_begun_goes_first() -> None:
    waiting = WaitingRecords([(3_400_000, 100)], 0.01, 1.0, 2.0)
    times = {"now_us": 2_000_000, "ends_us": 2_500_000, "epoch_us": 500_000, "cores": 1.0}
    assert records_to_drop([waiting], begun_s=0.0, **times) == [0]  # epochs end at 2.5 and 3.0: a second is left
    assert records_to_drop([waiting], begun_s=0.4, **times) == [40]


@pytest.mark.parametrize("long_s", [3.0, 86_400.0, 1e9])
def test_long_constraint_leaves_short_ones_their_time(long_s: float) -> None:
    short = WaitingRecords([(2 * SECOND_US, 50)], 0.01, 1.0, 3.0)
    long = WaitingRecords([(round(long_s * SECOND_US), 50)], 0.01, 1.0, long_s)
    times = {"now_us": 0, "ends_us": SECOND_US, "epoch_us": SECOND_US, "begun_s": 0.0, "cores": 1.0}
    assert records_to_drop([short, long], **times) == [0, 0]


@pytest.mark.parametrize("years", [-1, 1])
def test_clock_that_is_a_year_off_leaves_other_queries_alone(years: int) -> None:
    sane = WaitingRecords([(2 * SECOND_US, 10)], 0.01, 1.0, 3.0)
    odd = WaitingRecords([(years * 365 * 86_400 * SECOND_US, 5)], 0.01, 1.0, 3.0)
    drops = records_to_drop([sane, odd], now_us=0, ends_us=SECOND_US, epoch_us=SECOND_US, begun_s=0.0, cores=1.0)
    assert drops == [0, 5 if years < 0 else 0]
