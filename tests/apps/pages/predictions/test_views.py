"""Pages of predictions: on the query, in its preview, and the model behind them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from apps.admission.models import AdmissionRequest
from apps.fleet.models import Cluster
from apps.fleet.services import node_drain
from apps.predictions.choices import ExecutionOrigin, FineTuningState, ModelState
from apps.predictions.models import FineTuning, ModelVersion, ObservedExecution, Prediction
from apps.predictions.services import prediction_request
from apps.queries.models import Query, QueryVersion
from apps.queries.statistics import statistics_update
from engine.costream.weights import WeightsError
from tests.apps.pages.html import body
from tests.apps.predictions.samples import make_cluster, make_model, make_query, make_record, never_run_body
from tests.apps.recordings import recorded
from tests.apps.small_cluster import run_jobs

pytestmark = pytest.mark.django_db

QUERY = "/c/lab/queries/new/"
MODEL = "/c/lab/accuracy/model/"


@pytest.fixture
def cluster() -> Cluster:
    return recorded(make_cluster)


def shown(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return body(response).replace("\xa0", " ")


def predicted(query: Query) -> Prediction:
    return prediction_request(version=query.versions.select_related("query__cluster").get())


def describe(client: Client, **fields: str) -> str:
    """Describe a query called new by a document; gives the address that the console goes on to."""
    form = {
        "name": "new",
        "statistic": "mean",
        "bound_s": "2",
        "priority": "0",
        "document": json.dumps(never_run_body()),
    }
    response = client.post("/c/lab/queries/-/new/", form | fields)
    assert response.status_code == 302, body(response)
    return str(response.url)


def test_query_without_costs_is_predicted_as_soon_as_it_is_described(cluster: Cluster, browser: Client) -> None:
    make_model(cluster)
    html = shown(browser, describe(browser))
    assert "Predicted, never ran" in html
    assert "Its end-to-end latency is predicted at <b>4 s</b> (interval 3.3 to 4.9 s)" in html
    assert "trained on 5 simulated traces (simulator 1, seed 7" in html and "0 real executions" in html
    assert "3/3" in html and "Puts out results" in html
    assert "candidates pass the votes; the chosen one is best by end-to-end latency." in html
    assert "The numbers behind this chart" in html and "fine-tuned 1" in html
    for tab, words in (("statistics/", "Mean of an int, grouped by a string"), ("placement/", "First placement")):
        assert words in shown(browser, QUERY + tab)


def test_page_without_a_prediction_offers_one(cluster: Cluster, browser: Client) -> None:
    make_query(cluster)
    assert "Not predicted yet" in shown(browser, QUERY)
    make_model(cluster)
    assert browser.post(f"{QUERY}predict/", {"target": "T"}).status_code == 302
    assert Prediction.objects.get().target == "T"
    assert '<option value="T" selected>' in shown(browser, QUERY)


def test_page_names_every_fact_that_the_query_lacks(cluster: Cluster, browser: Client) -> None:
    make_model(cluster)
    operators = never_run_body()["operators"]
    del operators[0]["filter"], operators[1]["window"]
    html = shown(browser, describe(browser, document=json.dumps({"operators": operators})))
    assert "It cannot be predicted yet" in html
    assert "Operator new/keep does not state its comparison" in html
    assert "Operator new/mean does not state its window." in html and "new version" in html


def test_no_feasible_candidate_is_an_answer_with_advice(cluster: Cluster, browser: Client) -> None:
    make_model(cluster, failing=True)
    predicted(make_query(cluster))
    html = shown(browser, QUERY)
    assert "No candidate is feasible: of" in html and "the majority predicts failure for" in html
    assert "see how many nodes would do" in html and "does not pass the votes" in html


def test_findings_outside_the_domain_stand_beside_the_numbers(cluster: Cluster, browser: Client) -> None:
    make_model(cluster, outside=True)
    predicted(make_query(cluster))
    html = shown(browser, QUERY)
    assert "Outside the training domain." in html and "Host strong: cpu 400 %" in html


def test_preview_shows_prediction_objective_and_candidates(cluster: Cluster, browser: Client) -> None:
    make_model(cluster, half=0.1)
    make_query(cluster)
    form = shown(browser, "/c/lab/admission/new/?query=new")
    assert "First placement by" in form
    asked = {"query": "new", "version": "1", "target": "Lp"}
    assert browser.post("/c/lab/admission/new/", asked).status_code == 302
    request = AdmissionRequest.objects.get()
    address = f"/c/lab/admission/{request.pk}/"
    waiting = shown(browser, address)
    assert "Waits for a worker" in waiting and "Candidate placements" in waiting  # before the verdict is there
    run_jobs()
    html = shown(browser, address)
    assert "Predicted, never ran" in html and "Objective 2 s" in html and "Interval" in html
    assert "Neighbours are judged by Mace with predicted costs" in html
    assert "best by processing latency" in html and "node predicted" in html
    assert "it is predicted, not measured" in html


def test_decision_keeps_its_labels_once_the_query_is_measured(cluster: Cluster, browser: Client) -> None:
    make_model(cluster)
    operators = never_run_body()["operators"]
    del operators[0]["filter"]  # not predicted either: Mace's estimate by nominal costs stands in its row
    version = make_query(cluster, operators=operators).versions.select_related("query__cluster").get()
    assert browser.post("/c/lab/admission/new/", {"query": "new", "version": "1", "target": "Le"}).status_code == 302
    run_jobs()
    address = f"/c/lab/admission/{AdmissionRequest.objects.get().pk}/"
    labels = shown(browser, address).count("Predicted, never ran")
    for name in ("keep", "mean"):
        record = {"operator": name, "selectivity": 0.5, "cycles_per_event": 1e5, "events": 500}
        statistics_update(version=version, statistics=[record])
    assert shown(browser, address).count("Predicted, never ran") == labels > 1


def test_decision_without_a_model_or_a_place_is_labelled(
    cluster: Cluster, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise WeightsError("costream.npz cannot be read")

    monkeypatch.setattr("apps.predictions.ensembles.shipped_ensemble", missing)
    make_query(cluster)
    for node in cluster.nodes.all():
        node_drain(node=node)
    assert browser.post("/c/lab/admission/new/", {"query": "new", "version": "1", "target": "Le"}).status_code == 302
    waiting = AdmissionRequest.objects.get()
    address = f"/c/lab/admission/{waiting.pk}/"
    assert "Predicted, never ran" in shown(browser, address)
    run_jobs()
    waiting.refresh_from_db()
    assert (waiting.verdict, waiting.prediction) == ("reject", None)
    assert "Predicted, never ran" in shown(browser, address)


def test_running_query_without_measurements_is_marked_in_lists(cluster: Cluster, browser: Client) -> None:
    make_query(cluster)
    make_query(
        cluster, "known", operators=[{"id": "o", "inputs": [{"from": "s", "selectivity": 1, "cycles_per_event": 9}]}]
    )
    html = shown(browser, "/c/lab/queries/")
    assert html.count('title="Predicted, never ran"') == 1
    Query.objects.filter(name="new").update(
        state="running", running_version=QueryVersion.objects.get(query__name="new")
    )
    assert 'title="Predicted, not measured yet"' in shown(browser, "/c/lab/queries/")
    assert "never ran" in shown(browser, "/c/lab/search/?q=new")


def test_measured_costs_hand_over_to_mace(cluster: Cluster, browser: Client) -> None:
    model = make_model(cluster)
    query = make_query(cluster)
    prediction = predicted(query)
    entries = [
        {"operator": name, "selectivity": 0.5, "cycles_per_event": 9e4, "events": 100} for name in ("keep", "mean")
    ]
    statistics_update(version=prediction.version, statistics=entries)
    execution(prediction, model, 0, latency_s=8.0)
    html = shown(browser, QUERY)
    assert "Mace has spoken for it since" in html and "all 2 inputs are measured" in html
    assert "Predicted, never ran" not in html
    assert 'class="num watch" data-l="Observed"><span>8<span class="u">s</span>' in html


def execution(prediction: Prediction, model: ModelVersion, number: int, latency_s: float = 4.0) -> ObservedExecution:
    """An execution that ended some minutes ago, beside its prediction."""
    ends_at = timezone.now() - timedelta(minutes=number + 1)
    mean = prediction.costs["end_to_end_latency_s"]["mean"]
    return ObservedExecution.objects.create(
        cluster=prediction.cluster,
        query=prediction.query,
        version=prediction.version,
        prediction=prediction,
        model=model,
        origin=ExecutionOrigin.REPORTED,
        starts_at=ends_at - timedelta(minutes=4),
        ends_at=ends_at,
        predicted=prediction.costs,
        end_to_end_latency_s=latency_s,
        success=True,
        q_end_to_end_latency=max(mean / latency_s, latency_s / mean),
        trace={},
    )


def test_model_page_without_executions_says_how_many_are_needed(cluster: Cluster, browser: Client) -> None:
    make_model(cluster)
    html = shown(browser, MODEL)
    assert "0 of 30 observed executions" in html and "No execution observed yet" in html
    assert "0 executions of lab were observed; fine-tuning needs 30." in html
    assert "Training domain" in html and "In force" in html
    assert "Runs of this cluster do not bear it out yet" in html and "a person decides" in html


def test_model_page_says_that_runs_bear_the_model_out(cluster: Cluster, browser: Client) -> None:
    make_record(make_model(cluster), held=27)
    html = " ".join(shown(browser, MODEL).split())
    assert "Runs of this cluster bear it out: <b>27</b> of 30 scored runs of 3 queries" in html


def test_page_stands_without_any_model(cluster: Cluster, browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise WeightsError("The weights cannot be read")

    monkeypatch.setattr("apps.predictions.ensembles.shipped_ensemble", missing)
    assert "No model can predict: The weights cannot be read" in shown(browser, MODEL)
    assert "Not predicted yet" in shown(browser, describe(browser))


def test_errors_are_drawn_from_thirty_executions_on(
    cluster: Cluster, browser: Client, browser_of: Callable[..., Client]
) -> None:
    first = make_model(cluster)
    prediction = predicted(make_query(cluster))
    for i in range(29):
        execution(prediction, first, i)
    assert "29 of 30 observed executions" in shown(browser, MODEL)
    execution(prediction, first, 29, latency_s=16.0)
    html = shown(browser, MODEL)
    assert "Errors over executions" in html and "off by a factor of <b>1.00</b> in the median" in html
    assert "are of one query; the guard needs others" in html
    csv = browser.get(f"{MODEL}?export=csv").content.decode().splitlines()
    assert len(csv) == 31 and csv[0].startswith("Query,Ended,Throughput,q-error")
    second = make_model(cluster)
    FineTuning.objects.create(
        cluster=cluster,
        base=first,
        model=second,
        state=FineTuningState.ACCEPTED,
        message="Accepted: score 0.1 against 0.4 on 12 executions held out.",
        observations=18,
        held_out=12,
        result={"before": {"Le": {"q50": 2.0, "q95": 3.0}}, "after": {"Le": {"q50": 1.1, "q95": 1.25}}},
    )
    html = shown(browser, MODEL)
    assert "End-to-end latency: 2.00 / 3.00 → 1.10 / 1.25" in html and "judged by 12" in html
    assert "Put fine-tuned 1 in force" in html
    assert "Put fine-tuned" not in shown(browser_of("viewer"), MODEL).split("t-versions")[1]
    assert browser.post(f"{MODEL}{first.pk}/put-in-force/").status_code == 302
    first.refresh_from_db()
    assert first.state == ModelState.IN_FORCE


def test_builder_takes_the_features_of_each_kind(cluster: Cluster, browser: Client) -> None:
    form = {"name": "built", "statistic": "none", "priority": "0", "row": ["o0", "o1"]}
    form |= {"o0-id": "keep", "o0-kind": "filter", "o0-from": "s", "o0-selectivity": "0.5"}
    form |= {"o0-filter_function": ">", "o0-filter_literal_type": "int", "o0-window_size": "3"}  # no window: hidden
    form |= {"o1-id": "mean", "o1-kind": "aggregate", "o1-from": "keep", "o1-selectivity": "0.1"}
    form |= {"o1-aggregate_function": "mean", "o1-aggregate_argument_type": "int", "o1-window_policy": "time"}
    form |= {"o1-window_type": "tumbling", "o1-window_size": "long"}
    address = "/c/lab/queries/-/new/?by=form"
    refused = browser.post(address, form)
    assert refused.status_code == 422
    html = body(refused)
    assert 'id="o1-window_size" name="o1-window_size" value="long" aria-invalid="true"' in html
    assert browser.post(address, form | {"o1-window_size": "4"}).status_code == 302
    keep, mean = Query.objects.get(name="built").versions.get().operators.all()
    assert keep.extra == {"filter": {"function": ">", "literal_type": "int"}}
    assert mean.extra["aggregate"]["group_by_type"] == "none" and mean.extra["window"]["size"] == 4


def test_fields_of_sources_are_stored_with_the_query_or_not_at_all(cluster: Cluster, browser: Client) -> None:
    source = cluster.arrivals.get()
    key = f"fields-{source.pk}"
    form = {"name": "new", "statistic": "none", "priority": "0", "document": json.dumps(never_run_body())}
    typed = {f"{key}-ints": "-1", f"{key}-strings": "2", f"{key}-doubles": ""}
    refused = browser.post("/c/lab/queries/-/new/", form | typed)
    assert refused.status_code == 422 and "s: event_fields.ints" in body(refused)
    assert not Query.objects.exists()
    describe(browser, **(typed | {f"{key}-ints": "5"}))
    source.refresh_from_db()
    assert source.event_fields == {"ints": 5, "strings": 2, "doubles": 0}
    assert browser.post(f"/c/lab/arrivals/{source.pk}/fields/", {"doubles": "3"}).status_code == 302
    assert "3 doubles" in shown(browser, f"/c/lab/arrivals/{source.pk}/")


def test_example_that_never_ran_reads_a_source_with_fields(cluster: Cluster, browser: Client) -> None:
    html = shown(browser, "/c/lab/queries/-/example/?kind=never-ran")
    assert "&quot;from&quot;: &quot;s&quot;" in html and "cycles_per_event" not in html.split("</textarea>")[0]
