"""Scheduling policies in small situations, and properties of every policy."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.klink.policies import MAKERS, Klink, QueryView, make_policy, starving_query
from engine.klink.settings import POLICIES

NOW_MS = 100_000.0


def query(name: str, **known: Any) -> QueryView:
    base: dict[str, Any] = {
        "queued": [10.0], "cost_ms": [1.0], "selectivity": [0.5], "work_ms": 10.0, "arrived_ms": NOW_MS - 100,
        "stimulus_ms": NOW_MS - 300, "deadline_ms": NOW_MS + 500, "slack_ms": 400.0, "ideal_ms": 1.0,
    }  # fmt: skip
    return QueryView(name, **base | known)


def here(name: str, **known: Any) -> QueryView:
    late: dict[str, Any] = {"deadline_ms": NOW_MS - 500, "pending_ms": NOW_MS - 200, "slack_ms": -210.0}
    return query(name, **late | {"pending_work_ms": 10.0} | known)


def picked(name: str, *views: QueryView, saturated: bool = False) -> str:
    index = make_policy(name).pick(views, NOW_MS, saturated)
    assert index is not None
    return views[index].id


def test_settings_name_only_existing_policies():
    assert set(POLICIES) <= set(MAKERS)
    with pytest.raises(KeyError):
        make_policy("luck")


def test_klink_runs_due_queries_before_those_with_little_slack():
    assert picked("klink", query("a", slack_ms=-50.0), here("b", slack_ms=-10.0)) == "b"


def test_klink_runs_the_relatively_latest_due_query_first():
    long, short = here("a", pending_work_ms=400.0), here("b", pending_work_ms=40.0)
    assert picked("klink", long, short) == "b"
    ancient = here("a", pending_work_ms=400.0, deadline_ms=NOW_MS - 60_000)
    assert picked("klink", ancient, short) == "a"


def test_klink_runs_the_lowest_slack_before_any_watermark_arrives():
    assert picked("klink", query("a", slack_ms=90.0), query("b", slack_ms=-3.0), query("c", slack_ms=0.0)) == "b"


def test_saturated_klink_prefers_short_windows_until_one_is_too_late():
    short, long = here("a", pending_work_ms=5.0), here("b", pending_work_ms=4_000.0, work_ms=4_000.0)
    assert picked("klink", short, long, saturated=True) == "a"
    late = here("b", pending_work_ms=4_000.0, work_ms=4_000.0, deadline_ms=NOW_MS - 5_000)
    assert picked("klink", short, late, saturated=True) == "b"
    assert picked("klink", query("a", slack_ms=-9_000.0), long, saturated=True) == "b"


def test_windows_of_unequal_work_may_be_later_before_short_ones_yield():
    def first(works: list[float], windows: int = 8) -> str:
        """After some windows of each query: what goes first where the last one is late."""
        turns = make_policy("klink")
        for window in range(windows):
            due_ms = NOW_MS - 500 + window
            others = [here(f"a{index}", pending_work_ms=work, work_ms=100.0, deadline_ms=due_ms)
                      for index, work in enumerate(works)]  # fmt: skip
            late = here("z", pending_work_ms=100.0, work_ms=600.0, deadline_ms=NOW_MS - 900 + window)
            shown = [*others, late]
            index = turns.pick(shown, NOW_MS, True)
        return shown[index or 0].id

    assert (first([90.0, 80.0, 90.0, 95.0]), first([1.0, 2.0, 3.0, 900.0])) == ("z", "a0")
    assert first([1.0, 2.0, 3.0, 900.0], windows=7) == "z", "bursts make few windows of equal queries differ, too"


def test_expiring_records_make_a_query_due():
    old = query("a", slack_ms=9_000.0, work_ms=50.0, expires_ms=NOW_MS + 20)
    assert picked("klink", old, query("b")) == "a"
    assert picked("klink", query("a", slack_ms=9_000.0, work_ms=50.0, expires_ms=NOW_MS + 3_000), query("b")) == "b"
    assert picked("klink", old, here("b", pending_work_ms=400.0, work_ms=4_000.0), saturated=True) == "a"
    assert picked("klink", old, here("b", pending_work_ms=4.0, work_ms=4_000.0), saturated=True) == "b"


def test_query_without_windows_waits_as_long_as_its_slack():
    windowless = query("a", deadline_ms=None, slack_ms=700.0)
    assert picked("klink", windowless, query("b")) == "b"
    overdue = query("a", deadline_ms=None, slack_ms=-5_000.0)
    assert picked("klink", overdue, here("b")) == "a"
    assert picked("klink", overdue, here("b"), saturated=True) == "a"
    just = query("a", deadline_ms=None, slack_ms=-1.0)
    assert picked("klink", just, here("b")) == "b"


def test_age_decides_when_nothing_is_known():
    young = query("a", deadline_ms=None, slack_ms=None, arrived_ms=NOW_MS)
    old = query("a", deadline_ms=None, slack_ms=None, arrived_ms=NOW_MS - 5_000)
    assert picked("klink", young, query("b")) == "b"
    assert picked("klink", old, query("b")) == "a"


def test_other_policies_rank_by_one_figure_each():
    early = query("a", stimulus_ms=1.0)
    assert picked("stimulus-time", query("b"), early) == "a"
    assert picked("fcfs", query("b"), query("a", arrived_ms=1.0)) == "a"


def test_round_robin_continues_while_queries_come_and_go():
    turns = make_policy("round-robin")
    views = {name: query(name) for name in "abcd"}

    def turn(names: str) -> str:
        shown = [views[name] for name in names]
        return shown[turns.pick(shown, NOW_MS) or 0].id

    assert [turn(names) for names in ("abc", "abc", "acd", "acd", "abcd", "d", "abcd")] == list("abcdada")


@pytest.mark.parametrize("name", POLICIES)
def test_no_query_gives_no_pick_and_ties_go_by_id(name):
    assert make_policy(name).pick([], NOW_MS) is None
    assert picked(name, query("b"), query("a"), query("c")) == "a"
    assert picked(name, query("b"), query("a"), query("c"), saturated=True) == "a"


def test_starving_query_is_found():
    waits = query("a", ran_ms=NOW_MS - 6_000, arrived_ms=NOW_MS - 9_000)
    longer = query("b", arrived_ms=NOW_MS - 7_000)
    served = query("c", ran_ms=NOW_MS - 100, arrived_ms=NOW_MS - 60_000)
    assert starving_query([served, waits, longer], NOW_MS, 5.0) == 2
    assert starving_query([served, waits], NOW_MS, 5.0) == 1
    assert starving_query([served], NOW_MS, 5.0) is None
    assert starving_query([], NOW_MS, 5.0) is None


ANY = st.none() | st.floats(allow_nan=True, allow_infinity=True)
FINITE = st.none() | st.floats(-1e12, 1e12)
VIEWS = st.lists(
    st.builds(
        lambda name, work, arrived, due, pending, slack: query(
            name, work_ms=work, arrived_ms=arrived, deadline_ms=due, pending_ms=pending, slack_ms=slack
        ),
        st.sampled_from("abcdef"), st.floats(0, 1e9), FINITE, FINITE, FINITE, ANY,
    ),
    min_size=1, max_size=6, unique_by=lambda view: view.id,
)  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(POLICIES), VIEWS, st.booleans())
def test_every_policy_picks_regardless_of_order_and_missing_figures(name, views, saturated):
    index = make_policy(name).pick(views, NOW_MS, saturated)
    backwards = make_policy(name).pick(views[::-1], NOW_MS, saturated)
    assert index is not None and backwards is not None
    assert views[index] == views[::-1][backwards] or views[index].id == views[::-1][backwards].id


@settings(deadline=None)
@given(VIEWS)
def test_order_is_what_picks_would_be_one_after_another(views):
    order, left, picks = Klink().order(views, NOW_MS), list(views), []
    while left:
        picks.append(left.pop(Klink().pick(left, NOW_MS)))
    assert [views[index].id for index in order] == [view.id for view in picks]


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("saturated", [False, True])
def test_query_without_windows_is_served_beside_endless_windows(name, saturated):
    """Two queries whose windows are always due share a core with one that has none: all run, none alone."""
    runs = dict.fromkeys("abc", 0)
    turns, since = make_policy(name), dict.fromkeys("abc", 0.0)
    for step in range(600):
        now_ms = 1_000.0 + step * 120
        views = [
            QueryView(
                entry, [10.0], [1.0], [0.5], 60.0, arrived_ms=since[entry], stimulus_ms=since[entry],
                deadline_ms=None if entry == "c" else since[entry], pending_ms=None if entry == "c" else since[entry],
                pending_work_ms=60.0,
                slack_ms=since[entry] + (330.0 if entry == "c" else 0.0) - now_ms - 60, ideal_ms=1.0,
            )
            for entry in "abc"
        ]  # fmt: skip
        index = turns.pick(views, now_ms, saturated)
        assert index is not None
        runs[views[index].id] += 1
        since[views[index].id] = now_ms
    assert min(runs.values()) > 100
