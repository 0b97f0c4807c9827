"""From the question to the running query: preview, apply, and every way in which it is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from apps.accounts.choices import Role
from apps.admission import previews
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import (
    admission_apply,
    admission_approve,
    admission_decline,
    admission_override,
    admission_request_review,
    admission_withdraw,
)
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion, LatencyObjective
from apps.admission.selectors import admission_standing
from apps.core.errors import Conflict, Impossible, Malformed, Missing, Stale
from apps.fleet.models import Cluster
from apps.fleet.services import node_drain, node_update
from apps.jobs.models import Job, JobState
from apps.jobs.runner import JobReporter
from apps.jobs.services import job_cancel, job_start, job_succeed
from apps.queries.arrivals.services import arrivals_create_from_counts
from apps.queries.choices import QueryState
from apps.queries.models import ArrivalSeries, Query
from apps.queries.services import query_create, query_update, query_version_create
from apps.queries.snapshots.cluster import cluster_snapshot
from apps.queries.statistics import statistics_update
from engine.estimation.estimate import estimate
from tests.apps.policies.documents import set_policy
from tests.apps.recordings import recorded
from tests.apps.small_cluster import body, make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    """Node a is at 0.6, node b at 0.4."""
    return recorded(_busy_cluster)


def _busy_cluster() -> Cluster:
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    start_query(cluster, "second", 0.4, "b")
    return cluster


@pytest.fixture
def admitter() -> Any:
    return user(Role.ADMITTER)


def previewed(cluster: Any, asker: Any, query: str, **asked: Any) -> AdmissionRequest:
    request, _ = ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query=query, **asked))
    run_jobs()
    request.refresh_from_db()
    return request


def test_what_fits_is_admitted_and_applied(cluster: Any, admitter: Any) -> None:
    query = make_query(cluster, "third", 0.5)
    request = previewed(cluster, admitter, "third")
    assert (request.state, request.verdict) == (AdmissionState.PREVIEW, Verdict.ADMIT)
    assert request.valid_until - request.previewed_at == timedelta(seconds=cluster.preview_valid_s)
    assert admission_standing(request).can_apply
    admission_apply(request=request, user=admitter)
    query.refresh_from_db()
    request.refresh_from_db()
    assert (query.state, request.state, request.decided_by) == (QueryState.RUNNING, AdmissionState.APPLIED, admitter)
    assert query.running_version.operators.get().placements.get().node.name == "b"
    with pytest.raises(Conflict, match="applied"):
        admission_apply(request=request, user=admitter)


def test_cluster_says_below_what_a_verdict_is_thin(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.4)
    roomy = previewed(cluster, admitter, "third").result
    assert (roomy["verdict"], roomy["thin"]) == ("admit", False)
    margin = min(roomy["robustness"]["load"], roomy["robustness"]["costs"])
    assert 0.1 <= margin < 1.0
    set_policy(cluster, thin_below=1.0)
    thin = previewed(cluster, admitter, "third").result
    assert (thin["verdict"], thin["thin"]) == ("admit", True)
    assert "; thin, for it holds only up to" in thin["headline"]


def test_query_that_does_not_fit_is_rejected_with_alternatives(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.9)
    request = previewed(cluster, admitter, "third")
    assert request.verdict == Verdict.REJECT
    assert request.result["choices"]
    with pytest.raises(Impossible) as refusal:
        admission_apply(request=request, user=admitter)
    assert refusal.value.code == "verdict_reject"


@pytest.mark.parametrize("kind", ["scale_rate", "add_node", "objective"])
def test_alternative_is_previewed_and_applied(cluster: Any, admitter: Any, kind: str) -> None:
    counts = [25.0] * 40 + [5.0] * 200
    arrivals_create_from_counts(cluster=cluster, source_id="burst", counts=counts, step_s=0.25)
    for neighbour in cluster.queries.all():  # only the candidate's own bound is in the way
        query_update(query=neighbour, objective={"statistic": "worst", "bound_s": 60.0})
    tight = {"statistic": "worst", "bound_s": 0.4}
    query = query_create(cluster=cluster, name="third", body=body(0.9, "burst"), objective=tight)
    request = previewed(cluster, admitter, "third")
    choices = {choice["kind"]: choice for choice in request.result["choices"]}
    child, _ = ADMISSION.request(parent=request, alternative=choices[kind]["id"], user=admitter)
    run_jobs()
    child.refresh_from_db()
    assert (child.parent, child.verdict) == (request, Verdict.ADMIT_WITH_CHANGES)
    admission_apply(request=child, user=admitter)
    query.refresh_from_db()
    assert query.state == QueryState.RUNNING
    (change,) = child.result["changes"]
    if kind == "scale_rate":
        assert query.rate_share == change["share"] < 1
    elif kind == "add_node":
        assert cluster.nodes.get(name=change["id"]).capacity_cps == change["capacity_cps"]
    else:
        assert query.objective_bound_s == change["bound_s"] > 0.4
    request.refresh_from_db()
    assert request.state == AdmissionState.SUPERSEDED


def test_applied_cluster_has_the_latencies_of_the_preview(cluster: Any, admitter: Any) -> None:
    """The decision's promise for every query is the estimate of the cluster afterwards."""
    make_query(cluster, "third", 0.65, bound_s=1.0)
    request = previewed(cluster, admitter, "third")
    share = next(c for c in request.result["choices"] if c["kind"] == "scale_rate")
    child, _ = ADMISSION.request(parent=request, alternative=share["id"], user=admitter)
    run_jobs()
    child.refresh_from_db()
    admission_apply(request=child, user=admitter)
    estimated = estimate(cluster_snapshot(cluster).deployment, mace_every=4)
    for effect in child.result["effects"]:
        assert estimated.queries[effect["query"]].estimate_s == pytest.approx(effect["after_s"], abs=1e-9)


def test_apply_on_a_moved_cluster_is_refused_with_its_changes(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.5)
    request = previewed(cluster, admitter, "third")
    node_update(node=cluster.nodes.get(name="a"), capacity_cps=990.0)
    with pytest.raises(Stale) as refusal:
        admission_apply(request=request, user=admitter)
    assert refusal.value.status == 409
    assert refusal.value.data["changed"][0].startswith("node a: capacity changed from 1 kcycles/s")
    standing = admission_standing(request)
    assert standing.is_stale
    assert not standing.can_apply


def test_refined_statistics_of_the_candidate_make_its_preview_stale(cluster: Any, admitter: Any) -> None:
    query = make_query(cluster, "third", 0.5)
    request = previewed(cluster, admitter, "third")
    entry = {"operator": "work", "input": "clicks", "cycles_per_event": 9.0, "events": 1000}
    statistics_update(version=query.versions.get(), statistics=[entry])
    with pytest.raises(Stale, match="third itself"):
        admission_apply(request=request, user=admitter)


def test_only_one_of_two_competing_requests_is_applied(cluster: Any, admitter: Any) -> None:
    requests = []
    for name in ("third", "fourth"):
        make_query(cluster, name, 0.55)
        requests.append(previewed(cluster, admitter, name))
    assert [request.verdict for request in requests] == [Verdict.ADMIT, Verdict.ADMIT]
    admission_apply(request=requests[0], user=admitter)
    with pytest.raises(Stale, match="query third was added"):
        admission_apply(request=requests[1], user=admitter)
    again, _ = ADMISSION.request(parent=requests[1], user=admitter)
    run_jobs()
    again.refresh_from_db()
    requests[1].refresh_from_db()
    assert (again.verdict, requests[1].state) == (Verdict.REJECT, AdmissionState.SUPERSEDED)


def test_an_expired_preview_is_refused(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.5)
    request = previewed(cluster, admitter, "third")
    AdmissionRequest.objects.update(valid_until=timezone.now() - timedelta(seconds=1))
    with pytest.raises(Stale) as refusal:
        admission_apply(request=request, user=admitter)
    assert (refusal.value.status, refusal.value.code) == (409, "expired")


def test_an_override_needs_a_reason_and_is_remembered(cluster: Any, admitter: Any) -> None:
    query = make_query(cluster, "third", 0.8)
    request = previewed(cluster, admitter, "third")
    with pytest.raises(Malformed):
        admission_override(request=request, user=admitter, reason="  ")
    admission_override(request=request, user=admitter, reason="The board insists")
    request.refresh_from_db()
    query.refresh_from_db()
    assert (request.overridden, request.decision_reason) == (True, "The board insists")
    assert query.state == QueryState.RUNNING


def test_override_of_an_admitted_request_is_refused(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.5)
    request = previewed(cluster, admitter, "third")
    with pytest.raises(Conflict):
        admission_override(request=request, user=admitter, reason="Why not")


def test_review_is_requested_and_decided(cluster: Any, admitter: Any) -> None:
    """The cluster's rule: whatever rests on assumed statistics is for a person to decide."""
    set_policy(cluster, evidence={"assumed": "review"})
    for name in ("third", "fourth"):
        make_query(cluster, name, 0.3)
    request = previewed(cluster, admitter, "third")
    assert request.verdict == Verdict.REVIEW
    with pytest.raises(Impossible) as refusal:
        admission_apply(request=request, user=admitter)
    assert refusal.value.code == "verdict_review"
    admission_request_review(request=request, user=admitter, reason="Please look")
    admission_approve(request=request, user=admitter, reason="Looked")
    request.refresh_from_db()
    assert request.state == AdmissionState.APPLIED
    other = previewed(cluster, admitter, "fourth")
    admission_decline(request=other, user=admitter, reason="Not this month")
    other.refresh_from_db()
    assert (other.state, other.decision_reason) == (AdmissionState.DECLINED, "Not this month")
    with pytest.raises(Conflict):
        admission_approve(request=other, user=admitter)


def test_review_does_not_expire_and_is_superseded_by_a_new_preview(cluster: Any, admitter: Any) -> None:
    set_policy(cluster, evidence={"assumed": "review"})
    make_query(cluster, "third", 0.3)
    request = previewed(cluster, admitter, "third")
    waiting = admission_request_review(request=request, user=admitter)
    assert waiting.valid_until is None
    ADMISSION.request(parent=waiting, user=admitter)
    request.refresh_from_db()
    assert request.state == AdmissionState.SUPERSEDED


def test_a_version_is_not_started_twice(cluster: Any, admitter: Any) -> None:
    """A request still being estimated while another one of the same version is applied."""
    make_query(cluster, "third", 0.3)
    first = previewed(cluster, admitter, "third")
    second, _ = ADMISSION.request(
        cluster=cluster, user=admitter, question=AdmissionQuestion(query="third", reason="asked again")
    )
    admission_apply(request=first, user=admitter)
    run_jobs()
    second.refresh_from_db()
    assert second.state in {AdmissionState.PREVIEW, AdmissionState.FAILED}
    with pytest.raises(Conflict):
        admission_apply(request=second, user=admitter)


def test_request_is_withdrawn(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.5)
    request, job = ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="third"))
    admission_withdraw(request=request, user=admitter)
    request.refresh_from_db()
    job.refresh_from_db()
    assert (request.state, job.state) == (AdmissionState.WITHDRAWN, JobState.CANCELLED)
    with pytest.raises(Conflict):
        admission_withdraw(request=request, user=admitter)


def test_cancelled_job_withdraws_its_request(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.5)
    request, job = ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="third"))
    job_cancel(job)
    request.refresh_from_db()
    assert request.state == AdmissionState.WITHDRAWN


def test_same_question_twice_is_one_request(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.5)
    asked = {"cluster": cluster, "user": admitter, "question": AdmissionQuestion(query="third")}
    first, job = ADMISSION.request(**asked)
    assert ADMISSION.request(**asked) == (first, job)
    other, _ = ADMISSION.request(**asked | {"question": AdmissionQuestion(query="third", may_wait_s=5.0)})
    assert other != first
    run_jobs()
    later, _ = ADMISSION.request(**asked)
    assert later != first, "an answered question may be asked again"


def test_mode_apply_starts_an_admitted_query(cluster: Any, admitter: Any) -> None:
    query = make_query(cluster, "third", 0.5)
    request = previewed(cluster, admitter, "third", mode="apply")
    query.refresh_from_db()
    assert (request.state, query.state) == (AdmissionState.APPLIED, QueryState.RUNNING)


def work_without_lock(job: Any) -> Any:
    """As a worker that waited in vain for the others that decide on the cluster."""
    report = JobReporter(job)
    with report.held:
        return ADMISSION.work(report)


def run_jobs_together() -> None:
    """As many workers as jobs wait: all have asked the engine before the first stores its answer."""
    while waiting := list(Job.objects.filter(state=JobState.QUEUED)):
        started = [job for job in map(job_start, [row.pk for row in waiting]) if job is not None]
        for job, outcome in [(job, work_without_lock(job)) for job in started]:
            job_succeed(job, outcome.result, outcome.url, outcome.api_url, outcome.store)


def test_mode_apply_starts_each_of_many_that_are_decided_at_once(cluster: Any, admitter: Any) -> None:
    """Each that starts moves the cluster under the others: they are asked again until their turn comes."""
    names = [f"wish-{number}" for number in range(5)]
    for name in names:
        make_query(cluster, name, 0.02)
        ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query=name, mode="apply"))
    run_jobs_together()
    asked = AdmissionRequest.objects.filter(query__name__in=names)
    assert {row.query.name: row.state for row in asked} == dict.fromkeys(names, AdmissionState.APPLIED)


def test_mode_apply_on_a_cluster_that_never_stands_still_says_why_not(
    cluster: Any, admitter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(previews, "MAX_TRIES", 3)
    monkeypatch.setattr(previews, "question_changes", lambda request: ["node a"])
    make_query(cluster, "third", 0.2)
    request = previewed(cluster, admitter, "third", mode="apply")
    assert (request.state, request.verdict) == (AdmissionState.PREVIEW, Verdict.ADMIT)
    assert request.decision_reason == (
        "Not applied: the cluster moved during each of 3 previews, last node a. Apply it anew."
    )


def test_mode_apply_does_not_start_a_rejected_query(cluster: Any, admitter: Any) -> None:
    query = make_query(cluster, "third", 0.9)
    request = previewed(cluster, admitter, "third", mode="apply")
    query.refresh_from_db()
    assert (request.state, request.verdict, query.state) == (AdmissionState.PREVIEW, Verdict.REJECT, QueryState.DRAFT)


def test_new_version_replaces_the_running_one(cluster: Any, admitter: Any) -> None:
    query = cluster.queries.get(name="second")
    version = query_version_create(query=query, body=body(0.9))
    request = previewed(cluster, admitter, "second")
    assert (request.version, request.verdict) == (version, Verdict.ADMIT)
    admission_apply(request=request, user=admitter)
    query.refresh_from_db()
    assert query.running_version == version
    with pytest.raises(Conflict, match="running already"):
        ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="second"))


def test_a_draining_node_takes_nothing_new(cluster: Any, admitter: Any) -> None:
    node_drain(node=cluster.nodes.get(name="b"))
    make_query(cluster, "third", 0.5)
    request = previewed(cluster, admitter, "third")
    assert request.verdict == Verdict.REJECT
    with pytest.raises(Malformed, match="not an active node"):
        ADMISSION.request(
            cluster=cluster, user=admitter, question=AdmissionQuestion(query="third", placement={"work": "b"})
        )
    move = {"kind": "move", "operator": "third/work", "node": "b"}
    with pytest.raises(Malformed, match="takes nothing new"):
        ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="third", changes=(move,)))


def test_every_fault_of_a_question_is_reported_at_once(cluster: Any, admitter: Any) -> None:
    make_query(cluster, "third", 0.5)
    with pytest.raises(Malformed) as refusal:
        ADMISSION.request(
            cluster=cluster,
            user=admitter,
            question=AdmissionQuestion(
                query="third",
                placement={"work": "z", "wrok": "a#7"},
                objective=LatencyObjective("median", -1),
                changes=(),
            ),
        )
    paths = {fault.path for fault in refusal.value.faults}
    assert {"placement.work", "placement.wrok", "query.objective.statistic", "query.objective.bound_s"} <= paths
    assert not AdmissionRequest.objects.exists()
    with pytest.raises(Missing):
        ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="fifth"))


# -- documents


def document(load: float = 0.3, **more: Any) -> dict[str, Any]:
    return {
        "query": "third",
        "sources": [{"id": "taps", "arrivals": [100.0] * 60}],
        **body(load, "taps"),
        "objective": {"statistic": "worst", "bound_s": 2.0},
        **more,
    }


def test_document_registers_its_query_and_sources(cluster: Any, admitter: Any) -> None:
    request, _ = ADMISSION.request(
        cluster=cluster, user=admitter, question=AdmissionQuestion(document=document(team="Growth"))
    )
    assert (str(request.query.team), request.query.objective_bound_s) == ("Growth", 2.0)
    assert cluster.arrivals.get(source_id="taps").events == pytest.approx(6000.0)
    run_jobs()
    request.refresh_from_db()
    assert request.verdict == Verdict.ADMIT
    again, _ = ADMISSION.request(
        cluster=cluster,
        user=admitter,
        question=AdmissionQuestion(document=document(0.4, objective={"statistic": "mean", "bound_s": 1.0})),
    )
    assert (again.version.number, again.objective) == (2, {"statistic": "mean", "bound_s": 1.0})


def test_source_of_a_document_keeps_its_step_and_dispersion(cluster: Any, admitter: Any) -> None:
    source = {"id": "taps", "arrivals": [100.0] * 60, "arrivals_step_s": 5.0}
    scatter = {"dispersion": 2.0, "dispersion_step_s": 1.0}
    ADMISSION.request(
        cluster=cluster, user=admitter, question=AdmissionQuestion(document=document(sources=[source | scatter]))
    )
    row = cluster.arrivals.get(source_id="taps")
    assert (row.step_s, row.dispersion, row.dispersion_step_s) == (5.0, 2.0, 1.0)


def test_faulty_document_stores_nothing(cluster: Any, admitter: Any) -> None:
    faulty = document(priority="high", sources=[{"id": "taps", "arrivals": [1.0, -2.0]}], colour="red")
    faulty["operators"].append({"id": "more", "inputs": [{"from": "nowhere", "selectivity": -1}]})
    with pytest.raises(Malformed) as refusal:
        ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(document=faulty))
    paths = {fault.path for fault in refusal.value.faults}
    assert {"document.priority", "document.sources[0].arrivals[1]", "document.colour"} <= paths
    assert "document.operators[1].inputs[0].selectivity" in paths
    assert not Query.objects.filter(name="third").exists()
    assert not ArrivalSeries.objects.filter(source_id="taps").exists()


def test_a_source_with_other_arrivals_is_refused(cluster: Any, admitter: Any) -> None:
    other = document(sources=[{"id": "clicks", "arrivals": [1.0] * 60}], **body(0.3))
    with pytest.raises(Malformed) as refusal:
        ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(document=other))
    assert [fault.path for fault in refusal.value.faults] == ["document.sources[0].arrivals"]
    same = document(sources=[{"id": "clicks", "arrivals": [100.0] * 60}], **body(0.3))
    assert ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(document=same))


def test_request_to_apply_is_decided_on_again_at_once_where_the_cluster_moved(
    cluster: Cluster, admitter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within its job, so that it does not go to the end of the queue; what is applied is of the cluster as it is."""
    real, moves = previews.ask_engine, [0.3, None]

    def ask(*arguments: Any) -> Any:
        found = real(*arguments)
        if moves.pop(0):
            start_query(cluster, "between", 0.3, "b")
        return found

    make_query(cluster, "third", 0.3)
    monkeypatch.setattr(previews, "ask_engine", ask)
    request = previewed(cluster, admitter, "third", mode="apply")
    assert not moves and request.state == AdmissionState.APPLIED
    assert request.decision is not None
    placed = {replica.node for replicas in request.decision.placement.values() for replica in replicas}
    assert placed == {"a"}, "b has 0.7 by then"
    assert Job.objects.filter(kind="workers.preview_admission").count() == 1


def test_preview_that_nothing_is_done_with_any_more_keeps_no_parts_to_compare(cluster: Cluster, admitter: Any) -> None:
    for name in ("open", "old", "applied"):
        make_query(cluster, name, 0.05)
    requests = {name: previewed(cluster, admitter, name) for name in ("open", "old", "applied")}
    admission_apply(request=previewed(cluster, admitter, "applied"), user=admitter)
    AdmissionRequest.objects.filter(pk=requests["old"].pk).update(valid_until=timezone.now() - timedelta(days=2))
    assert previews.previews_purge() == 3, "the first preview of what was applied is superseded"
    kept = dict(AdmissionRequest.objects.values_list("query__name", "snapshot_parts"))
    assert kept["open"] and not kept["old"] and not kept["applied"]
    standing = admission_standing(AdmissionRequest.objects.get(pk=requests["old"].pk))
    assert standing.is_expired and not standing.changes and "no longer valid" in standing.why_not
    assert previews.previews_purge() == 0
