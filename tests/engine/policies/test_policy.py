from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.errors import DocumentError
from engine.policies.calendar import Freeze, thaw_of
from engine.policies.policy import ClusterPolicy
from engine.policies.quotas import QuotaStanding, TeamDemand, quota_standings
from engine.policies.waits import expected_wait


def faults(document: Any) -> dict[str, str]:
    with pytest.raises(DocumentError) as refused:
        ClusterPolicy.parse(document)
    return {fault.path: fault.message for fault in refused.value.faults}


def freeze(**fields: Any) -> Freeze:
    return Freeze.parse({"name": "freeze", **fields})


class TestFaults:
    def test_all_faults_are_told_at_once_with_value_and_what_is_allowed(self) -> None:
        day = "2026-01-02T00:00:00+00:00"
        told = faults({
            "margin": 120,
            "override": {"roles": ["admitter"]},
            "freezes": [
                {"name": "back", "begins": day, "ends": "2026-01-01T00:00:00+00:00"},
                {"name": "nowhere", "every": {"days": ["sat"], "at": "22:00", "hours": 5, "time_zone": "Europe/Berin"}},
                {"name": "half", "begins": day},
            ],
            "classes": [{"name": "low", "priority": 0, "may_stop": ["high"]}, {"name": "high", "priority": 9}],
            "cohorts": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}],
            "teams": [{"team": "ads", "cohort": "c", "highest_class": "top"}, {"team": "ads"}],
        })  # fmt: skip
        assert set(told) == {
            "margin", "override.roles", "freezes[0].ends", "freezes[1].every.time_zone", "freezes[2].ends",
            "classes[0].may_stop[0]", "cohorts[0].parent", "cohorts[1].parent", "teams[0].cohort",
            "teams[0].highest_class", "teams[1].team",
        }  # fmt: skip
        assert told["margin"] == "margin is 120; allowed: a finite number from 0 to 0.9"
        assert "did you mean 'Europe/Berlin'" in told["freezes[1].every.time_zone"]
        assert "a in b in a" in told["cohorts[0].parent"]

    def test_more_of_a_pool_than_there_is_is_refused(self) -> None:
        teams = [{"team": name, "quotas": {"pools": [{"pool": "p", "share": 0.6}]}} for name in ("ads", "shop")]
        assert faults({"teams": teams}) == {
            "teams[1].quotas.pools[0].share": "share is 0.6, which makes 120% of p; allowed: up to 0.4"
        }
        assert set(faults({"teams": [{"team": "a", "quotas": {"pools": [{"pool": "p", "share": 1.2}]}}]})) == {
            "teams[0].quotas.pools[0].share"
        }


class TestFreezes:
    def test_weekly_freeze_goes_by_the_clock_of_its_zone(self) -> None:
        weekend = freeze(every={"days": ["fri"], "at": "18:00", "hours": 62, "time_zone": "Europe/Berlin"})
        summer, winter = datetime(2026, 7, 3, 16, tzinfo=UTC), datetime(2026, 12, 4, 17, tzinfo=UTC)
        for begin in (summer, winter):
            assert weekend.end_at(begin - timedelta(seconds=1)) is None
            assert weekend.end_at(begin) == begin + timedelta(hours=62)
            assert weekend.end_at(begin + timedelta(hours=62)) is None

    def test_freeze_over_the_change_of_clocks_lasts_its_hours(self) -> None:
        night = freeze(every={"days": ["sun"], "at": "01:00", "hours": 3, "time_zone": "Europe/Berlin"})
        begin = datetime(2026, 3, 29, 0, tzinfo=UTC)  # an hour before clocks go from 2 to 3
        assert night.end_at(begin + timedelta(hours=2)) == begin + timedelta(hours=3)

    def test_thaw_is_after_the_last_of_freezes_that_touch(self) -> None:
        at = datetime(2026, 5, 1, tzinfo=UTC)
        days = [at + timedelta(days=i) for i in range(3)]
        listed = [freeze(begins=days[0].isoformat(), ends=days[1].isoformat()),
                  freeze(begins=days[1].isoformat(), ends=days[2].isoformat(), teams=["ads"])]  # fmt: skip
        assert thaw_of(listed, at, "ads") == days[2]
        assert thaw_of(listed, at, "shop") == days[1]
        endless = [freeze(every={"days": [day], "at": "00:00", "hours": 167}) for day in ("mon", "thu")]
        assert thaw_of(endless, at, "ads") is None


POLICY = ClusterPolicy.parse({
    "cohorts": [{"name": "all"}, {"name": "shared", "parent": "all"}],
    "teams": [
        {"team": "ads", "cohort": "shared", "quotas": {"cores": {"nominal": 4, "borrowing_limit": 2}}},
        {"team": "shop", "cohort": "shared", "quotas": {"cores": {"nominal": 4, "lending_limit": 1}}},
        {"team": "alone", "quotas": {"cores": {"nominal": 1}, "pools": [{"pool": "p", "share": 0.5}]}},
    ],
})  # fmt: skip


def standing(team: str, used: dict[str, float], wanted: float = 1.0, **more: Any) -> QuotaStanding:
    usage = {name: TeamDemand({"cores": cores}, frozenset(more.get("unknown", ()))) for name, cores in used.items()}
    return quota_standings(POLICY, usage, team, TeamDemand({"cores": wanted}), {"p": 8.0})[0]


@pytest.mark.parametrize(
    ("ads", "shop", "available"),
    [(0, 0, 5), (4, 0, 1), (5, 0, 0), (4, 3.5, 0.5), (0, 5, 3), (9, 0, 0)],
    ids=["its own and what is lent", "what is lent", "no more", "the rest of it", "what others borrowed", "over it"],
)
def test_quota_lends_and_borrows_within_its_limits(ads: float, shop: float, available: float) -> None:
    assert standing("ads", {"ads": ads, "shop": shop}).available == available


def test_quota_of_a_pool_is_a_share_of_its_cores_and_what_nobody_knows_is_not_known() -> None:
    pool = quota_standings(POLICY, {}, "alone", TeamDemand({"pool:p": 4.5}), {"p": 8.0})[0]
    assert (pool.nominal, pool.is_exceeded) == (4.0, True)
    assert not standing("ads", {"shop": 1.0}, unknown=["cores"]).is_known
    assert quota_standings(POLICY, {}, "nobody", TeamDemand({"cores": 99.0}), {}) == ()


def test_wait_is_not_known_before_enough_are_over_and_tells_how_often_it_was_right() -> None:
    assert expected_wait([10.0] * 19) is None
    known = expected_wait([float(i % 10) for i in range(120)], waited_s=2.5)
    assert known is not None
    assert (known.low_s, known.high_s) == (0.5, 6.5)
    assert (known.held, known.judged) == (90, 100)
    assert expected_wait([float(i % 10) for i in range(120)], waited_s=9.0) is None
