"""Snapshots of a preview: one, built by its job, before the cluster is locked; checks and comparisons build none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from apps.accounts.choices import Role
from apps.accounts.models import User
from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.core.errors import Malformed, Stale
from apps.estimates.refresh import refresh_paused
from apps.fleet.models import Cluster
from apps.fleet.services import node_update
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot
from tests.apps.small_cluster import body, make_query, run_jobs, small_cluster, start_query, user

pytestmark = pytest.mark.django_db(transaction=True)

#: For each snapshot that was built: whether a transaction, and so perhaps the cluster's lock, was open.
Builds = list[bool]


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    """Snapshots built by anything that calls `cluster_snapshot`; estimates after changes are paused."""
    seen: Builds = []

    def recorded(cluster: Cluster) -> Snapshot:
        seen.append(connection.in_atomic_block)
        return cluster_snapshot(cluster)

    for module in list(sys.modules.values()):
        if module is not sys.modules[__name__] and getattr(module, "cluster_snapshot", None) is cluster_snapshot:
            monkeypatch.setattr(module, "cluster_snapshot", recorded)
    with refresh_paused():
        yield seen


@pytest.fixture
def cluster() -> Cluster:
    """Node a is at 0.6, node b at 0.4."""
    with refresh_paused():
        cluster = small_cluster()
        start_query(cluster, "first", 0.6, "a")
        start_query(cluster, "second", 0.4, "b")
    return cluster


@pytest.fixture
def admitter() -> User:
    return user(Role.ADMITTER)


@contextmanager
def one_build_without_lock(builds: Builds) -> Iterator[None]:
    """Exactly one snapshot is built inside, and no transaction is open then."""
    builds.clear()
    yield
    assert builds == [False]


@contextmanager
def no_build(builds: Builds) -> Iterator[None]:
    builds.clear()
    yield
    assert builds == []


def preview(cluster: Cluster, admitter: User, name: str, load: float, **asked: Any) -> AdmissionRequest:
    make_query(cluster, name, load)
    request, _ = ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query=name, **asked))
    run_jobs()
    request.refresh_from_db()
    return request


def test_preview_from_its_page_builds_one_snapshot_outside_the_lock(
    cluster: Cluster, admitter: User, builds: Builds
) -> None:
    make_query(cluster, "wish", 0.5)
    browser = Client()
    browser.force_login(admitter)
    with one_build_without_lock(builds):
        answer = browser.post(f"/c/{cluster.slug}/admission/new/", {"query": "wish", "version": 1, "may_wait_s": 0})
        assert answer.status_code == 302, answer.content[:500]
        assert builds == []  # asking builds none: its job will
        run_jobs()
        assert AdmissionRequest.objects.get().state == AdmissionState.PREVIEW
        assert browser.get(answer["Location"]).status_code == 200


def ask_again(request: AdmissionRequest, admitter: User) -> AdmissionRequest:
    return ADMISSION.request(parent=request, user=admitter)[0]


def ask_alternative(request: AdmissionRequest, admitter: User) -> AdmissionRequest:
    alternative = (request.result or {})["choices"][0]["id"]
    return ADMISSION.request(parent=request, alternative=alternative, user=admitter)[0]


@pytest.mark.parametrize("ask", [ask_again, ask_alternative])
def test_follower_of_a_preview_builds_one_snapshot_outside_the_lock(
    cluster: Cluster, admitter: User, builds: Builds, ask: Callable[[AdmissionRequest, User], AdmissionRequest]
) -> None:
    rejected = preview(cluster, admitter, "wish", 0.7)
    assert rejected.verdict == Verdict.REJECT
    with one_build_without_lock(builds):
        follower = ask(rejected, admitter)
        run_jobs()
    follower.refresh_from_db()
    assert follower.state == AdmissionState.PREVIEW


def test_preview_of_a_document_builds_one_snapshot_outside_the_lock(
    cluster: Cluster, admitter: User, builds: Builds
) -> None:
    with one_build_without_lock(builds):
        document = {"query": "wish", **body(0.3)}
        request, _ = ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(document=document))
        run_jobs()
    request.refresh_from_db()
    assert request.verdict == Verdict.ADMIT


def test_preview_that_applies_itself_builds_one_snapshot_and_compares_without(
    cluster: Cluster, admitter: User, builds: Builds
) -> None:
    with one_build_without_lock(builds):
        request = preview(cluster, admitter, "wish", 0.5, mode="apply")
    assert request.state == AdmissionState.APPLIED


def test_apply_is_refused_on_a_moved_cluster_without_a_snapshot(
    cluster: Cluster, admitter: User, builds: Builds
) -> None:
    request = preview(cluster, admitter, "wish", 0.5)
    node_update(node=cluster.nodes.get(name="b"), capacity_cps=900.0)
    with no_build(builds), pytest.raises(Stale, match="node b: capacity changed"):
        admission_apply(request=request, user=admitter)


def test_apply_on_an_unmoved_cluster_builds_no_snapshot(cluster: Cluster, admitter: User, builds: Builds) -> None:
    request = preview(cluster, admitter, "wish", 0.5)
    with no_build(builds):
        assert admission_apply(request=request, user=admitter).state == AdmissionState.APPLIED


def test_refused_question_builds_no_snapshot(cluster: Cluster, admitter: User, builds: Builds) -> None:
    make_query(cluster, "wish", 0.5)
    move = {"kind": "move", "operator": "second/work", "node": "nowhere"}
    with no_build(builds), pytest.raises(Malformed) as refusal:
        ADMISSION.request(cluster=cluster, user=admitter, question=AdmissionQuestion(query="wish", changes=(move,)))
    assert [fault.path for fault in refusal.value.faults] == ["changes[0].node"]
