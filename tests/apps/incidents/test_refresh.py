"""Late queries are grouped by cause; states that flap do not open one incident after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from apps.core.errors import Conflict
from apps.core.transactions import is_transaction_open
from apps.estimates.objectives import objectives_refresh
from apps.fleet.models import Cluster
from apps.incidents.models import Incident, IncidentEvent
from apps.incidents.notices import incident_title
from apps.incidents.refresh import CLEAR_S, MOVE_S, REOPEN_S, _Refresh, incidents_refresh
from apps.incidents.services import incident_done
from apps.ledger.models import ObjectChange
from apps.queries.models import Query
from apps.queries.services import query_stop
from tests.apps import small_cluster
from tests.apps.incidents.states import BEGIN, STARVED, STREAM, after, away_engine, late, well

pytestmark = [pytest.mark.django_db, pytest.mark.moment]


def timeline(incident: Incident) -> list[tuple[str, str]]:
    rows = IncidentEvent.objects.filter(incident=incident).order_by("at", "pk")
    return [(row.kind, row.query_name) for row in rows]


def test_queries_late_by_one_cause_share_an_incident(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    late(cluster, "two", STREAM, "at_risk")
    late(cluster, "three", STARVED, "at_risk")
    first, second = after(cluster, 0)
    assert (first.cause_kind, first.cause_subject, first.severity) == ("stream_behind", "", "critical")
    assert {member.query.name for member in first.members.all()} == {"one", "two"}
    assert (second.cause_kind, second.cause_subject, second.severity) == ("agent_starved", "agent-3", "warning")
    assert timeline(first) == [("opened", ""), ("joined", "one"), ("joined", "two")]


def test_what_nothing_explains_is_each_querys_own(cluster: Cluster) -> None:
    late(cluster, "one")
    late(cluster, "two", {"kind": "unexplained"})
    assert [(row.cause_kind, row.cause_subject) for row in after(cluster, 0)] == [
        ("unexplained", "one"),
        ("unexplained", "two"),
    ]


def test_round_is_worked_out_without_a_transaction_and_again_where_another_came_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_out, rounds = _Refresh.work_out, list[int]()

    def interrupted(refresh: _Refresh) -> None:
        assert not is_transaction_open()
        work_out(refresh)
        rounds.append(len(rounds))
        if len(rounds) == 1:
            incidents_refresh(cluster, now=BEGIN)  # of another process

    monkeypatch.setattr(_Refresh, "work_out", interrupted)
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    assert timeline(incident) == [("opened", ""), ("joined", "one")] and len(rounds) == 3


def test_state_that_flaps_leaves_one_incident_open(cluster: Cluster) -> None:
    for i in range(20):
        (late if i % 2 == 0 else well)(cluster, "one", *([STREAM] if i % 2 == 0 else []))
        (incident,) = after(cluster, 60 * i)
        assert incident.is_open
    assert timeline(incident) == [("opened", ""), ("joined", "one")]


def test_incident_is_resolved_once_its_last_query_was_well_for_long_enough(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    late(cluster, "two", STREAM)
    after(cluster, 0)
    well(cluster, "one")
    assert after(cluster, CLEAR_S - 1)[0].late_count == 2  # "two" goes on, "one" is not well for long enough
    (incident,) = after(cluster, CLEAR_S)
    assert incident.is_open and incident.late_count == 1
    well(cluster, "two")
    assert after(cluster, 2 * CLEAR_S - 1)[0].is_open
    (incident,) = after(cluster, 2 * CLEAR_S)
    assert not incident.is_open and (incident.resolved_at - incident.opened_at).total_seconds() == 2 * CLEAR_S
    assert timeline(incident)[-3:] == [("left", "one"), ("left", "two"), ("resolved", "")]


@pytest.mark.parametrize(("state", "words"), [("connected", "answers again"), ("paused", "not asked any more")])
def test_engine_away_for_longer_than_some_polls_is_an_incident_until_it_is_back(
    cluster: Cluster, state: str, words: str
) -> None:
    row = away_engine(cluster)
    assert after(cluster, 60) == [], "four of its polls"
    (incident,) = after(cluster, 61)
    assert (incident.cause_kind, incident.cause_subject, incident.severity) == ("engine_away", "shop", "warning")
    row.state = "new"  # somebody changed its address: nobody knows yet whether it answers
    row.save()
    assert after(cluster, 90)[0].is_open
    row.state = state
    row.save()
    (incident,) = after(cluster, 120)
    assert not incident.is_open and timeline(incident) == [("opened", ""), ("resolved", "")]
    assert words in IncidentEvent.objects.get(kind="resolved").text


def test_incident_of_estimates_is_expected_until_something_is_measured(cluster: Cluster) -> None:
    late(cluster, "one", STREAM, decided_by="estimate", measured_s=None)
    (incident,) = after(cluster, 0)
    assert not incident.measured and incident_title(incident) == "Expected: The stream processor is behind"
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 15)
    assert incident.measured and incident_title(incident) == "The stream processor is behind"
    assert timeline(incident)[-1] == ("measured", "one")
    late(cluster, "one", STREAM, decided_by="estimate", measured_s=None, lacking="stale")
    assert after(cluster, 30)[0].measured, "it was late; that nothing measures it now does not undo that"


def test_query_that_cannot_be_observed_leaves_no_incident(cluster: Cluster) -> None:
    late(cluster, "one", STREAM, decided_by="estimate", measured_s=None)
    after(cluster, 0)
    late(cluster, "one", None, "unknown", decided_by="nothing", measured_s=None, lacking="none")
    assert after(cluster, 10 * CLEAR_S)[0].late_count == 1
    well(cluster, "one")
    assert not after(cluster, 11 * CLEAR_S)[0].is_open


def test_cause_that_comes_back_soon_opens_its_incident_again(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    after(cluster, 0)
    well(cluster, "one")
    after(cluster, CLEAR_S)
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, CLEAR_S + REOPEN_S - 1)
    assert incident.is_open and incident.resolved_at is None
    assert timeline(incident)[-2:] == [("reopened", ""), ("joined", "one")]
    well(cluster, "one")
    assert not after(cluster, 2 * CLEAR_S + REOPEN_S)[0].is_open
    late(cluster, "one", STREAM)
    assert len(after(cluster, 3 * CLEAR_S + 3 * REOPEN_S)) == 2


def test_another_cause_is_believed_once_it_was_named_for_a_while(cluster: Cluster) -> None:
    late(cluster, "one", {"kind": "unexplained"})
    after(cluster, 0)
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 15)
    assert incident.cause_kind == "unexplained"
    late(cluster, "one", {"kind": "unexplained"})
    after(cluster, 30)
    late(cluster, "one", STREAM)
    after(cluster, 45)
    assert after(cluster, 44 + MOVE_S)[0].cause_kind == "unexplained"
    (incident,) = after(cluster, 45 + MOVE_S)  # renamed: the query was alone in it
    assert (incident.cause_kind, incident.cause_subject) == ("stream_behind", "")
    assert timeline(incident)[-1] == ("cause", "")


def test_query_moves_to_the_incident_of_its_new_cause(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    late(cluster, "two", STREAM)
    after(cluster, 0)
    late(cluster, "two", STARVED)
    after(cluster, 15)
    first, second = after(cluster, 15 + MOVE_S)
    assert first.late_count == 1 and ("moved", "two") in timeline(first)
    assert [member.query.name for member in second.members.all()] == ["two"]


def test_query_that_is_measured_no_more_is_not_well(cluster: Cluster) -> None:
    """A cause of delay may also stop results: an estimate that holds does not end what was measured."""
    late(cluster, "one", STREAM)
    after(cluster, 0)
    well(cluster, "one", lacking="stale", decided_by="estimate")
    assert after(cluster, 10 * CLEAR_S)[0].is_open
    well(cluster, "one", lacking="none", decided_by="estimate")  # nothing for an hour
    (incident,) = after(cluster, 11 * CLEAR_S)
    assert incident.is_open and timeline(incident)[-1] == ("unconfirmed", "one")
    well(cluster, "one")
    assert not after(cluster, 12 * CLEAR_S)[0].is_open


def test_change_of_the_books_ends_no_incident_until_somebody_says_it_was_done(cluster: Cluster) -> None:
    """Sluice drives none of these queries: that a person changes a node here moves nothing."""
    late(cluster, "one", STREAM, decided_by="estimate", measured_s=None)
    (incident,) = after(cluster, 0)
    with pytest.raises(Conflict, match="well on paper"):
        incident_done(incident=incident, reason="moved it")
    ObjectChange.objects.create(
        kind="node", object_id="1", name="n1", cluster_key=cluster.pk, action="changed", at=BEGIN, user="ada", group="g"
    )
    well(cluster, "one", decided_by="estimate", measured_s=None, lacking="none")
    (incident,) = after(cluster, 2 * CLEAR_S)
    assert incident.is_open and timeline(incident)[-1] == ("unconfirmed", "one")
    incident_done(incident=incident, reason="moved it in Flink")
    (incident,) = after(cluster, 3 * CLEAR_S)
    assert not incident.is_open
    assert [kind for kind, _ in timeline(incident)][-3:] == ["left", "resolved", "done"], "the clock of people is later"


def test_measurement_after_a_change_of_the_books_ends_an_incident(cluster: Cluster) -> None:
    late(cluster, "one", STREAM, decided_by="estimate", measured_s=None)
    after(cluster, 0)
    ObjectChange.objects.create(
        kind="node", object_id="1", name="n1", cluster_key=cluster.pk, action="changed", at=BEGIN, user="ada", group="g"
    )
    well(cluster, "one", decided_by="estimate", measured_s=None, lacking="none")
    well(cluster, "two", measured_at=BEGIN + timedelta(seconds=CLEAR_S))
    assert not after(cluster, 2 * CLEAR_S)[0].is_open


def test_stopped_query_leaves_at_once(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    after(cluster, 0)
    query_stop(query=Query.objects.get(name="one"))
    assert not after(cluster, 15)[0].is_open


def test_severity_follows_the_worst_query(cluster: Cluster) -> None:
    late(cluster, "one", STREAM, "at_risk")
    assert after(cluster, 0)[0].severity == "warning"
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 15)
    assert incident.severity == "critical" and timeline(incident)[-1] == ("worse", "one")


def test_refresh_that_changes_nothing_writes_no_event(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    after(cluster, 0)
    before = IncidentEvent.objects.count()
    for i in range(5):
        after(cluster, 15 * i)
    assert IncidentEvent.objects.count() == before


def test_database_keeps_a_second_open_incident_of_a_cause_out(cluster: Cluster) -> None:
    late(cluster, "one", STREAM)
    (incident,) = after(cluster, 0)
    with pytest.raises(IntegrityError), transaction.atomic():
        Incident.objects.create(
            cluster=cluster, cause_kind=incident.cause_kind, cause_subject="", severity="warning", opened_at=BEGIN,
            last_late_at=BEGIN,
        )  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_several_workers_at_once_open_one_incident() -> None:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "one", 0.1, "a", bound_s=15.0)
    late(cluster, "one", STREAM)

    def refresh(_: int) -> None:
        try:
            incidents_refresh(cluster, now=BEGIN)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as workers:
        list(workers.map(refresh, range(8)))
    assert Incident.objects.count() == 1 and IncidentEvent.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_incidents_follow_whenever_objectives_are_judged() -> None:
    cluster = small_cluster.small_cluster()
    small_cluster.start_query(cluster, "late", 1.2, "b", bound_s=2.0)
    small_cluster.run_jobs()
    objectives_refresh(cluster)
    incident = Incident.objects.get()
    assert (incident.cause_kind, incident.cause_subject, incident.severity) == ("node_busy", "b", "critical")


def test_round_over_a_cluster_where_all_is_well_begins_no_transaction(
    cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    with django_assert_max_num_queries(3) as sent:
        incidents_refresh(cluster)
    assert [query["sql"] for query in sent.captured_queries if "SAVEPOINT" in query["sql"]] == []
