"""Calendar rules over years and zones: gaps, hours that come twice, days that do not exist."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Any
from zoneinfo import ZoneInfo

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.core.errors import Malformed
from apps.reports.calendar import EVERY, RULE_FIELDS, last_due, next_run, read_rule, runs_after

BERLIN = ZoneInfo("Europe/Berlin")
START = date(2026, 1, 1)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia"]


def clocks(rule: dict[str, Any], after: datetime, count: int = 4, zone: ZoneInfo = BERLIN) -> list[str]:
    runs = islice(runs_after(read_rule(rule), zone, after, START), count)
    return [f"{run.at.astimezone(zone):%Y-%m-%d %H:%M}" for run in runs]


def test_clock_time_skipped_by_daylight_saving_is_due_at_the_next_one() -> None:
    rule = read_rule({"every": "day", "at": "02:30"})
    run = next_run(rule, BERLIN, datetime(2026, 3, 28, 12, tzinfo=UTC), START)
    assert run is not None
    assert run.at == datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    assert "02:30 does not exist on 29 Mar 2026" in run.note
    assert "due 03:00" in run.note


def test_repeated_hour_of_daylight_saving_is_due_once() -> None:
    after = datetime(2026, 10, 24, 12, tzinfo=UTC)
    assert clocks({"every": "day", "at": "02:30"}, after, 2) == ["2026-10-25 02:30", "2026-10-26 02:30"]
    hourly = list(
        islice(runs_after(read_rule({"every": "hours", "hours": 1, "at": "00:00"}), BERLIN, after, START), 20)
    )
    two = [run for run in hourly if run.at.astimezone(BERLIN).hour == 2 and run.at.day == 25]
    assert len(two) == 1


def test_day_31_skips_shorter_months_or_falls_on_their_last_day() -> None:
    after = datetime(2027, 1, 15, tzinfo=UTC)
    skipped = {"every": "month", "day": 31, "at": "07:00"}
    assert clocks(skipped, after, 3) == ["2027-01-31 07:00", "2027-03-31 07:00", "2027-05-31 07:00"]
    last = {**skipped, "short_month": "last"}
    assert clocks(last, after, 3) == ["2027-01-31 07:00", "2027-02-28 07:00", "2027-03-31 07:00"]
    assert clocks({"every": "month", "day": "last", "at": "07:00"}, after, 2) == [
        "2027-01-31 07:00",
        "2027-02-28 07:00",
    ]
    nth = {"every": "month", "nth": -1, "weekday": "fri", "at": "07:00"}
    assert clocks(nth, after, 2) == ["2027-01-29 07:00", "2027-02-26 07:00"]
    assert clocks({"every": "year", "month": 2, "day": 29, "at": "07:00"}, after, 1) == ["2028-02-29 07:00"]


@pytest.mark.parametrize(
    ("rule", "path", "said"),
    [
        ({"every": "year", "month": 2, "day": 30, "at": "07:00"}, "rule.day", "30 February never comes"),
        ({"every": "rrule", "rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30"}, "rule.rrule", "never comes"),
        ({"every": "rrule", "rrule": "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30;COUNT=2"}, "rule.rrule", "never comes"),
        ({"every": "rrule", "rrule": "FREQ=SECONDLY"}, "rule.rrule", "allowed are DAILY"),
        ({"every": "rrule", "rrule": "FREQ=DAILY;INTERVAL=0"}, "rule.rrule", "from 1 to 1000"),
        ({"every": "rrule", "rrule": "FREQ=DAILY;BYHOUR=1,2,3,4,5;BYMINUTE=1,2,3,4,5"}, "rule.rrule", "25 times a day"),
        ({"every": "week", "at": "07:00", "days": []}, "rule.days", "allowed is a list of mon"),
        ({"every": "day", "at": "24:00"}, "rule.at", "from 00:00 to 23:59"),
        ({"every": "hours", "hours": 5, "at": "00:00"}, "rule.hours", "allowed are 1, 2, 3, 4, 6, 8, 12"),
        ({"every": "day", "at": "07:00", "dayz": 1}, "rule.dayz", "unknown field"),
        ({"every": "moon"}, "rule.every", "allowed are day, week"),
        ({"every": ["day"]}, "rule.every", "allowed are day, week"),
        ({"every": {}}, "rule.every", "allowed are day, week"),
    ],
)
def test_invalid_rule_is_refused_by_field(rule: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(Malformed) as error:
        read_rule(rule)
    assert [fault.path for fault in error.value.faults] == [path]
    assert said in error.value.faults[0].message


def test_interval_counts_from_the_first_day_of_the_rule() -> None:
    rule = {"every": "rrule", "rrule": "RRULE:FREQ=WEEKLY;INTERVAL=2;BYDAY=MO;BYHOUR=7;COUNT=3"}
    after = datetime(2026, 1, 1, tzinfo=UTC)
    assert clocks(rule, after, 5) == ["2026-01-12 07:00", "2026-01-26 07:00", "2026-02-09 07:00"]
    assert next_run(read_rule(rule), BERLIN, datetime(2026, 3, 1, tzinfo=UTC), START) is None


def test_missed_times_are_counted_and_the_last_one_found() -> None:
    rule, first = read_rule({"every": "day", "at": "07:00"}), datetime(2026, 6, 1, 5, tzinfo=UTC)
    assert last_due(rule, BERLIN, first, datetime(2026, 6, 4, 12, tzinfo=UTC), START) == (
        datetime(2026, 6, 4, 5, tzinfo=UTC),
        4,
    )


times = st.builds(lambda h, m: f"{h:02d}:{m:02d}", st.integers(0, 23), st.integers(0, 59))
rules = st.one_of(
    st.fixed_dictionaries({"every": st.just("day"), "at": times}),
    st.fixed_dictionaries({"every": st.just("hours"), "at": times, "hours": st.sampled_from([1, 2, 3, 4, 6, 8, 12])}),
    st.fixed_dictionaries(
        {
            "every": st.just("week"),
            "at": times,
            "days": st.lists(st.sampled_from(["mon", "wed", "sun"]), min_size=1, unique=True),
        }
    ),
    st.fixed_dictionaries(
        {
            "every": st.just("month"),
            "at": times,
            "day": st.one_of(st.integers(1, 31), st.just("last")),
            "short_month": st.sampled_from(["skip", "last"]),
        }
    ),
)


@settings(max_examples=60, deadline=None)
@given(rules, st.sampled_from(ZONES), st.integers(0, 30 * 365 * 24 * 60))
def test_runs_ascend_and_match_the_clock_of_the_rule(rule: dict[str, Any], name: str, minutes: int) -> None:
    """Each instant once, in order; on the clock of the rule unless that time does not exist there."""
    zone, after = ZoneInfo(name), datetime(2005, 1, 1, tzinfo=UTC) + timedelta(minutes=minutes)
    runs = list(islice(runs_after(read_rule(rule), zone, after, START), 60))
    assert len(runs) == 60
    assert runs[0].at > after
    assert all(a.at < b.at for a, b in pairwise(runs))
    for run in runs:
        local = run.at.astimezone(zone).replace(tzinfo=None)
        if run.note:
            assert local > run.clock
            assert (run.at - timedelta(seconds=1)).astimezone(zone).replace(tzinfo=None) < run.clock
        else:
            assert local == run.clock
            assert run.at.astimezone(zone).fold == 0
    again = next_run(read_rule(rule), zone, runs[10].at, START)
    assert again is not None and again.at == runs[11].at


def test_description_of_rules_has_every_field_that_a_kind_takes() -> None:
    assert RULE_FIELDS.keys() == {"every", *(name for names in EVERY.values() for name in names)}
    schema = {"type": "object", "properties": RULE_FIELDS, "required": ["every"], "additionalProperties": False}
    for rule in (
        {"every": "week", "days": ["mon", "fri"], "at": "07:00"},
        {"every": "month", "day": "last", "at": "23:59"},
        {"every": "month", "nth": -1, "weekday": "sun", "at": "00:00"},
        {"every": "year", "month": 2, "day": 29, "short_month": "last", "at": "06:30"},
        {"every": "hours", "hours": 6, "at": "01:15"},
        {"every": "rrule", "rrule": "FREQ=DAILY;BYHOUR=7"},
    ):
        read_rule(rule)
        jsonschema.validate(rule, schema)
    for wrong in ({"every": "week", "days": ["someday"]}, {"every": "day", "at": "24:00"}, {"every": "never"}):
        with pytest.raises(Malformed):
            read_rule(wrong)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, schema)
