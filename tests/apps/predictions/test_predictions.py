"""Predictions of queries that never ran: asked for, admitted with, stale with their model, handed over to Mace."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.decisions import admission_apply
from apps.admission.models import AdmissionRequest
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion
from apps.admission.selectors import admission_standing
from apps.core.errors import Conflict, Impossible, Malformed
from apps.fleet.models import Cluster
from apps.fleet.services import node_drain
from apps.predictions import ensembles
from apps.predictions.choices import ModelState, PredictionState
from apps.predictions.models import ObservedExecution, Prediction
from apps.predictions.selectors import cluster_accuracy, prediction_record, query_basis
from apps.predictions.services import model_put_in_force, prediction_request
from apps.queries.choices import QueryState
from apps.queries.models import Placement, QueryVersion
from apps.queries.statistics import statistics_update
from engine.costream.accuracy import PredictionRecord
from engine.costream.weights import WeightsError
from tests.apps.predictions.samples import make_cluster, make_model, make_query, make_record
from tests.apps.recordings import recorded
from tests.apps.small_cluster import run_jobs, user

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return recorded(make_cluster)


def version_of(cluster: Cluster, **fields: Any) -> QueryVersion:
    return make_query(cluster, **fields).versions.select_related("query__cluster").get()


def previewed(cluster: Cluster, **asked: Any) -> AdmissionRequest:
    request, _ = ADMISSION.request(cluster=cluster, user=user(), question=AdmissionQuestion(query="new", **asked))
    run_jobs()
    request.refresh_from_db()
    return request


def test_prediction_is_stored_with_its_model_and_placement(cluster: Cluster) -> None:
    model = make_model(cluster)
    row = prediction_request(version=version_of(cluster), target="T")
    stored = Prediction.objects.get(pk=row.pk)
    assert (stored.state, stored.model, stored.target) == (PredictionState.PREDICTED, model, "T")
    assert stored.placement == {"new/keep": "strong", "new/mean": "strong"}
    assert stored.costs["end_to_end_latency_s"]["mean"] == pytest.approx(4.001, rel=2e-3)
    assert stored.elapsed_s < 1.0 and stored.candidates == 4
    assert "trained on 5 simulated traces" in stored.answer["model"]["line"]


def test_nodes_asked_for_are_kept_and_unknown_operators_refused(cluster: Cluster) -> None:
    make_model(cluster)
    version = version_of(cluster)
    assert prediction_request(version=version, placement={"keep": "weak"}).placement["new/keep"] == "weak"
    with pytest.raises(Malformed, match="nobody"):
        prediction_request(version=version, placement={"nobody": "weak"})
    node_drain(node=cluster.nodes.get(name="strong"))
    assert set(prediction_request(version=version).placement.values()) == {"weak"}


def test_preview_predicts_and_apply_deploys_the_chosen_candidate(cluster: Cluster) -> None:
    make_record(make_model(cluster, half=0.1))
    query = make_query(cluster)
    request = previewed(cluster)
    assert (request.verdict, request.state) == (Verdict.ADMIT, AdmissionState.PREVIEW)
    assert request.prediction is not None and request.prediction.state == PredictionState.PREDICTED
    assert "is predicted at" in request.result["headline"]
    admission_apply(request=request, user=request.requested_by)
    query.refresh_from_db()
    assert query.state == QueryState.RUNNING
    assert set(Placement.objects.values_list("node__name", flat=True)) == {"strong"}
    assert query.running_version.operators.get(name="keep").inputs.get().cycles_per_event is None


def test_preview_of_what_the_model_does_not_know_is_a_review(cluster: Cluster) -> None:
    make_model(cluster, failing=True, outside=True)
    make_query(cluster)
    request = previewed(cluster)
    assert request.verdict == Verdict.REVIEW and admission_standing(request).can_approve
    assert "lies outside what the model was trained on" in request.result["headline"]


def test_decision_goes_on_saying_that_the_query_never_ran(cluster: Cluster, api: APIClient) -> None:
    make_model(cluster, half=0.1)
    make_query(cluster)
    request, _ = ADMISSION.request(cluster=cluster, user=user(), question=AdmissionQuestion(query="new"))
    address = f"/api/v1/admissions/{request.pk}"
    assert api.get(address).json()["never_ran"] is None  # not decided yet
    run_jobs()
    for name in ("keep", "mean"):
        record = {"operator": name, "selectivity": 0.5, "cycles_per_event": 1e5, "events": 500}
        statistics_update(version=request.version, statistics=[record])
    Prediction.objects.all().delete()
    answer = api.get(address).json()
    assert (answer["never_ran"], answer["decision"]["never_ran"], answer["prediction"]) == (True, True, None)
    (listed,) = api.get("/api/v1/admissions?cluster=lab").json()["results"]
    assert listed["never_ran"] is True


def test_prediction_admits_nothing_before_runs_of_the_cluster_bear_it_out(cluster: Cluster) -> None:
    model = make_model(cluster, half=0.1)
    make_record(model, runs=30, held=23)
    make_query(cluster)
    request = previewed(cluster)
    assert request.verdict == Verdict.REVIEW and not admission_standing(request).can_apply
    assert "23 of 30 scored runs of 3 queries of this cluster lay within their intervals" in request.result["headline"]
    assert set(request.prediction.placement.values()) == {"strong"}


def test_record_counts_the_runs_that_the_model_in_force_predicted(cluster: Cluster) -> None:
    first = make_model(cluster)
    make_record(first, runs=120, held=90)
    assert prediction_record(cluster) == PredictionRecord(runs=100, held=90, queries=3)  # the newest hundred
    assert cluster_accuracy(cluster)["record"]["borne_out"]
    make_model(cluster, half=0.3)
    assert prediction_record(cluster) == PredictionRecord()
    assert not cluster_accuracy(cluster)["record"]["borne_out"]


def test_run_with_a_wrong_vote_does_not_count_as_held(cluster: Cluster) -> None:
    make_record(make_model(cluster))
    ObservedExecution.objects.update(success=False)
    assert prediction_record(cluster).held == 0


def test_preview_is_stale_once_the_record_no_longer_bears_the_model_out(cluster: Cluster) -> None:
    make_record(make_model(cluster, half=0.1))
    make_query(cluster)
    request = previewed(cluster)
    assert admission_standing(request).can_apply
    ObservedExecution.objects.update(end_to_end_latency_s=8.0)
    assert not admission_standing(request).can_apply


def test_another_model_makes_a_preview_stale(cluster: Cluster) -> None:
    make_record(make_model(cluster, half=0.1))
    make_query(cluster)
    request = previewed(cluster)
    assert admission_standing(request).can_apply
    make_model(cluster, half=0.3)
    assert admission_standing(request).changes == ("the model that predicts",)


def test_without_a_model_a_person_decides(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise WeightsError("costream.npz cannot be read")

    monkeypatch.setattr(ensembles, "shipped_ensemble", missing)
    make_query(cluster)
    request = previewed(cluster)
    assert (request.verdict, request.prediction) == (Verdict.REVIEW, None)
    assert "nothing predicts it" in request.result["headline"]
    with pytest.raises(Impossible, match="No model can predict"):
        prediction_request(version=request.version)


def test_incomplete_query_says_every_gap(cluster: Cluster) -> None:
    make_model(cluster)
    operators = [{"id": "keep", "kind": "filter", "inputs": [{"from": "s", "selectivity": 0.5}]}]
    row = prediction_request(version=version_of(cluster, operators=operators))
    assert row.state == PredictionState.INCOMPLETE
    assert [fault["path"] for fault in row.answer["faults"]] == ["operators[0].filter"]


def test_mace_takes_over_once_every_input_is_measured(cluster: Cluster) -> None:
    make_model(cluster)
    version = version_of(cluster)
    prediction_request(version=version)
    assert query_basis(version).is_predicted
    for name in ("keep", "mean"):
        basis = query_basis(version)
        assert basis.kind == "prediction" and not basis.is_handed_over
        record = {"operator": name, "selectivity": 0.5, "cycles_per_event": 1e5, "events": 500}
        statistics_update(version=version, statistics=[record])
    basis = query_basis(version)
    assert (basis.kind, basis.measured, basis.inputs, basis.is_handed_over) == ("mace", 2, 2, True)


def test_at_most_one_model_is_in_force_and_any_may_return(cluster: Cluster) -> None:
    first = make_model(cluster)
    second = make_model(cluster, half=0.3)
    with pytest.raises(Conflict, match="in force already"):
        model_put_in_force(cluster=cluster, version=second, user=None)
    model_put_in_force(cluster=cluster, version=first, user=None)
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == (ModelState.IN_FORCE, ModelState.AVAILABLE)
    refused = make_model(cluster, in_force=False, half=0.4)
    refused.state = ModelState.REFUSED
    refused.save()
    with pytest.raises(Conflict, match="refused by the guard"):
        model_put_in_force(cluster=cluster, version=refused, user=None)
    with pytest.raises(Conflict, match="another cluster"):
        model_put_in_force(cluster=make_cluster("other"), version=second, user=None)


def test_weights_that_were_changed_are_not_put_in_force(cluster: Cluster) -> None:
    make_model(cluster)
    bad = make_model(cluster, in_force=False, half=0.3)
    data = bytearray(bad.weights or b"")
    data[len(data) // 2] ^= 1
    bad.weights = bytes(data)
    bad.digest = "0" * 64
    bad.save()
    with pytest.raises(Impossible, match="one of the two files was changed"):
        model_put_in_force(cluster=cluster, version=bad, user=None)
