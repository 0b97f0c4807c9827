"""Policies at work: quotas and freezes in verdicts, races at the apply, two persons, and the order of the queue."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.choices import Role
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import admission_apply, admission_override, admission_withdraw
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION, queue_review
from apps.admission.questions import AdmissionQuestion
from apps.admission.queue import cluster_queue
from apps.core.errors import Conflict, Forbidden, Impossible, Stale
from apps.fleet.models import Cluster
from apps.queries.services import query_stop, query_update
from tests.apps.people import person
from tests.apps.policies.documents import set_policy
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query

pytestmark = pytest.mark.django_db
DAILY = {"days": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"], "at": "00:00", "hours": 24}
ALWAYS = [{"name": "sale", "every": DAILY}]


@pytest.fixture
def cluster() -> Cluster:
    """Two nodes of one core; ads run a query that keeps 0.4 of one busy."""
    cluster = small_cluster()
    query_update(query=start_query(cluster, "ads-1", 0.4, "a", bound_s=9.0), team="ads")
    for name, load, team in (("ads-2", 0.3, "ads"), ("shop-1", 0.3, "shop"), ("shop-2", 0.3, "shop")):
        query_update(query=make_query(cluster, name, load), team=team)
    return cluster


def ask(cluster: Cluster, name: str, **asked: Any) -> AdmissionRequest:
    request, _ = ADMISSION.request(cluster=cluster, user=None, question=AdmissionQuestion(query=name, **asked))
    run_jobs()
    request.refresh_from_db()
    return request


def codes(request: AdmissionRequest, severity: str = "bad") -> list[str]:
    return [reason["code"] for reason in request.result["reasons"] if reason["severity"] == severity]


def limited(cores: float, **more: Any) -> dict[str, Any]:
    return {"team": "ads", "quotas": {"cores": {"nominal": cores}}, **more}


def test_quota_rejects_names_its_figures_and_the_version(cluster: Cluster) -> None:
    set_policy(cluster, teams=[limited(0.6)])
    request = ask(cluster, "ads-2")
    assert (request.verdict, codes(request), request.policy_version) == (Verdict.REJECT, ["quota_exceeded"], 1)
    assert "ads-2 keeps 0.3 busy on average, 0.4 are in use, and 0.2 can be had" in request.result["headline"]
    assert ask(cluster, "shop-1").verdict == Verdict.ADMIT
    set_policy(cluster, teams=[limited(0.8)])
    assert ask(cluster, "ads-2").verdict == Verdict.ADMIT


def test_cohort_lends_what_it_does_not_use(cluster: Cluster) -> None:
    shop = {"team": "shop", "cohort": "all", "quotas": {"cores": {"nominal": 0.5}}}
    set_policy(cluster, cohorts=[{"name": "all"}], teams=[limited(0.6, cohort="all"), shop])
    request = ask(cluster, "ads-2")
    assert (request.verdict, "quota_borrowed" in codes(request, "info")) == (Verdict.ADMIT, True)


def test_two_that_fit_a_quota_one_at_a_time_do_not_both_start(cluster: Cluster) -> None:
    set_policy(cluster, teams=[{"team": "shop", "quotas": {"queries": {"nominal": 1}}}])
    first, second = ask(cluster, "shop-1"), ask(cluster, "shop-2")
    assert (first.verdict, second.verdict) == (Verdict.ADMIT, Verdict.ADMIT)
    admission_apply(request=first, user=None)
    with pytest.raises(Stale):
        admission_apply(request=second, user=None)
    assert codes(ask(cluster, "shop-2")) == ["quota_exceeded"]


def test_query_that_changes_its_team_makes_a_preview_stale(cluster: Cluster) -> None:
    request = ask(cluster, "shop-1")
    query_update(query=request.query, team="ads")
    with pytest.raises(Stale):
        admission_apply(request=request, user=None)


def test_freeze_that_begins_after_the_verdict_holds_at_the_apply(cluster: Cluster, freeze_in: Any) -> None:
    begins = timezone.now() + timedelta(hours=1)
    dated = {"name": "sale", "begins": begins.isoformat(), "ends": (begins + timedelta(hours=2)).isoformat()}
    set_policy(cluster, freezes=[dated])
    request = ask(cluster, "shop-1")
    assert request.verdict == Verdict.ADMIT
    freeze_in(timedelta(hours=1.5))
    AdmissionRequest.objects.update(valid_until=None)
    with pytest.raises(Impossible, match="Nothing starts during sale") as refused:
        admission_apply(request=request, user=None)
    assert refused.value.code == "change_frozen"
    assert ask(cluster, "shop-1").verdict == Verdict.REJECT
    waiting = ask(cluster, "shop-1", may_wait_s=86_400.0, mode="apply")
    assert (waiting.verdict, waiting.state) == (Verdict.QUEUE, AdmissionState.QUEUED)
    assert waiting.starts_at is not None and abs(waiting.starts_at - begins - timedelta(hours=2)) < timedelta(minutes=1)
    freeze_in(timedelta(hours=4))
    assert queue_review() == 1
    run_jobs()
    waiting.refresh_from_db()
    assert (waiting.verdict, waiting.state) == (Verdict.ADMIT, AdmissionState.APPLIED)


@pytest.fixture
def freeze_in(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the shared clock go on."""
    from apps.admission import decisions, previews, queue, selectors, standings

    def pass_time(by: timedelta) -> None:
        for module in (decisions, previews, queue, selectors, standings):
            monkeypatch.setattr(module, "shared_now", lambda: timezone.now() + by)

    return pass_time


def test_override_asks_for_a_second_person(cluster: Cluster) -> None:
    one, other, admin = person("one", Role.ADMITTER), person("other", Role.ADMITTER), person("boss", Role.ADMIN)
    set_policy(cluster, freezes=ALWAYS, override={"second_person": True})
    request = ask(cluster, "shop-1")
    assert codes(request) == ["change_frozen"]
    asked = admission_override(request=request, user=one, reason="sale is off")
    assert (asked.state, asked.override_by) == (AdmissionState.AWAITING, one)
    with pytest.raises(Conflict) as refused:
        admission_override(request=request, user=one, reason="really")
    assert refused.value.code == "second_person"
    applied = admission_override(request=request, user=other, reason="so it is")
    assert (applied.state, applied.overridden, applied.decided_by) == (AdmissionState.APPLIED, True, other)
    assert applied.decision_reason == "sale is off (confirmed: so it is)"
    set_policy(cluster, freezes=ALWAYS, override={"roles": ["admin"]})
    request = ask(cluster, "shop-2")
    with pytest.raises(Forbidden):
        admission_override(request=request, user=one, reason="please")
    assert admission_override(request=request, user=admin, reason="mine").state == AdmissionState.APPLIED


def test_queue_goes_by_class_and_share_and_the_overdue_come_first(cluster: Cluster) -> None:
    quotas = {"queries": {"nominal": 0}}
    classes = [{"name": "low", "priority": 0}, {"name": "high", "priority": 10}]
    held = [{"team": team, "quotas": quotas} for team in ("ads", "shop")]
    set_policy(cluster, classes=classes, teams=held)
    query_update(query=cluster.queries.get(name="shop-2"), priority=10)
    waiting = [ask(cluster, name, may_wait_s=9e5, mode="apply") for name in ("ads-2", "shop-1", "shop-2")]
    assert {row.state for row in waiting} == {AdmissionState.QUEUED}
    names = lambda: [row.query.name for row in cluster_queue(cluster).requests]  # noqa: E731
    assert names() == ["shop-2", "shop-1", "ads-2"], "ads have a share already"
    AdmissionRequest.objects.filter(pk=waiting[0].pk).update(queued_at=timezone.now() - timedelta(hours=2))
    assert names() == ["ads-2", "shop-2", "shop-1"]
    place = cluster_queue(cluster).place_of(waiting[1])
    assert place is not None and (place.place, place.waits_behind) == (3, ("ads-2 v1",))
    direct = ask(cluster, "shop-1")
    assert "queue_overdue" in codes(direct)
    set_policy(cluster, teams=[{"team": "ads", "quotas": {"queries": {"nominal": 1}}}])
    for _ in range(4):
        queue_review()
        run_jobs()
    assert cluster_queue(cluster).requests[0] == waiting[0], "ads run one already: nothing overtakes it"
    assert len(cluster_queue(cluster).requests) == 3
    query_stop(query=cluster.queries.get(name="ads-1"))
    for _ in range(4):
        queue_review()
        run_jobs()
    assert {row.state for row in AdmissionRequest.objects.filter(pk__in=[row.pk for row in waiting])} == {"applied"}


def test_entry_behind_an_overdue_one_starts_when_that_is_withdrawn(cluster: Cluster) -> None:
    set_policy(cluster, teams=[{"team": "ads", "quotas": {"queries": {"nominal": 1}}}])
    first = ask(cluster, "ads-2", may_wait_s=9e5, mode="apply")
    AdmissionRequest.objects.filter(pk=first.pk).update(queued_at=timezone.now() - timedelta(hours=2))
    second = ask(cluster, "shop-1", may_wait_s=9e5, mode="apply")
    assert second.state == AdmissionState.QUEUED
    admission_withdraw(request=first, user=None)
    queue_review()
    run_jobs()
    second.refresh_from_db()
    assert second.state == AdmissionState.APPLIED


def test_what_takes_the_quota_that_an_earlier_request_waits_for_is_queued_behind_it(cluster: Cluster) -> None:
    set_policy(cluster, teams=[limited(0.45)])
    early = ask(cluster, "ads-2", may_wait_s=9e5, mode="apply")
    query_update(query=make_query(cluster, "late", 0.2), team="ads")
    query_stop(query=cluster.queries.get(name="ads-1"))
    late = ask(cluster, "late", may_wait_s=9e5, mode="apply")
    assert (late.state, codes(late)) == (AdmissionState.QUEUED, ["queue_precedence"])
    queue_review()
    run_jobs()
    assert [row.query.name for row in cluster_queue(cluster).requests] == ["late"], "the early one runs"
    early.refresh_from_db()
    assert early.state == AdmissionState.APPLIED
