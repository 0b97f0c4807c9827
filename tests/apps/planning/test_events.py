"""Events: read with every fault at once, through nights when clocks change; answered; held against what came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.accounts.teams import team_named
from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.models import Cluster
from apps.jobs.models import JobState
from apps.planning.choices import RunState
from apps.planning.event_answers import EVENT, event_answer, event_changes
from apps.planning.event_checklists import check_add, check_set, checklist_of
from apps.planning.event_factors import factors_text, text_factors
from apps.planning.event_outcomes import event_outcome
from apps.planning.event_times import Occurrence, occurrence_at, occurrences
from apps.planning.events import event_create, event_update
from apps.planning.models import EventRun, LoadHistory, PlannedEvent
from apps.queries.arrivals import series
from apps.reports.node_counts import node_counts
from tests.apps import small_cluster
from tests.clock import run_moment

pytestmark = [pytest.mark.django_db, pytest.mark.moment]

NOW = run_moment().replace(minute=0, second=0, microsecond=0)
DAY = timedelta(days=1)


@pytest.fixture
def cluster() -> Cluster:
    """`first` takes 0.5 of node a, and `report`, of lower priority, 0.2 of it."""
    cluster = small_cluster.small_cluster()
    cluster.pools.update(price_per_hour=2)
    first = small_cluster.start_query(cluster, "first", 0.5, "a")
    first.priority, first.team = 5, team_named("ads")
    first.save()
    small_cluster.start_query(cluster, "report", 0.2, "a", bound_s=None)
    return cluster


def planned(cluster: Cluster, **fields: Any) -> PlannedEvent:
    given = {"factors": [{"of": "source", "name": "clicks", "by": 1.6}], "starts_at": NOW + 2 * DAY}
    given |= {"ends_at": NOW + 2 * DAY + timedelta(hours=4), "lose_one": False, "lead_time_days": 1.0}
    return event_create(cluster=cluster, user=None, **{"name": "Friday", **given, **fields})


def answered(event: PlannedEvent) -> EventRun:
    run, _ = EVENT.request(event=event, user=None)
    (job,) = [job for job in small_cluster.run_jobs() if job.pk == run.job_id]
    assert job.state == JobState.SUCCEEDED, job.error
    run.refresh_from_db()
    return run


def history(cluster: Cluster, rates: list[float], ends_at: datetime) -> LoadHistory:
    values = 3600.0 * np.array(rates)
    return LoadHistory.objects.create(
        cluster=cluster, source_id="clicks", origin="upload", evidence="measured", bucket_s=3600,
        starts_at=ends_at - timedelta(hours=len(rates)), buckets=len(rates), events=float(np.nansum(values)),
        data=series.pack(values), digest=series.digest(values),
    )  # fmt: skip


def test_every_fault_of_an_event_is_told_at_once_and_nothing_is_stored(cluster: Cluster) -> None:
    factors = [
        {"of": "source", "name": "click", "by": 3},
        {"of": "team", "name": "ads", "by": 0},
        {"of": "rest", "by": -1},
        {"of": "class", "name": "gold", "by": 2},
    ]
    with pytest.raises(Malformed) as refused:
        event_create(
            cluster=cluster, name="Bad", user=None, factors=factors, starts_at="2026-11-30T00:00",
            ends_at="2026-11-27T08:00", time_zone="Europe/Berlin", owner="nobody-here", lead_time_days=-1,
        )  # fmt: skip
    assert {fault.path for fault in refused.value.faults} == {
        "factors[0].name", "factors[1].by", "factors[2].by", "factors[3].name", "ends_at", "owner", "lead_time_days",
    }  # fmt: skip
    assert "clicks" in str([fault.message for fault in refused.value.faults])
    assert not PlannedEvent.objects.exists()
    planned(cluster)
    with pytest.raises(Conflict, match="Friday"):
        planned(cluster)
    with pytest.raises(Malformed, match="factors"):
        planned(cluster, name="Empty", factors=[])


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ("2027-03-28T02:30", "leave out; allowed: 03:30"),
        ("2026-10-25T02:30", "comes twice"),
        ("soon", "allowed: a time"),
    ],
)
def test_a_time_that_clocks_leave_out_or_repeat_is_a_fault(cluster: Cluster, starts: str, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        planned(cluster, starts_at=starts, ends_at="2027-04-01T00:00", time_zone="Europe/Berlin")


def test_a_time_with_its_offset_is_taken_as_it_is(cluster: Cluster) -> None:
    starts = "2026-10-25T02:30+01:00"
    event = planned(cluster, starts_at=starts, ends_at="2026-10-25T08:00", time_zone="Europe/Berlin")
    assert event.starts_at == datetime(2026, 10, 25, 1, 30, tzinfo=UTC)


def test_a_weekly_event_keeps_its_hour_through_a_change_of_clocks(cluster: Cluster) -> None:
    event = planned(
        cluster, starts_at="2026-10-20T08:00", ends_at="2026-10-20T10:00", time_zone="Europe/Berlin", repeat="weekly"
    )
    found = occurrence_at(event, datetime(2026, 10, 26, tzinfo=UTC))
    assert found == Occurrence(datetime(2026, 10, 27, 7, tzinfo=UTC), datetime(2026, 10, 27, 9, tzinfo=UTC))


def test_a_monthly_event_of_the_31st_comes_on_the_last_day_of_shorter_months(cluster: Cluster) -> None:
    event = planned(
        cluster, starts_at="2026-01-31T08:00", ends_at="2026-01-31T10:00", time_zone="UTC", repeat="monthly"
    )
    days = [found.starts_at.day for found, _ in zip(occurrences(event), range(4), strict=False)]
    assert days == [31, 28, 31, 30]


def test_an_event_that_lasts_longer_than_it_repeats_is_refused(cluster: Cluster) -> None:
    with pytest.raises(Malformed, match="less often than it lasts"):
        planned(cluster, ends_at=NOW + 12 * DAY, repeat="weekly")


def test_factors_are_read_as_people_write_them() -> None:
    items = text_factors("orders 3x, team ads: 2\nclass 0 1.5x; rest ×1.25, nonsense")
    assert [(item["of"], item["name"], item["by"]) for item in items] == [
        ("source", "orders", 3.0), ("team", "ads", 2.0), ("class", "0", 1.5), ("rest", "", 1.25),
        ("source", "nonsense", ""),
    ]  # fmt: skip
    assert factors_text(items[:4]) == "orders 3x, team ads 2x, class 0 1.5x, rest 1.25x"


def test_an_answer_says_what_breaks_what_to_order_and_what_to_delay(cluster: Cluster) -> None:
    event = planned(cluster)  # 0.7 of a node at 1.6 times is 1.12 of it
    run = answered(event)
    answer = event_answer(run)
    (first,) = answer.breaking
    assert (first.forecast.query, first.first_index, first.hours) == ("first", 0, 4.0)
    purchase = answer.purchase
    assert purchase is not None
    assert (purchase.nodes, purchase.added, purchase.cost) == (2, 0, 0.0)  # placed anew the nodes there are do
    assert (answer.delay.queries, answer.delay.is_enough) == (("report",), True)
    assert [step.kind for step in answer.steps] == ["now", "lost", "load", "random"]
    assert answer.steps[0].nodes == 1
    assert run.snapshot and not event_changes(run)
    assert [item.key for item in checklist_of(PlannedEvent.objects.get())] == ["delay", "resume", "review"]
    event_update(event=event, factors=[{"of": "source", "name": "clicks", "by": 5}])
    run.refresh_from_db()
    assert event_changes(EventRun.objects.get()) == ["the event was changed"]


def test_nodes_are_ordered_by_type_until_the_lead_time_before_it_begins(cluster: Cluster) -> None:
    small_cluster.start_query(cluster, "second", 0.5, "b")
    event = planned(cluster, factors=[{"of": "rest", "by": 1.6}])  # 0.8, 0.8 and 0.32 of a node
    answer = event_answer(answered(event))
    purchase = answer.purchase
    assert purchase is not None and purchase.added and purchase.cost == 2.0 * 4 * purchase.added
    assert purchase.order_by_s == (event.starts_at - DAY).timestamp()
    larger, planned_, smaller = (next(f for f in answer.futures if f.times == times) for times in (1.3, 1.0, 0.7))
    assert planned_.over == 0 and (larger.over or 0) <= 0 <= (smaller.over or 0)
    assert answer.regret is not None
    order = next(item for item in checklist_of(PlannedEvent.objects.get()) if item.key == "order")
    assert order.text == f"Order {purchase.added} pool node{'s' if purchase.added > 1 else ''}"


def test_a_team_has_a_load_of_its_own(cluster: Cluster) -> None:
    event = planned(cluster, factors=[{"of": "team", "name": "ads", "by": 2.5}])
    answer = event_answer(answered(event))
    assert {entry.source: entry.factor_mean for entry in answer.sources} == {"clicks": 1.0, "clicks@first": 2.5}


def test_the_last_time_gives_factors_hour_by_hour(cluster: Cluster) -> None:
    starts = (NOW + 2 * DAY).replace(hour=12)
    last = starts - timedelta(weeks=52)
    rates = [100.0] * (24 * 40)
    ends = last + timedelta(hours=12)
    at = len(rates) - 12
    rates[at : at + 4] = [200.0, 300.0, 200.0, 100.0]
    history(cluster, rates, ends)
    event = planned(cluster, factors=[], follows_trace=True, starts_at=starts, ends_at=starts + timedelta(hours=4),
                    time_zone="UTC")  # fmt: skip
    run = answered(event)
    (source,) = event_answer(run).sources
    assert (source.factor_of, source.factor_peak, source.factor_mean) == ("trace", 3.0, 2.0)
    assert "as the last time" in run.basis["notes"][0]


def test_an_event_that_is_over_is_held_against_what_came(cluster: Cluster) -> None:
    starts = NOW - timedelta(hours=6)
    event = planned(cluster, starts_at=starts, ends_at=NOW - timedelta(hours=2), time_zone="UTC")
    with pytest.raises(Impossible, match="nothing left to plan"):
        EVENT.request(event=event, user=None)
    rates = [100.0] * (24 * 35)
    rates[-6:-2] = [200.0] * 4
    history(cluster, rates, NOW)
    outcome = event_outcome(event)
    (factor,) = outcome.factors
    assert (factor.source, factor.planned, factor.came, factor.known_share) == ("clicks", 1.6, 2.0, 1.0)
    (objective,) = outcome.objectives
    assert (objective.measured, objective.estimated, objective.expected) == ("unknown", "unknown", "unknown")
    assert outcome.nodes is not None and outcome.nodes.used_most is None


def test_an_event_to_come_has_no_outcome(cluster: Cluster) -> None:
    assert not event_outcome(planned(cluster)).is_over


def test_a_check_list_keeps_what_people_did_and_added(cluster: Cluster) -> None:
    event = planned(cluster)
    check_add(event=event, text="Tell the shop")
    with pytest.raises(Malformed, match="on the list already"):
        check_add(event=event, text="Tell the shop")
    answered(event)
    check_set(event=event, text="Hold the plan against what came", done=True, user=None)
    answered(event)
    items = {item.text: item for item in checklist_of(PlannedEvent.objects.get())}
    assert items["Tell the shop"].key == "" and items["Hold the plan against what came"].done_at
    assert len(items) == 4


def test_a_change_of_an_event_leaves_alone_what_is_ticked_off_meanwhile(cluster: Cluster) -> None:
    event = planned(cluster)
    check_add(event=PlannedEvent.objects.get(), text="Tell the shop")
    event_update(event=event, name="Black Friday")
    assert [item.text for item in checklist_of(PlannedEvent.objects.get(name="Black Friday"))] == ["Tell the shop"]


def test_what_was_done_for_one_occurrence_is_to_be_done_again_for_the_next(cluster: Cluster) -> None:
    event = planned(cluster, repeat="weekly")
    review = "Hold the plan against what came"
    for shift, is_done in ((timedelta(0), True), (timedelta(weeks=1), False)):
        event_update(event=event, starts_at=event.starts_at + shift, ends_at=event.ends_at + shift)
        answered(event)
        items = {item.text: item for item in checklist_of(PlannedEvent.objects.get())}
        if is_done:
            check_set(event=event, text=review, done=True, user=None)
            answered(event)
            items = {item.text: item for item in checklist_of(PlannedEvent.objects.get())}
        assert bool(items[review].done_at) is is_done
        event.refresh_from_db()


def test_an_answer_says_that_the_last_time_was_another_when_it_was_made(cluster: Cluster) -> None:
    event = planned(cluster)
    answered(event)
    event_update(event=event, trace_starts_at=event.starts_at - timedelta(weeks=3))
    assert event_changes(EventRun.objects.get()) == ["the event was changed"]


def test_a_weekly_event_goes_on_for_decades(cluster: Cluster) -> None:
    event = planned(cluster, starts_at="2000-01-03T08:00", ends_at="2000-01-03T10:00", repeat="weekly")
    assert occurrence_at(event, NOW).ends_at > NOW


def test_numbers_of_nodes_stand_side_by_side_with_what_each_assumes(cluster: Cluster) -> None:
    event = planned(cluster)
    assert [(count.says, count.nodes) for count in node_counts(event).counts] == [
        ("bench", None), ("forecast", None), ("report", None), ("event", None),
    ]  # fmt: skip
    answered(event)
    counts = node_counts(event)
    bench, forecast, report, own = counts.counts
    assert (bench.nodes, own.nodes) == (2, 2)
    assert (bench.survives, own.survives) == ("any one node lost", "all nodes up")
    assert forecast.why_none and report.why_none and bench.snapshot == own.snapshot
    assert [step.nodes for step in counts.steps][-1] == own.nodes


def test_events_over_rest(cluster: Cluster, api: APIClient) -> None:
    year = NOW.year + 1
    body = {"cluster": cluster.slug, "name": "Friday", "factors": [{"of": "rest", "by": 2}]}
    body |= {"starts_at": f"{year}-11-27T08:00", "ends_at": f"{year}-11-30T00:00", "time_zone": "Europe/Berlin"}
    made = api.post("/api/v1/planned-events", body, format="json")
    assert made.status_code == 201, made.content
    assert made.data["starts_at"] == f"{year}-11-27T07:00:00Z"
    address = f"/api/v1/planned-events/{made.data['id']}"
    changed = api.patch(address, {"ends_at": f"{year}-11-26T00:00"}, format="json")
    assert changed.status_code == 400 and changed.json()["faults"][0]["path"] == "ends_at"
    asked = api.post("/api/v1/event-runs", {"event": made.data["id"]}, format="json")
    assert asked.status_code == 202
    small_cluster.run_jobs()
    (run,) = api.get(f"/api/v1/event-runs?event={made.data['id']}").data["results"]
    answer = api.get(f"/api/v1/event-runs/{run['id']}").data
    assert answer["state"] == RunState.ANSWERED and answer["result"]["buckets"] == 64 and answer["changes"] == []
    added = api.post(f"{address}/checklist", {"text": "Tell the shop"}, format="json")
    assert [item["text"] for item in added.data["checklist"]][-1] == "Tell the shop"
    assert api.get(f"{address}/nodes").data["counts"][3]["says"] == "event"
    assert api.get(f"{address}/outcome").data["is_over"] is False
    assert timezone.now() < datetime.fromisoformat(made.data["next_starts_at"])
