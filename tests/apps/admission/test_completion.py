"""Parts of previews: they follow the verdict in a job of their own, of its snapshot, and end honestly."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings as django_settings
from django.db import connection
from django.utils import timezone

from apps.accounts.choices import Role
from apps.admission import completion, kept_questions
from apps.admission.choices import AdmissionState, PartState, Verdict
from apps.admission.completion import completion_retry
from apps.admission.decisions import admission_apply, admission_decline, admission_withdraw
from apps.admission.kept_questions import kept_question, kept_questions_purge
from apps.admission.models import AdmissionRequest
from apps.admission.parts import parts_of
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion, RequestQuestion
from apps.admission.selectors import admission_standing
from apps.core.errors import Conflict, Impossible, Unavailable
from apps.fleet.services import cluster_update, node_update
from apps.jobs.models import Job, JobKind, JobState
from apps.jobs.runner import run_job
from apps.jobs.services import LOST_AFTER, MAX_ATTEMPTS, job_cancel
from engine.admission.decision import OpenDecision
from engine.estimation import base_file
from tests.apps.policies.documents import set_policy
from tests.apps.small_cluster import make_query, run_jobs, small_cluster, start_query, user
from workers.jobs import JOB_WORK

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def cluster() -> Any:
    cluster = small_cluster()
    start_query(cluster, "first", 0.6, "a")
    start_query(cluster, "second", 0.4, "b")
    make_query(cluster, "third", 0.4)
    make_query(cluster, "large", 0.9)
    return cluster


@pytest.fixture
def admitter() -> Any:
    return user(Role.ADMITTER)


def run_next() -> Job:
    """Do the job of a preview that waits for longest, and no other."""
    kinds = (JobKind.ADMISSION_PREVIEW, JobKind.ADMISSION_PARTS)
    job = Job.objects.filter(state=JobState.QUEUED, kind__in=kinds).order_by("created_at").first()
    assert job is not None
    run_job(job.pk, JOB_WORK[job.kind])
    job.refresh_from_db()
    return job


def decided(cluster: Any, asker: Any, query: str = "third", **asked: Any) -> AdmissionRequest:
    """A request that has its verdict, and nothing more."""
    request, _ = ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query=query, **asked))
    run_next()
    request.refresh_from_db()
    return request


def decided_alone(cluster: Any, asker: Any, query: str) -> AdmissionRequest:
    """The same of a new query, whatever other jobs wait."""
    make_query(cluster, query, 0.02)
    request, job = ADMISSION.request(cluster=cluster, user=asker, question=AdmissionQuestion(query=query))
    run_job(job.pk, ADMISSION.work)
    request.refresh_from_db()
    return request


def states(request: AdmissionRequest) -> dict[str, str]:
    request.refresh_from_db()
    return {name: part.state for name, part in parts_of(request).items()}


def during(monkeypatch: Any, act: Callable[[], object]) -> None:
    """Have something happen while a part is computed."""
    compute = OpenDecision.compute

    def watched(self: Any, part: Any, tell: Any) -> None:
        act()
        compute(self, part, tell)

    monkeypatch.setattr(OpenDecision, "compute", watched)


class Killed(BaseException):
    """Ends a process without any of its handlers."""


def kill(monkeypatch: Any, *parts: str) -> None:
    """Kill the worker in some parts, until undone."""
    compute = OpenDecision.compute

    def killed(self: Any, part: Any, tell: Any) -> None:
        if part in parts:
            raise Killed
        compute(self, part, tell)

    monkeypatch.setattr(OpenDecision, "compute", killed)


def silence(job: Job) -> None:
    before = timezone.now() - LOST_AFTER - timedelta(seconds=1)
    Job.objects.filter(pk=job.pk).update(heartbeat_at=before, sent_at=before)


def kept(request: AdmissionRequest) -> Path:
    return Path(django_settings.VAR_DIR) / "previews" / f"{request.pk}.question"


def test_verdict_stands_and_can_be_applied_before_its_parts(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter)
    assert (request.state, request.verdict) == (AdmissionState.PREVIEW, Verdict.ADMIT)
    assert states(request) == {"alternatives": "does_not_apply", "robustness": "pending"}
    assert (request.result["thin"], request.result["robustness"]) == ("pending", None)
    assert admission_standing(request).can_apply
    admission_apply(request=request, user=admitter)
    assert states(request)["robustness"] == PartState.CANCELLED
    assert (request.state, request.result["thin"]) == (AdmissionState.APPLIED, "unknown")
    assert parts_of(request)["robustness"].message == "The request was applied before."
    request.parts_job.refresh_from_db()
    assert request.parts_job.state == JobState.CANCELLED


def test_parts_add_what_they_find_to_the_decision(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter, "large")
    first = dict(request.result)
    assert (request.verdict, first["choices"]) == (Verdict.REJECT, [])
    assert states(request) == {"alternatives": "pending", "robustness": "does_not_apply"}
    assert kept(request).exists()
    job = run_next()
    assert (job.kind, job.state) == (JobKind.ADMISSION_PARTS, JobState.SUCCEEDED)
    assert states(request) == {"alternatives": "done", "robustness": "does_not_apply"}
    assert request.result["choices"]
    assert set(request.curves["choices"]) == {choice["id"] for choice in request.result["choices"]}
    assert request.result["searched"]["found"]
    found_later = {name: first.get(name) for name in ("choices", "reasons", "searched")}
    assert {**request.result, **found_later} == first
    assert parts_of(request)["alternatives"].seconds > 0
    assert not kept(request).exists()


def test_parts_wait_behind_verdicts_and_before_what_takes_minutes(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter)
    verdict, parts = request.job, request.parts_job
    assert (verdict.queue, parts.queue) == (django_settings.INTERACTIVE_QUEUE, django_settings.BACKGROUND_QUEUE)
    search = Job(kind=JobKind.PLACEMENT, requested_by=admitter)
    assert search.queue == parts.queue
    assert parts.priority < search.priority


@pytest.mark.parametrize("end", [admission_withdraw, admission_decline])
def test_parts_of_a_request_that_is_closed_stop(
    cluster: Any, admitter: Any, end: Callable[..., Any], monkeypatch: Any
) -> None:
    request = decided(cluster, admitter)
    during(monkeypatch, lambda: end(request=request, user=admitter, reason="No longer"))
    job = run_next()
    assert job.state == JobState.CANCELLED
    assert states(request)["robustness"] == PartState.CANCELLED
    assert request.result["robustness"] is None
    assert request.state in {AdmissionState.WITHDRAWN, AdmissionState.DECLINED}


def test_application_during_a_part_ends_it(cluster: Any, admitter: Any, monkeypatch: Any) -> None:
    request = decided(cluster, admitter)
    during(monkeypatch, lambda: admission_apply(request=request, user=admitter))
    assert run_next().state == JobState.CANCELLED
    assert states(request)["robustness"] == PartState.CANCELLED
    assert (request.state, request.result["thin"]) == (AdmissionState.APPLIED, "unknown")


def test_preview_of_the_same_question_ends_the_parts_of_the_one_before(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter)
    follower, _ = ADMISSION.request(parent=request, user=admitter)
    assert states(request)["robustness"] == PartState.CANCELLED
    run_jobs()
    assert states(follower)["robustness"] == PartState.DONE


def test_request_that_applies_itself_has_no_parts_computed(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter, mode="apply")
    assert (request.state, states(request)["robustness"]) == (AdmissionState.APPLIED, PartState.CANCELLED)
    assert request.parts_job is None


def test_two_previews_have_their_own_parts(cluster: Any, admitter: Any) -> None:
    first, second = decided(cluster, admitter), decided(cluster, admitter, "large")
    run_jobs()
    assert (states(first)["robustness"], states(second)["alternatives"]) == ("done", "done")
    assert first.result["robustness"] and second.result["choices"]


def test_parts_are_of_the_verdicts_snapshot_when_the_cluster_has_moved(cluster: Any, admitter: Any) -> None:
    unmoved = decided(cluster, admitter)
    run_jobs()
    unmoved.refresh_from_db()
    request = decided(cluster, admitter)
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=700.0)
    run_next()
    assert states(request)["robustness"] == PartState.DONE
    assert admission_standing(request).is_stale
    assert request.result["robustness"] == unmoved.result["robustness"]


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_lost_snapshot_is_taken_anew_only_of_a_cluster_that_has_not_moved(
    cluster: Any, admitter: Any, harm: Callable[[Path], Any]
) -> None:
    request = decided(cluster, admitter)
    harm(kept(request))
    run_next()
    assert states(request)["robustness"] == PartState.DONE
    request = decided(cluster, admitter)
    harm(kept(request))
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=700.0)
    assert run_next().error["code"] == "snapshot_lost"
    assert states(request)["robustness"] == PartState.FAILED
    assert "Preview it again" in parts_of(request)["robustness"].message
    assert request.result["thin"] == "unknown"


def _change_engine(patched: Any) -> None:
    patched.setattr(base_file, "source_version", lambda: "another")


def _change_question(patched: Any) -> None:
    later = make_dataclass("Later", ["later"]).__dataclass_fields__
    patched.setattr(RequestQuestion, "__dataclass_fields__", {**RequestQuestion.__dataclass_fields__, **later})


@pytest.mark.parametrize("release", [_change_engine, _change_question])
def test_snapshot_kept_by_another_release_is_not_believed(
    cluster: Any, admitter: Any, monkeypatch: Any, release: Callable[[Any], None]
) -> None:
    request = decided(cluster, admitter)
    with monkeypatch.context() as patched:
        release(patched)
        assert kept_question(request) is None
    found = kept_question(request)
    assert found is not None and found.digest == request.snapshot


def test_parts_of_a_killed_worker_are_taken_up_again(cluster: Any, admitter: Any, monkeypatch: Any) -> None:
    set_policy(cluster, evidence={"assumed": "review"})  # a verdict that passes, and has alternatives to search
    request = decided(cluster, admitter)
    assert set(states(request).values()) == {"pending"}
    with monkeypatch.context() as patched:
        kill(patched, "robustness")
        with pytest.raises(Killed):
            run_next()
    assert states(request) == {"alternatives": "done", "robustness": "running"}
    found = request.result["choices"]
    silence(request.parts_job)
    run_job(request.parts_job.pk, JOB_WORK[JobKind.ADMISSION_PARTS])
    assert states(request) == {"alternatives": "done", "robustness": "done"}
    assert request.result["choices"] == found
    assert request.result["robustness"]


def test_job_killed_after_its_last_part_succeeds_when_it_is_taken_up_again(
    cluster: Any, admitter: Any, monkeypatch: Any
) -> None:
    request = decided(cluster, admitter)
    with monkeypatch.context() as patched:
        patched.setattr(completion, "forget_question", lambda pk: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            run_next()
    assert states(request)["robustness"] == PartState.DONE
    silence(request.parts_job)
    job = run_job(request.parts_job.pk, JOB_WORK[JobKind.ADMISSION_PARTS])
    assert job is not None
    assert (job.state, job.result["robustness"]) == (JobState.SUCCEEDED, "done")
    assert not kept(request).exists()


def test_parts_that_kill_every_worker_fail_with_the_reason(cluster: Any, admitter: Any, monkeypatch: Any) -> None:
    request = decided(cluster, admitter)
    kill(monkeypatch, "robustness")
    for _ in range(MAX_ATTEMPTS):
        with pytest.raises(Killed):
            run_job(request.parts_job_id, JOB_WORK[JobKind.ADMISSION_PARTS])
        silence(request.parts_job)
    run_job(request.parts_job_id, JOB_WORK[JobKind.ADMISSION_PARTS])
    assert states(request)["robustness"] == PartState.FAILED
    assert parts_of(request)["robustness"].message.startswith(f"Its worker was lost {MAX_ATTEMPTS} times")
    assert (request.state, request.verdict) == (AdmissionState.PREVIEW, Verdict.ADMIT)


def test_part_that_fails_leaves_the_verdict_and_can_be_tried_again(
    cluster: Any, admitter: Any, monkeypatch: Any
) -> None:
    request = decided(cluster, admitter)
    with monkeypatch.context() as patched:
        patched.setattr(OpenDecision, "compute", lambda self, part, tell: 1 / 0)
        assert run_next().state == JobState.SUCCEEDED
    assert states(request)["robustness"] == PartState.FAILED
    assert "inside Sluice" in parts_of(request)["robustness"].message
    assert request.result["thin"] == "unknown"
    assert admission_standing(request).can_apply
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=700.0)  # the snapshot is still there
    completion_retry(request=request, user=admitter)
    assert (states(request)["robustness"], request.result["thin"]) == ("pending", "pending")
    with pytest.raises(Conflict, match="being computed"):
        completion_retry(request=request, user=admitter)
    run_next()
    assert (states(request)["robustness"], request.result["thin"]) == ("done", False)
    with pytest.raises(Conflict, match="No part"):
        completion_retry(request=request, user=admitter)


def test_cancelled_job_leaves_its_parts_cancelled(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter)
    job_cancel(request.parts_job)
    assert states(request)["robustness"] == PartState.CANCELLED
    assert parts_of(request)["robustness"].message == "Its job was cancelled."
    completion_retry(request=request, user=admitter)
    run_next()
    assert states(request)["robustness"] == PartState.DONE


def test_parts_get_no_more_than_their_time(cluster: Any, admitter: Any) -> None:
    cluster_update(cluster=cluster, parts_budget_s=1e-9)
    request = decided(cluster, admitter)
    assert run_next().state == JobState.SUCCEEDED
    assert states(request)["robustness"] == PartState.OUT_OF_BUDGET
    assert "the settings of the cluster" in parts_of(request)["robustness"].message
    assert request.result["thin"] == "unknown"
    cluster_update(cluster=cluster, parts_budget_s=120)
    completion_retry(request=request, user=admitter)
    run_next()
    assert states(request)["robustness"] == PartState.DONE


@pytest.mark.parametrize("limit_s", [0.0, 0.5])
def test_parts_end_before_the_time_limit_of_their_task(
    cluster: Any, admitter: Any, settings: Any, monkeypatch: Any, limit_s: float
) -> None:
    settings.CELERY_TASK_SOFT_TIME_LIMIT = limit_s
    set_policy(cluster, evidence={"assumed": "review"})
    cluster_update(cluster=cluster, parts_budget_s=600)
    request = decided(cluster, admitter)
    during(monkeypatch, lambda: time.sleep(limit_s))
    assert run_next().state == JobState.SUCCEEDED
    assert states(request)["robustness"] == PartState.OUT_OF_BUDGET  # of alternatives there is nothing to try
    late = [part for part in parts_of(request).values() if part.state == PartState.OUT_OF_BUDGET]
    assert all("SLUICE_TASK_VISIBILITY_S" in part.message for part in late)
    settings.CELERY_TASK_SOFT_TIME_LIMIT = 720.0
    completion_retry(request=request, user=admitter)
    run_next()
    assert set(states(request).values()) == {PartState.DONE}


def test_time_limit_within_a_long_step_leaves_what_was_found(cluster: Any, admitter: Any, monkeypatch: Any) -> None:
    request = decided(cluster, admitter, "large")
    compute = OpenDecision.compute

    def compute_long(self: Any, part: Any, tell: Any) -> None:
        compute(self, part, tell)
        raise SoftTimeLimitExceeded

    monkeypatch.setattr(OpenDecision, "compute", compute_long)
    assert run_next().state == JobState.SUCCEEDED
    assert states(request)["alternatives"] == PartState.OUT_OF_BUDGET
    assert "SLUICE_TASK_VISIBILITY_S" in parts_of(request)["alternatives"].message
    assert request.result["choices"]


def test_cluster_that_gives_parts_no_time_has_none(cluster: Any, admitter: Any) -> None:
    cluster_update(cluster=cluster, parts_budget_s=0)
    request = decided(cluster, admitter)
    assert states(request) == {"alternatives": "does_not_apply", "robustness": "out_of_budget"}
    assert (request.result["thin"], request.parts_job) == ("unknown", None)
    assert not Job.objects.filter(kind=JobKind.ADMISSION_PARTS).exists()
    with pytest.raises(Impossible, match="parts_budget_s is 0"):
        completion_retry(request=request, user=admitter)


def test_broker_that_is_gone_after_the_verdict_costs_no_verdict(cluster: Any, admitter: Any, monkeypatch: Any) -> None:
    def refuse(**asked: Any) -> Job:
        raise Unavailable("No work can be queued.")

    request, job = ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="third"))
    monkeypatch.setattr(completion._submit, "__defaults__", (refuse,))
    run_job(job.pk, JOB_WORK[job.kind])
    request.refresh_from_db()
    assert (request.state, request.verdict) == (AdmissionState.PREVIEW, Verdict.ADMIT)
    assert parts_of(request)["robustness"].to_dict() == {
        "state": "failed",
        "message": "No work can be queued.",
        "seconds": None,
    }


def test_answer_that_waits_is_given_once_the_parts_are_there(cluster: Any, admitter: Any, api_of: Any) -> None:
    request = decided(cluster, admitter)

    def work() -> None:
        run_next()
        connection.close()

    late = threading.Timer(0.3, work)
    late.start()
    answer = api_of("operator").get(f"/api/v1/admissions/{request.pk}", HTTP_PREFER="wait=30").json()
    late.join()
    assert answer["parts"]["robustness"]["state"] == "done"
    assert answer["decision"]["robustness"]


def test_parts_of_another_verdict_are_not_added(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter)
    request.result = {**request.result, "verdict": "review"}
    request.save()
    assert run_next().error["code"] == "verdict_differs"
    assert states(request)["robustness"] == PartState.FAILED


def test_kept_snapshots_are_deleted_after_a_day(cluster: Any, admitter: Any) -> None:
    kept_questions_purge()  # those of other tests
    request = decided(cluster, admitter)
    os.utime(kept(request), (time.time(), time.time()))
    assert kept_questions_purge() == 0
    os.utime(kept(request), (0, 0))
    assert kept_questions_purge() == 1
    assert not kept(request).exists()


def test_questions_of_one_cluster_share_its_elements(cluster: Any, admitter: Any) -> None:
    first, second = decided_alone(cluster, admitter, "one-wish"), decided_alone(cluster, admitter, "another-wish")
    references = list(kept(first).parent.glob("*.reference"))
    kept_questions._latest = None  # another process
    found = [kept_question(request) for request in (first, second)]
    assert [question.digest for question in found if question] == [first.snapshot, second.snapshot]
    used = {kept(request).read_bytes().split(b"\n", 2)[1].decode() for request in (first, second)}
    assert len(used) == 1 and used <= {path.stem for path in references}


def test_question_whose_reference_is_gone_is_not_believed(cluster: Any, admitter: Any) -> None:
    request = decided(cluster, admitter)
    for path in kept(request).parent.glob("*.reference"):
        path.unlink()
    kept_questions._latest = None
    assert kept_question(request) is None
    again = decided_alone(cluster, admitter, "another-wish")
    assert kept_question(again) is not None
