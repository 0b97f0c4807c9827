"""The same arrivals as time stamps and as counts of five minutes: what each says and is admitted on."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.test import Client

from apps.accounts.choices import Role
from apps.admission.models import AdmissionRequest
from apps.fleet.services import cluster_create, node_create, pool_create
from apps.queries.models import Query
from apps.queries.services import query_start
from engine.command_options import EstimateOptions
from engine.estimation.estimate import command
from tests.apps.small_cluster import run_jobs, user

pytestmark = pytest.mark.django_db

HORIZON_S, RATE_EPS, STEP_S = 600.0, 50.0, 300.0
BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)
TIMES_S = np.sort(np.random.default_rng(3).uniform(0.0, HORIZON_S, int(HORIZON_S * RATE_EPS)))
#: M/D/1 at half load with services of 10 ms: Pollaczek and Khinchine.
MEAN_S = 0.010 + 0.005


def moment(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def table_of(kind: str) -> str:
    if kind == "stamps":
        return "time\n" + "".join(f"{moment(at)}\n" for at in TIMES_S)
    counts = np.bincount((TIMES_S // STEP_S).astype(int))
    return "time,count\n" + "".join(f"{moment(i * STEP_S)},{count}\n" for i, count in enumerate(counts))


def upload(api: Any, text: str, **fields: Any) -> Any:
    file = io.BytesIO(text.encode())
    file.name = "trace.csv"
    columns = {"time_column": "time"} | ({"count_column": "count"} if text.startswith("time,count") else {})
    asked = {"cluster": "lab", "source_id": "clicks", "file": file, "fill": "zero", **columns, **fields}
    return api.post("/api/v1/arrivals", asked, format="multipart")


@pytest.fixture
def api(api_of: Any) -> Any:
    cluster = cluster_create(slug="lab", name="Lab", subinterval_s=1.0, horizon_s=HORIZON_S)
    node_create(pool=pool_create(cluster=cluster, name="pool", capacity_cps=1000.0, cores=1), name="a")
    return api_of("admitter")


def decided(api: Any, bound_s: float, statistic: str = "mean") -> dict[str, Any]:
    work = {
        "id": "work",
        "inputs": [{"from": "clicks", "selectivity": 1.0, "cycles_per_event": 10.0, "cost_cv2": 0.0}],
        "evidence": {"kind": "measured", "events": 30_000},
    }
    query = {
        "cluster": "lab",
        "name": "half",
        "objective": {"statistic": statistic, "bound_s": bound_s},
        "operators": [work],
    }
    assert api.post("/api/v1/queries", query, format="json").status_code == 201
    asked = api.post("/api/v1/admissions", {"cluster": "lab", "query": "half"}, format="json")
    run_jobs()
    answer: dict[str, Any] = api.get(asked.json()["result_api_url"]).json()
    return answer


def codes(answer: dict[str, Any]) -> set[str]:
    return {reason["code"] for reason in answer["decision"]["reasons"]}


def test_half_loaded_queue_of_stamps_waits_and_is_admitted(api: Any) -> None:
    stored = upload(api, table_of("stamps")).json()
    assert stored["step_s"] is None
    assert stored["dispersion"] == pytest.approx(1.0, abs=0.1)
    answer = decided(api, 1.0)
    (effect,) = answer["decision"]["effects"]
    assert effect["low_s"] <= MEAN_S <= effect["high_s"]
    assert effect["after_s"] == pytest.approx(MEAN_S, rel=0.1)
    assert answer["verdict"] == "admit"
    assert "all_hold" in codes(answer)


def test_half_loaded_queue_of_coarse_counts_waits_as_long_and_is_for_a_person(api: Any) -> None:
    assert upload(api, table_of("counts")).json()["step_s"] == STEP_S
    answer = decided(api, 400.0)
    (effect,) = answer["decision"]["effects"]
    assert effect["low_s"] <= MEAN_S <= effect["high_s"]
    assert answer["verdict"] == "review"
    assert "coarse_counts" in codes(answer)
    request = AdmissionRequest.objects.get()
    browser = Client()
    browser.force_login(user(Role.ADMITTER, "looks"))
    page = browser.get(f"/c/lab/admission/{request.pk}/").content.decode().replace("\xa0", " ")
    assert "Arrivals of clicks are known as counts per 5 min, which hide bursts" in page


def test_dispersion_measured_finely_lifts_the_review_of_coarse_counts(api: Any) -> None:
    stored = upload(api, table_of("counts")).json()
    stated = {"dispersion": 1.0, "dispersion_step_s": 1.0}
    assert api.patch(f"/api/v1/arrivals/{stored['id']}", stated, format="json").status_code == 200
    answer = decided(api, 400.0)
    assert (answer["verdict"], "coarse_counts" in codes(answer)) == ("admit", False)


def test_document_of_the_cluster_says_on_the_command_line_what_rest_says(api: Any) -> None:
    upload(api, table_of("counts"))
    answer = decided(api, 400.0)
    query_start(version=Query.objects.get(name="half").versions.get(), placement={"work": [{"node": "a"}]})
    document = api.get("/api/v1/clusters/lab/document").json()
    assert document["sources"][0]["arrivals_step_s"] == STEP_S
    report = command(document, EstimateOptions(mace_every=4)).queries["half"].to_dict()
    (effect,) = answer["decision"]["effects"]
    assert report["estimate_s"] == pytest.approx(effect["after_s"], rel=0.02)
    assert report["resolution_s"] == STEP_S
    assert report["assumed"][0].replace("\xa0", " ").startswith("Arrivals of clicks inside 5 min: Poisson")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"counts": [100], "step_s": 700}, "a count lasts 700 s; allowed: up to the horizon (600 s)"),
        ({"counts": [1.0], "step_s": 600, "dispersion": -1, "dispersion_step_s": 1}, "dispersion is -1"),
        ({"counts": [1.0], "step_s": 600, "dispersion": 2, "dispersion_step_s": 601}, "up to the horizon (600 s)"),
        ({"counts": [1.0], "step_s": 600, "dispersion": 2}, "dispersion_step_s is missing"),
        ({"counts": [-1.0], "step_s": 600}, "item 0 is -1"),
    ],
)
def test_counts_that_nothing_can_be_said_of_are_refused(api: Any, counts: dict[str, Any], words: str) -> None:
    refused = api.post("/api/v1/arrivals", {"cluster": "lab", "source_id": "clicks", **counts}, format="json")
    assert refused.status_code == 400
    assert words in refused.json()["detail"]


@pytest.mark.parametrize("number", ["NaN", "1e400", "-Infinity"])
def test_numbers_that_are_none_are_refused(api: Any, number: str) -> None:
    body = f'{{"cluster": "lab", "source_id": "clicks", "counts": [1], "step_s": 600, "dispersion": {number}}}'
    refused = api.post("/api/v1/arrivals", body, content_type="application/json")
    assert refused.status_code == 400
    assert "The body is not JSON" in refused.json()["detail"]


def test_upload_of_counts_longer_than_the_horizon_says_what_is_assumed(api: Any) -> None:
    stored = upload(api, f"time,count\n{moment(0.0)},36000\n{moment(7200.0)},36000\n").json()
    assert stored["step_s"] == HORIZON_S
    assert stored["events"] == pytest.approx(5.0 * HORIZON_S)
    assert stored["spec"]["notes"] == [
        "A count lasts 7200 s, longer than the horizon (600 s): its events are spread evenly, and how many of them "
        "come within a horizon is not known."
    ]
    answer = decided(api, 700.0)
    assert (answer["verdict"], "coarse_counts" in codes(answer)) == ("review", True)


def test_source_without_events_says_that_nothing_is_known(api: Any) -> None:
    zeros = {"cluster": "lab", "source_id": "clicks", "counts": [0.0] * 600, "step_s": 1.0}
    assert api.post("/api/v1/arrivals", zeros, format="json").status_code == 201
    answer = decided(api, 1.0)
    (reason,) = [reason for reason in answer["decision"]["reasons"] if reason["code"] == "no_events"]
    assert reason["message"] == (
        "clicks has no events in the horizon: nothing is known of how late half would be with some"
    )
