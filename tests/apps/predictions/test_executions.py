"""Observed executions beside their predictions; prequential errors; fine-tuning with its guard; roll-back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.models import Cluster
from apps.predictions import fine_tunings
from apps.predictions.choices import FineTuningState, ModelState, PredictionPurpose
from apps.predictions.executions import ObservedCosts, execution_report, executions_observe_all, executions_purge
from apps.predictions.fine_tunings import FINE_TUNING, observations_of
from apps.predictions.models import FineTuning, ModelVersion, ObservedExecution, Prediction
from apps.predictions.selectors import cluster_accuracy
from apps.predictions.services import prediction_request
from apps.queries.models import Query, QueryVersion
from apps.queries.services import query_start
from apps.results.models import ResultWindow
from apps.telemetry.models import LiveQuery, TelemetrySource
from tests.apps.domain import fault_paths
from tests.apps.predictions.samples import make_cluster, make_model, make_query
from tests.apps.recordings import recorded
from tests.apps.small_cluster import run_jobs, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    cluster = recorded(make_cluster)
    make_model(cluster)
    return cluster


def started(cluster: Cluster, name: str = "new") -> QueryVersion:
    query = make_query(cluster, name)
    query_start(version=query.versions.get(), placement={"keep": "strong", "mean": "strong"})
    return QueryVersion.objects.select_related("query__cluster").get(query=query)


def executed(cluster: Cluster, count: int, queries: int = 6, latency_s: float = 8.0) -> None:
    """Executions of several queries, each twice as slow as predicted (4.004 s)."""
    versions = [started(cluster, f"q{k}") for k in range(queries)]
    for version in versions:
        prediction_request(version=version)
    now = timezone.now()
    Prediction.objects.update(created_at=now - timedelta(days=1))
    for i in range(count):
        ends_at = now - timedelta(minutes=5 * i)
        costs = ObservedCosts(5.0, None, latency_s, False, True)
        execution_report(version=versions[i % queries], costs=costs, ends_at=ends_at, now=now)


def test_reported_execution_is_held_against_what_was_predicted_before(cluster: Cluster) -> None:
    version = started(cluster)
    asked = prediction_request(version=version)
    Prediction.objects.filter(pk=asked.pk).update(created_at=timezone.now() - timedelta(hours=1))
    row = execution_report(version=version, costs=ObservedCosts(10.0, None, 4.001, False, True))
    assert row.prediction_id == asked.pk
    assert (row.q_throughput, row.q_processing_latency, row.q_end_to_end_latency) == (
        2.0,
        None,
        pytest.approx(1.0, rel=2e-3),
    )
    later = execution_report(version=version, costs=ObservedCosts(5.0), duration_s=3700.0)
    assert later.prediction.purpose == PredictionPurpose.OBSERVATION  # none is older than the stretch


def test_nonsense_is_refused_whole(cluster: Cluster) -> None:
    version = started(cluster)
    with pytest.raises(Malformed) as error:
        execution_report(
            version=version,
            costs=ObservedCosts(throughput_eps=float("nan"), end_to_end_latency_s=-1.0, success=False),
            duration_s=0.0,
            ends_at=timezone.now() + timedelta(hours=1),
        )
    assert {"throughput_eps", "end_to_end_latency_s", "duration_s", "ends_at"} <= fault_paths(error)
    with pytest.raises(Malformed, match="nothing was observed"):
        execution_report(version=version, costs=ObservedCosts())
    moment = timezone.now()
    execution_report(version=version, costs=ObservedCosts(5.0), ends_at=moment)
    with pytest.raises(Conflict):
        execution_report(version=version, costs=ObservedCosts(5.0), ends_at=moment)
    stopped = make_query(cluster, "draft").versions.select_related("query__cluster").get()
    with pytest.raises(Impossible, match="does not run"):
        execution_report(version=stopped, costs=ObservedCosts(5.0))
    assert ObservedExecution.objects.count() == 1


def windows(query: Query, count: int) -> None:
    """Windows of 4 s with 20 rows each, half a second late, emitted in the last minutes."""
    now = timezone.now()
    for i in range(count):
        ResultWindow.objects.create(
            query=query, version_number=1, plan="p", window_us=i, width_us=4_000_000, complete=True, row_count=20,
            body=b"", emitted_at=now - timedelta(seconds=60 + i), latency_s=0.5,
        )  # fmt: skip


def test_live_query_is_observed_once_an_hour(cluster: Cluster) -> None:
    version = started(cluster)
    source = TelemetrySource.objects.create(cluster=cluster, source_id="s")
    LiveQuery.objects.create(
        query=version.query, source=source, version=version, pipeline={"operators": []}, source_operators=1
    )
    assert executions_observe_all() == 0  # no window yet
    windows(version.query, 5)
    assert executions_observe_all() == 1
    row = ObservedExecution.objects.get()
    assert (row.throughput_eps, row.end_to_end_latency_s, row.success) == (5.0, 4.5, True)
    assert row.processing_latency_s is None and row.backpressure is None
    assert executions_observe_all() == 0
    assert executions_purge(timezone.now() + timedelta(days=400)) == 2


def test_errors_are_shown_from_thirty_executions_on_and_by_origin(cluster: Cluster) -> None:
    executed(cluster, 29)
    assert cluster_accuracy(cluster)["fine_tuned"] is None
    version = QueryVersion.objects.filter(query__name="q0").select_related("query__cluster").get()
    execution_report(version=version, costs=ObservedCosts(5.0, None, 8.0, False, True))
    shown = cluster_accuracy(cluster)
    assert (shown["executions"], shown["needed"], shown["shipped"]) == (30, 30, None)
    assert shown["fine_tuned"]["Le"] == {
        "runs": 30,
        "q50": pytest.approx(2.0, rel=2e-3),
        "q95": pytest.approx(2.0, rel=2e-3),
    }
    assert shown["fine_tuned"]["S"]["accuracy"] == 1.0


def test_fine_tuned_model_is_in_force_only_if_the_guard_accepts_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fine_tunings, "_simulated", lambda seed, count: [])  # no simulation in this test
    before = ModelVersion.objects.get()
    with pytest.raises(Impossible, match="fine-tuning needs 30"):
        FINE_TUNING.request(cluster=cluster, user=None)
    executed(cluster, 37)
    unreadable = ObservedExecution.objects.first()
    ObservedExecution.objects.filter(pk=unreadable.pk).update(trace={"query": 1})
    run, _ = FINE_TUNING.request(cluster=cluster, user=user())
    with pytest.raises(Conflict, match="under way"):
        FINE_TUNING.request(cluster=cluster, user=None)
    run_jobs()
    run.refresh_from_db()
    assert run.state == FineTuningState.ACCEPTED, run.message
    assert run.message.endswith("1 execution could not be read.")
    assert run.observations + run.held_out == 36 and run.held_out >= 10
    assert run.result["after"]["Le"]["q50"] < run.result["before"]["Le"]["q50"]
    before.refresh_from_db()
    assert (before.state, run.model.state, run.model.parent) == (ModelState.AVAILABLE, ModelState.IN_FORCE, before)
    assert run.model.card["observed"] == run.observations and "simulated" in run.model.card
    again, _ = FINE_TUNING.request(cluster=cluster, user=None)
    run_jobs()
    again.refresh_from_db()
    assert (again.state, again.model.state) == (FineTuningState.REFUSED, ModelState.REFUSED)
    assert ModelVersion.objects.get(state=ModelState.IN_FORCE) == run.model


def test_failed_job_fails_its_fine_tuning(cluster: Cluster) -> None:
    executed(cluster, 30)
    run, _ = FINE_TUNING.request(cluster=cluster, user=None)
    ObservedExecution.objects.update(trace={"query": 1})
    run_jobs()
    failed = FineTuning.objects.get(pk=run.pk)
    assert failed.state == FineTuningState.FAILED and "30 executions cannot be read" in failed.message


def test_observations_of_a_query_are_one_group(cluster: Cluster) -> None:
    executed(cluster, 6, queries=2)
    observations, unreadable = observations_of(cluster)
    groups = [observation.group for observation in observations]
    assert unreadable == 0
    assert len(groups) == 6 and len(set(groups)) == 2


def test_rest_asks_reports_and_rolls_back(cluster: Cluster, api: APIClient) -> None:
    first = ModelVersion.objects.get()
    second = make_model(cluster, half=0.3)
    started(cluster)
    asked = api.post("/api/v1/predictions", {"cluster": "lab", "query": "new", "target": "Lp"}, format="json")
    assert asked.status_code == 201 and asked.json()["state"] == "predicted"
    answer = asked.json()["answer"]
    assert answer["candidates"]["points"] and "trained on 5 simulated traces" in answer["model"]["line"]
    listed = api.get("/api/v1/predictions?cluster=lab").json()["results"]
    assert [row["id"] for row in listed] == [asked.json()["id"]] and "answer" not in listed[0]
    told = {"cluster": "lab", "query": "new", "throughput_eps": 5, "end_to_end_latency_s": 8, "success": True}
    seen = api.post("/api/v1/observed-executions", told, format="json")
    assert seen.status_code == 201 and seen.json()["q_end_to_end_latency"] == pytest.approx(8 / 4.001, rel=1e-3)
    bad = api.post("/api/v1/observed-executions", {**told, "throughput_eps": True, "seen": 1}, format="json")
    assert {fault["path"] for fault in bad.json()["faults"]} == {"throughput_eps", "seen"}
    back = api.post(f"/api/v1/model-versions/{first.pk}/put-in-force", {"cluster": "lab"}, format="json")
    assert back.json()["state"] == "in_force" and "card" in back.json()
    states = {row["id"]: row["state"] for row in api.get("/api/v1/model-versions?cluster=lab").json()["results"]}
    assert states == {first.pk: "in_force", second.pk: "available"}
    few = api.post("/api/v1/fine-tunings", {"cluster": "lab"}, format="json")
    assert (few.status_code, few.json()["code"]) == (422, "too_few")
    assert api.get("/api/v1/predictions/accuracy?cluster=lab").json()["executions"] == 1
    query = Query.objects.get(name="new")
    assert api.get(f"/api/v1/queries/{query.pk}/basis").json()["kind"] == "prediction"
