"""The queue: a later start is decided, waited for, asked about again, and applied."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.choices import Role
from apps.admission.choices import AdmissionState, PartState, Verdict
from apps.admission.completion import completion_retry
from apps.admission.decisions import admission_apply, admission_override, admission_withdraw
from apps.admission.models import AdmissionRequest
from apps.admission.parts import parts_of
from apps.admission.previews import ADMISSION, queue_review
from apps.admission.questions import AdmissionQuestion
from apps.admission.queue import cluster_queue
from apps.admission.selectors import is_over
from apps.core.errors import Stale
from apps.estimates.refresh import refresh_paused
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.jobs.models import Job, JobKind
from apps.ledger.models import ObjectChange
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Query
from apps.queries.services import query_create, query_stop, query_update
from apps.queries.snapshots.cluster import cluster_snapshot
from engine.errors import DocumentError
from engine.estimation.estimate import estimate
from tests.apps.policies.documents import set_policy
from tests.apps.recordings import recorded
from tests.apps.small_cluster import body, make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    """One node at 0.6 for ever. `batch` brings 100 events/s for 20 s and half of it afterwards."""
    return recorded(_busy_node)


def _busy_node() -> Cluster:
    cluster = small_cluster(nodes=("a",))
    start_query(cluster, "first", 0.6, "a")
    counts = [100.0] * 20 + [30.0] * 40
    arrivals_create_from_counts(cluster=cluster, source_id="batch", counts=counts, step_s=1.0)
    query_create(
        cluster=cluster,
        name="waiting",
        body=body(0.9, "batch"),
        objective={"statistic": "worst", "bound_s": 2.0},
    )
    return cluster


@pytest.fixture
def request_queued(cluster: Any) -> AdmissionRequest:
    return ask(cluster, may_wait_s=40.0)


def ask(cluster: Any, **asked: Any) -> AdmissionRequest:
    admitter = user(Role.ADMITTER)
    request, _ = ADMISSION.request(
        cluster=cluster, user=admitter, question=AdmissionQuestion(query="waiting", mode="apply", **asked)
    )
    run_jobs()
    request.refresh_from_db()
    return request


def pass_time(request: AdmissionRequest, seconds: float) -> None:
    """As if the request had been made so much earlier."""
    request.refresh_from_db()
    for name in ("previewed_at", "starts_at", "created_at"):
        if getattr(request, name) is not None:
            setattr(request, name, getattr(request, name) - timedelta(seconds=seconds))
    request.save()


def state_of(name: str) -> str:
    return Query.objects.get(name=name).state


def test_queued_request_waits_for_its_start(cluster: Any, request_queued: AdmissionRequest) -> None:
    request = request_queued
    assert (request.verdict, request.state, state_of("waiting")) == (
        Verdict.QUEUE,
        AdmissionState.QUEUED,
        QueryState.QUEUED,
    )
    start_s = (request.starts_at - request.previewed_at).total_seconds()
    assert 15.0 <= start_s <= 21.0
    assert start_s == request.result["start_s"]
    assert cluster_queue(cluster).requests == [request]
    assert queue_review() == 0, "not due, and nothing has changed"
    pass_time(request, start_s + 1)
    assert queue_review() == 1
    assert queue_review() == 0, "it is being asked about"
    run_jobs()
    request.refresh_from_db()
    assert (request.state, state_of("waiting")) == (AdmissionState.APPLIED, QueryState.RUNNING)


def test_the_started_query_is_estimated_without_its_delay(cluster: Any, request_queued: AdmissionRequest) -> None:
    pass_time(request_queued, 60.0)
    queue_review()
    run_jobs()
    estimated = estimate(cluster_snapshot(cluster).deployment, mace_every=4)
    assert "breached" in {report.state for report in estimated.queries.values()}
    assert "batch@waiting" not in {source.id for source in estimated.deployment.sources}


def test_queued_request_starts_earlier_when_capacity_frees_up(cluster: Any, request_queued: AdmissionRequest) -> None:
    with refresh_paused():
        node_update(node=cluster.nodes.get(), capacity_cps=2000.0)
    assert queue_review() == 1
    run_jobs()
    request_queued.refresh_from_db()
    assert (request_queued.state, state_of("waiting")) == (AdmissionState.APPLIED, QueryState.RUNNING)


def test_queued_request_without_a_start_waits_until_its_patience_ends(
    cluster: Any, request_queued: AdmissionRequest
) -> None:
    request = request_queued
    with refresh_paused():
        node_update(node=cluster.nodes.get(), capacity_cps=620.0)
    queue_review()
    run_jobs()
    request.refresh_from_db()
    assert (request.state, request.verdict, request.starts_at) == (AdmissionState.QUEUED, Verdict.REJECT, None)
    pass_time(request, 41.0)
    queue_review()
    run_jobs()
    request.refresh_from_db()
    assert (request.state, request.verdict) == (AdmissionState.PREVIEW, Verdict.REJECT)
    assert state_of("waiting") == QueryState.DRAFT


def test_request_refused_at_its_start_waits_without_one(cluster: Any, request_queued: AdmissionRequest) -> None:
    request = request_queued
    pass_time(request, (request.starts_at - request.previewed_at).total_seconds() + 1)
    with refresh_paused():
        node_update(node=cluster.nodes.get(), capacity_cps=620.0)
    assert queue_review() == 1
    run_jobs()
    request.refresh_from_db()
    assert (request.state, request.verdict, request.starts_at) == (AdmissionState.QUEUED, Verdict.REJECT, None)
    assert queue_review() == 0, "nothing has changed since"


def test_looks_at_a_queued_request_have_parts_computed_only_when_asked_for(
    cluster: Any, request_queued: AdmissionRequest
) -> None:
    request = request_queued
    assert parts_of(request)["alternatives"].state == PartState.DONE, "of the first look"
    first = Job.objects.filter(kind=JobKind.ADMISSION_PARTS).count()
    for capacity_cps in (620.0, 630.0):
        with refresh_paused():
            node_update(node=cluster.nodes.get(), capacity_cps=capacity_cps)
        assert queue_review() == 1
        run_jobs()
    request.refresh_from_db()
    assert (request.state, request.verdict) == (AdmissionState.QUEUED, Verdict.REJECT)
    assert Job.objects.filter(kind=JobKind.ADMISSION_PARTS).count() == first
    searched = parts_of(request)["alternatives"]
    assert (searched.state, searched.can_be_retried) == (PartState.CANCELLED, True)
    assert "when somebody asks" in searched.message
    completion_retry(request=request, user=request.requested_by)
    run_jobs()
    request.refresh_from_db()
    assert parts_of(request)["alternatives"].state == PartState.DONE


def test_last_look_at_a_queued_request_has_its_parts_computed(cluster: Any, request_queued: AdmissionRequest) -> None:
    with refresh_paused():
        node_update(node=cluster.nodes.get(), capacity_cps=620.0)
    for seconds in (0.0, 41.0):
        pass_time(request_queued, seconds)
        queue_review()
        run_jobs()
    request_queued.refresh_from_db()
    assert request_queued.state == AdmissionState.PREVIEW
    assert parts_of(request_queued)["alternatives"].state == PartState.DONE


def test_queued_request_is_withdrawn(cluster: Any, request_queued: AdmissionRequest) -> None:
    admission_withdraw(request=request_queued, user=None)
    assert state_of("waiting") == QueryState.DRAFT
    assert queue_review() == 0


def test_stopped_query_leaves_the_queue(cluster: Any, request_queued: AdmissionRequest) -> None:
    query_stop(query=Query.objects.get(name="waiting"))
    assert queue_review() == 0
    request_queued.refresh_from_db()
    assert (request_queued.state, state_of("waiting")) == (AdmissionState.WITHDRAWN, QueryState.DRAFT)


def test_queued_request_with_a_broken_question_fails(cluster: Any, request_queued: AdmissionRequest) -> None:
    ArrivalSeries.objects.filter(source_id="batch").delete()
    assert queue_review() == 1
    (job,) = run_jobs()
    request_queued.refresh_from_db()
    assert (job.state, request_queued.state) == ("failed", AdmissionState.FAILED)
    assert "batch" in job.error["faults"][0]["message"]
    assert (queue_review(), state_of("waiting")) == (0, QueryState.DRAFT)


def test_queue_review_continues_after_a_request_that_cannot_be_sent(
    cluster: Any, request_queued: AdmissionRequest, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    query_create(
        cluster=cluster, name="other", body=body(0.42, "batch"), objective={"statistic": "worst", "bound_s": 2.0}
    )
    stopped, _ = ADMISSION.request(
        cluster=cluster,
        user=request_queued.requested_by,
        question=AdmissionQuestion(query="other", mode="apply", may_wait_s=40.0),
    )
    run_jobs()
    Query.objects.filter(name="other").update(state=QueryState.STOPPED)
    pass_time(request_queued, 60.0)
    reachable, settings.REDIS_URL = settings.REDIS_URL, "redis://127.0.0.1:1/0"
    assert queue_review() == 0
    assert f"{request_queued.pk} is not reviewed now" in caplog.text
    stopped.refresh_from_db()
    assert stopped.state == AdmissionState.WITHDRAWN
    settings.REDIS_URL = reachable
    assert queue_review() == 1


def test_a_preview_goes_to_the_queue_when_applied(cluster: Any) -> None:
    asker = user(Role.OPERATOR)
    request, _ = ADMISSION.request(
        cluster=cluster, user=asker, question=AdmissionQuestion(query="waiting", may_wait_s=40.0)
    )
    run_jobs()
    request.refresh_from_db()
    assert (request.state, request.verdict, state_of("waiting")) == (
        AdmissionState.PREVIEW,
        Verdict.QUEUE,
        QueryState.DRAFT,
    )
    admission_apply(request=request, user=asker)
    request.refresh_from_db()
    assert request.state == AdmissionState.QUEUED
    assert request.starts_at > timezone.now()


def test_request_without_patience_is_rejected_with_the_possible_start(cluster: Any) -> None:
    request = ask(cluster)
    assert request.verdict == Verdict.REJECT
    assert "cannot_wait" in [reason["code"] for reason in request.result["reasons"]]
    assert Job.objects.filter(state="failed").count() == 0


def test_alternative_with_a_later_start_is_queued(cluster: Any) -> None:
    request = ask(cluster)
    later = next(choice for choice in request.result["choices"] if choice["kind"] == "start_at")
    child, _ = ADMISSION.request(parent=request, alternative=later["id"], user=None)
    run_jobs()
    child.refresh_from_db()
    assert child.verdict == Verdict.ADMIT_WITH_CHANGES
    admission_apply(request=child, user=None)
    child.refresh_from_db()
    assert child.state == AdmissionState.QUEUED
    first = Query.objects.get(name="first")
    query_update(query=first, objective={"statistic": "worst", "bound_s": 3.0})  # the cluster moves: it is asked again
    queue_review()
    run_jobs()
    child.refresh_from_db()
    assert (child.state, state_of("waiting")) == (AdmissionState.QUEUED, QueryState.QUEUED)
    pass_time(child, 60.0)
    queue_review()
    run_jobs()
    child.refresh_from_db()
    assert (child.state, state_of("waiting")) == (AdmissionState.APPLIED, QueryState.RUNNING)


def ask_small(cluster: Any, name: str, load: float, **asked: Any) -> AdmissionRequest:
    """A late comer that fits beside what runs."""
    make_query(cluster, name, load)
    question = AdmissionQuestion(query=name, mode="apply", **asked)
    request, _ = ADMISSION.request(cluster=cluster, user=request_user(), question=question)
    run_jobs()
    request.refresh_from_db()
    return request


def request_user() -> Any:
    return AdmissionRequest.objects.latest("created_at").requested_by


def test_stream_of_small_late_comers_does_not_take_the_room_of_an_early_request(
    cluster: Any, request_queued: AdmissionRequest
) -> None:
    """0.6 run, and 0.27 come at the start of `waiting`: 0.2 more fit now, and not then."""
    late = [ask_small(cluster, f"late-{i}", 0.2, may_wait_s=9e5 * (i % 2)) for i in range(3)]
    assert [row.state for row in late] == [AdmissionState.PREVIEW, AdmissionState.QUEUED, AdmissionState.PREVIEW]
    for row in late:
        (reason,) = [reason for reason in row.result["reasons"] if reason["severity"] == "bad"]
        assert (reason["code"], "waiting v1" in reason["message"]) == ("queue_precedence", True)
    pass_time(request_queued, 60.0)
    queue_review()
    run_jobs()
    request_queued.refresh_from_db()
    assert request_queued.state == AdmissionState.APPLIED
    assert AdmissionRequest.objects.get(query__name="late-1").state == AdmissionState.QUEUED


def test_higher_class_goes_before_what_waits_and_a_person_may_overtake_it(
    cluster: Any, request_queued: AdmissionRequest
) -> None:
    held = ask_small(cluster, "held", 0.2)
    admission_override(request=held, user=held.requested_by, reason="it pays")
    held.refresh_from_db()
    entry = ObjectChange.objects.filter(kind="decision", object_id=str(held.pk)).latest("pk")
    assert (held.state, entry.after["overtakes"], entry.why) == ("applied", ["waiting v1"], "it pays")
    query_stop(query=held.query)
    set_policy(cluster, classes=[{"name": "low", "priority": 0}, {"name": "high", "priority": 10}])
    make_query(cluster, "urgent", 0.2)
    query_update(query=cluster.queries.get(name="urgent"), priority=10)
    urgent, _ = ADMISSION.request(
        cluster=cluster, user=held.requested_by, question=AdmissionQuestion(query="urgent", mode="apply")
    )
    run_jobs()
    urgent.refresh_from_db()
    assert urgent.state == AdmissionState.APPLIED


def test_preview_is_stale_once_another_request_waits_before_it(cluster: Any) -> None:
    make_query(cluster, "late", 0.2)
    asker = user(Role.ADMITTER, "asker")
    preview, _ = ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query="late"))
    run_jobs()
    ask(cluster, may_wait_s=40.0)
    preview.refresh_from_db()
    assert preview.verdict == Verdict.ADMIT
    with pytest.raises(Stale, match="the queue, where waiting v1 comes before it"):
        admission_apply(request=preview, user=asker)


def test_patience_of_more_than_a_year_is_refused_and_where_kept_hinders_nobody(request_queued: Any) -> None:
    with pytest.raises(DocumentError, match="may_wait_s is 1e\\+30; allowed: a finite number from 0 to 31536000"):
        AdmissionQuestion.parse({"query": "waiting", "may_wait_s": 1e30})
    AdmissionRequest.objects.update(may_wait_s=1e30)
    assert queue_review() == 1  # its question is another one
    assert not is_over(AdmissionRequest.objects.get())
