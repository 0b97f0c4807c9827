"""Queries, statistics, arrivals and documents over REST."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from apps.queries.models import ArrivalSeries, Query
from apps.queries.services import query_version_create
from tests.apps.domain import BODY, make_arrivals, make_cluster, make_query, start

pytestmark = pytest.mark.django_db

TRACE = b"t,n\n" + b"".join(b"2026-03-01 00:00:%02d,%d\n" % (i, i) for i in range(10))


def trace(content: bytes = TRACE) -> SimpleUploadedFile:
    return SimpleUploadedFile("trace.csv", content)


def paths(answer: Any) -> set[str]:
    body = answer.json()
    assert set(body) >= {"type", "title", "status", "detail", "instance", "code", "faults", "request_id"}
    return {fault["path"] for fault in body["faults"]}


def new(**changes: Any) -> dict[str, Any]:
    objective = {"statistic": "q0.99", "bound_s": 2.0}
    return {"cluster": "eu-1", "name": "checkout", "objective": objective, **BODY, **changes}


def test_a_query_from_its_creation_to_its_end(api: APIClient) -> None:
    make_arrivals(make_cluster())
    made = api.post("/api/v1/queries", new(team="shop"), format="json")
    assert made.status_code == 201, made.json()
    shown = made.json()
    assert (shown["state"], shown["latest_version"], shown["running_version"]) == ("draft", 1, None)
    assert shown["operators"] == BODY["operators"] and shown["operator_count"] == 2
    url = made["Location"]
    read = api.get(url)
    assert read.json() == shown
    changed = api.patch(url, {"objective": None, "priority": 5}, format="json", headers={"If-Match": read["ETag"]})
    assert changed.status_code == 200 and changed.json()["objective"] is None
    assert api.patch(url, {"priority": 6}, format="json", headers={"If-Match": read["ETag"]}).status_code == 412
    assert api.delete(url).status_code == 204 and not Query.objects.exists()


def test_faults_of_a_query_have_the_documents_paths(api: APIClient) -> None:
    make_arrivals(make_cluster())
    operators = [
        {"id": "a", "inputs": [{"from": "nobody", "selectivity": -1, "cycles_per_event": 1, "weight": 2}]},
        {"id": "b", "node": "n9", "inputs": []},
    ]
    answer = api.post("/api/v1/queries", new(operators=operators, objective={"statistic": "p99"}), format="json")
    assert answer.status_code == 400
    assert {
        "operators[0].inputs[0].selectivity",
        "operators[0].inputs[0].weight",
        "operators[1].node",
        "objective.statistic",
        "objective.bound_s",
    } <= paths(answer)
    assert api.post("/api/v1/queries", new(owner="me"), format="json").json()["faults"][0]["path"] == "owner"
    raw = '{"cluster": "eu-1", "name": "x", "operators": [{"id": "a", "inputs": [], "bytes_per_event": NaN}]}'
    answer = api.generic("POST", "/api/v1/queries", raw, content_type="application/json")
    assert answer.status_code == 400 and "NaN" in answer.json()["detail"]
    assert not Query.objects.exists()


def test_rest_creates_and_lists_versions(api: APIClient) -> None:
    query = make_query(make_cluster())
    url = f"/api/v1/queries/{query.pk}"
    assert api.patch(url, {"operators": []}, format="json").status_code == 400
    made = api.post(f"{url}/versions", {**BODY, "note": "faster", "carry_statistics": True}, format="json")
    assert made.status_code == 201 and made["Location"] == f"{url}/versions/2"
    assert made.json()["note"] == "faster" and made.json()["is_running"] is False
    assert made.json()["operators"] == BODY["operators"]
    assert [row["number"] for row in api.get(f"{url}/versions").json()["results"]] == [2, 1]
    assert api.get(f"{url}/versions/1").json()["number"] == 1
    assert api.get(f"{url}/versions/3").status_code == 404
    bad = api.post(f"{url}/versions", {"operators": [{"id": "a"}], "comment": 1}, format="json")
    assert bad.status_code == 400 and paths(bad) == {"comment"}
    bad = api.post(f"{url}/versions", {"operators": [{"id": "a"}]}, format="json")
    assert paths(bad) == {"operators[0].inputs"}


def test_rest_reads_and_updates_statistics(api: APIClient, api_of: Any) -> None:
    query = make_query(make_cluster())
    url = f"/api/v1/queries/{query.pk}/statistics"
    before = api.get(url).json()
    assert before["version"] == 1 and before["statistics"][0]["evidence"] == "assumed"
    told = {"statistics": [{"operator": "parse", "input": "clicks", "selectivity": 0.7, "events": 1000}]}
    after = api.put(url, told, format="json").json()["statistics"][0]
    assert (after["selectivity"], after["evidence"], after["events"]) == (0.7, "measured", 1000)
    assert after["measured_at"] is not None
    bad = api.put(url, {"statistics": [{"operator": "x"}, {"selectivity": 1}]}, format="json")
    assert bad.status_code == 400 and paths(bad) == {"statistics[0].operator", "statistics[1].operator"}
    assert api.put(url, {**told, "version": 9}, format="json").status_code == 404
    assert api.get(f"{url}?version=x").status_code == 400
    assert api_of("viewer").put(url, told, format="json").status_code == 403
    assert api_of("operator", scopes=["read", "ingest"]).put(url, told, format="json").status_code == 200


def test_rest_takes_and_shows_how_costs_vary(api: APIClient) -> None:
    url = f"/api/v1/queries/{make_query(make_cluster()).pk}/statistics"
    noise = {"cost_cv2": 0.4, "cost_dispersion": 6.0, "cost_dispersion_events": 200.0}
    after = api.put(url, {"statistics": [{"operator": "parse", **noise}]}, format="json").json()["statistics"][0]
    assert after.items() >= noise.items()
    single = {"operator": "parse", "event_cycles": [10.0, 30.0] * 100}
    measured = api.put(url, {"statistics": [single]}, format="json").json()["statistics"][0]
    assert (measured["cycles_per_event"], measured["events"]) == (20.0, 200)
    assert measured["cost_cv2"] == pytest.approx(0.25 * 200 / 199)
    bad = api.put(url, {"statistics": [{"operator": "parse", "cost_cv2": 1e9, "cost_dispersion": -1}]}, format="json")
    assert bad.status_code == 400
    assert paths(bad) == {"statistics[0].cost_cv2", "statistics[0].cost_dispersion"}


def test_statistics_that_another_refined_meanwhile_are_not_overwritten(api: APIClient) -> None:
    url = f"/api/v1/queries/{make_query(make_cluster()).pk}/statistics"
    told = {"statistics": [{"operator": "parse", "selectivity": 0.7}]}
    seen = api.get(url)["ETag"]
    assert api.get(url, headers={"If-None-Match": seen}).status_code == 304
    first = api.put(url, told, format="json", headers={"If-Match": seen})
    assert first.status_code == 200 and first["ETag"] == api.get(url)["ETag"] != seen
    again = {"version": 1, "statistics": [{"operator": "parse", "selectivity": 0.1}]}
    assert api.put(url, again, format="json", headers={"If-Match": seen}).status_code == 412
    assert api.get(url).json() == first.json()
    assert api.put(url, again, format="json", headers={"If-Match": first["ETag"]}).status_code == 200
    assert api.put(url, [], format="json", headers={"If-Match": seen}).status_code == 412


@pytest.mark.parametrize("version", ["²", "-1", "0", "٣", "1" * 5000, ""])
def test_a_version_is_a_number(api: APIClient, version: str) -> None:
    found = api.get(f"/api/v1/queries/{make_query(make_cluster()).pk}/statistics", {"version": version})
    assert found.status_code == 400 and paths(found) == {"version"}


def test_a_query_is_stopped_over_rest(api: APIClient) -> None:
    query = start(make_query(make_cluster()))
    url = f"/api/v1/queries/{query.pk}"
    assert api.delete(url).status_code == 409
    assert api.post(f"{url}/stop").json()["state"] == "stopped"
    assert api.post(f"{url}/stop").status_code == 409


def test_queries_are_filtered(api: APIClient) -> None:
    cluster = make_cluster()
    start(make_query(cluster, "checkout", team="shop"))
    make_query(cluster, "search", team="find")
    make_query(make_cluster("other"), "search")

    def names(filters: str) -> list[str]:
        return [row["name"] for row in api.get(f"/api/v1/queries?{filters}").json()["results"]]

    assert names("cluster=eu-1") == ["checkout", "search"] and names("team=shop") == ["checkout"]
    assert names("state=running") == ["checkout"] and names(
        "state=running&state=draft&cluster=eu-1&name__contains=ear"
    ) == ["search"]
    assert paths(api.get("/api/v1/queries?state=asleep")) == {"state"}


# -- arrivals


def test_an_upload_in_two_steps(api: APIClient) -> None:
    make_cluster()
    seen = api.post("/api/v1/arrivals/inspect", {"file": trace()}, format="multipart")
    assert seen.status_code == 200, seen.json()
    found = seen.json()
    assert (found["time_column"], found["count_column"], found["rows"], found["events"]) == ("t", "n", 10, 45)
    assert found["preview"][1] == ["2026-03-01 00:00:01", "1"]
    body = {"cluster": "eu-1", "source_id": "clicks", "key": found["key"], "time_column": "t", "count_column": "n"}
    made = api.post("/api/v1/arrivals", body, format="json")
    assert made.status_code == 201, made.json()
    stored = made.json()
    assert (stored["events"], stored["peak_eps"], stored["mean_eps"]) == (30, 9, 7.5)
    assert stored["starts_at"] == "2026-03-01T00:00:06Z" and "data" not in stored
    chart = api.get(f"{made['Location']}/series?points=4").json()
    assert chart["t_s"] == [0, 1, 2, 3] and chart["mean_eps"] == chart["max_eps"] == [6, 7, 8, 9]
    assert api.get(f"{made['Location']}/series?points=0").status_code == 400
    assert api.get("/api/v1/arrivals?cluster=eu-1").json()["results"] == [stored]
    assert api.delete(made["Location"]).status_code == 204


def test_an_upload_in_one_go(api: APIClient) -> None:
    make_cluster()
    form = {"cluster": "eu-1", "source_id": "clicks", "stretch": "first"}
    vague = api.post("/api/v1/arrivals", {**form, "file": trace()}, format="multipart")
    assert vague.status_code == 400 and "'t' looks like one" in vague.json()["detail"]
    form |= {"time_column": "t", "count_column": "n"}
    answers = [
        api.post("/api/v1/arrivals", {**form, "file": trace()}, format="multipart", headers={"Idempotency-Key": "same"})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json() and answers[0].json()["events"] == 6
    again = api.post("/api/v1/arrivals", {**form, "file": trace()}, format="multipart")
    assert again.status_code == 409
    replaced = api.post("/api/v1/arrivals", {**form, "replace": "true", "file": trace()}, format="multipart")
    assert replaced.status_code == 201 and ArrivalSeries.objects.count() == 1


def test_rates_and_totals_are_stored_as_they_are_found_or_chosen(api: APIClient) -> None:
    make_cluster()
    rows = "".join(f"2026-03-01 00:00:{i:02d},{1000 + 25 * i}\n" for i in range(20))
    file = trace(f"t,hits_total\n{rows}".encode())
    found = api.post("/api/v1/arrivals/inspect", {"file": file}, format="multipart").json()
    assert (found["count_column"], found["count_kind"], found["events"]) == ("hits_total", "total", 19 * 25)
    assert any("differences count" in note for note in found["notes"])
    form = {
        "cluster": "eu-1",
        "key": found["key"],
        "time_column": "t",
        "count_column": "hits_total",
        "stretch": "first",
    }
    total = api.post("/api/v1/arrivals", {**form, "source_id": "total"}, format="json").json()
    assert total["mean_eps"] == 25 and total["spec"]["count_kind"] == "total"
    assert any("differences count" in note for note in total["spec"]["notes"])
    rate = api.post("/api/v1/arrivals", {**form, "source_id": "rate", "count_kind": "rate"}, format="json").json()
    assert rate["peak_eps"] > 1000 and rate["spec"]["count_kind"] == "rate"
    wrong = api.post(
        "/api/v1/arrivals", {**form, "source_id": "x", "count_kind": "gauge", "time_format": "y"}, format="json"
    )
    assert wrong.status_code == 400 and paths(wrong) == {"count_kind", "time_format"}


def test_dates_that_may_be_two_days_are_asked_for(api: APIClient) -> None:
    make_cluster()
    file = trace(("t,n\n" + "".join(f"03/04/2026 00:00:{i:02d},5\n" for i in range(20))).encode())
    found = api.post("/api/v1/arrivals/inspect", {"file": file}, format="multipart").json()
    assert found["events"] is None and "choose dmy or mdy" in found["notes"][0]
    form = {"cluster": "eu-1", "source_id": "a", "key": found["key"], "time_column": "t", "count_column": "n"}
    asked = api.post("/api/v1/arrivals", form, format="json")
    assert asked.status_code == 400 and paths(asked) == {"time_format"}
    stored = api.post("/api/v1/arrivals", {**form, "time_format": "dmy"}, format="json").json()
    assert stored["starts_at"].startswith("2026-04-03")


def test_malformed_lines_are_told_with_line_and_column(api: APIClient) -> None:
    make_cluster()
    file = trace(TRACE + b"2026-03-01 00:00:10,-1\nsoon,2\n")
    form = {"cluster": "eu-1", "source_id": "clicks", "time_column": "t", "count_column": "n", "file": file}
    answer = api.post("/api/v1/arrivals", form, format="multipart")
    assert answer.status_code == 400 and paths(answer) == {"file.line[12].n", "file.line[13].t"}
    assert not ArrivalSeries.objects.exists()


def test_upload_over_the_limit_returns_413_with_the_limit(api: APIClient, settings: Any) -> None:
    make_cluster()
    settings.UPLOAD_MAX_BYTES = 2_000
    answer = api.post("/api/v1/arrivals/inspect", {"file": trace(b"x" * 2_500)}, format="multipart")
    assert answer.status_code == 413 and "0.002 MB" in answer.json()["detail"]
    huge = api.post("/api/v1/arrivals/inspect", {"file": trace(b"x" * 1_100_000)}, format="multipart")
    assert huge.status_code == 413


def test_dispersion_of_arrivals_is_stated_over_rest(api: APIClient) -> None:
    cluster = make_cluster()
    counts = {"cluster": cluster.slug, "source_id": "taps", "counts": [4.0] * cluster.slices}
    made = api.post("/api/v1/arrivals", {**counts, "dispersion": 3.0, "dispersion_step_s": 0.25}, format="json")
    url = f"/api/v1/arrivals/{made.json()['id']}"
    assert (made.json()["dispersion"], made.json()["dispersion_step_s"]) == (3.0, 0.25)
    fields = api.patch(url, {"event_fields": {"ints": 2}}, format="json").json()
    assert (fields["dispersion"], fields["event_fields"]["ints"]) == (3.0, 2)
    stated = api.patch(url, {"dispersion": 1.5, "dispersion_step_s": 0.5}, format="json").json()
    assert (stated["dispersion"], stated["dispersion_step_s"], stated["event_fields"]["ints"]) == (1.5, 0.5, 2)
    for told in ({"dispersion": -1, "dispersion_step_s": 1e9}, {"dispersion": "nan", "dispersion_step_s": "x"}):
        assert paths(api.patch(url, told, format="json")) == {"dispersion", "dispersion_step_s"}
    assert paths(api.patch(url, {"dispersion": 2.0}, format="json")) == {"dispersion_step_s"}
    assert api.patch(url, {"dispersion": None}, format="json").json()["dispersion_step_s"] is None


def test_arrivals_from_a_generator_and_from_counts(api: APIClient) -> None:
    make_cluster()
    spec = {"kind": "poisson", "mean_rate_eps": 100, "seed": 1}
    made = api.post("/api/v1/arrivals", {"cluster": "eu-1", "source_id": "a", "generator": spec}, format="json")
    assert made.status_code == 201 and made.json()["origin"] == "generator" and made.json()["spec"] == spec
    counts = {"cluster": "eu-1", "source_id": "b", "counts": [1, 2, 3, 4], "step_s": 1}
    assert api.post("/api/v1/arrivals", counts, format="json").json()["events"] == 10
    bad = api.post("/api/v1/arrivals", {**counts, "counts": [1, "two", -3, True]}, format="json")
    assert bad.status_code == 400 and paths(bad) == {"counts[1]", "counts[2]", "counts[3]"}
    for body in ({"counts": [1], "generator": spec}, {}, {"generator": spec, "stretch": "first"}):
        answer = api.post("/api/v1/arrivals", {"cluster": "eu-1", "source_id": "c", **body}, format="json")
        assert answer.status_code == 400
    assert ArrivalSeries.objects.count() == 2


def test_arrivals_that_a_query_reads_cannot_be_deleted_over_rest(api: APIClient) -> None:
    start(make_query(make_cluster()))
    answer = api.delete(f"/api/v1/arrivals/{ArrivalSeries.objects.get().pk}")
    assert answer.status_code == 409 and "checkout" in answer.json()["detail"]


# -- documents


def test_a_cluster_as_a_document(api: APIClient) -> None:
    start(make_query(make_cluster()))
    document = api.get("/api/v1/clusters/eu-1/document").json()
    assert document["format"] == "sluice/deployment" and len(document["operators"]) == 2
    make_cluster("copy", nodes=0)
    url = "/api/v1/clusters/copy/document"
    done = api.post(url, {"document": document, "dry_run": True}, format="json")
    assert done.status_code == 200 and "query checkout" in done.json()["created"]
    document["operators"][0]["inputs"][0]["from"] = "nobody"
    bad = api.post(url, {"document": document}, format="json")
    assert bad.status_code == 400 and paths(bad) == {"document.operators[0].inputs[0].from"}
    assert api.get("/api/v1/clusters/none/document").status_code == 404


@pytest.mark.parametrize("resource", ["queries", "arrivals"])
def test_lists_cost_the_same_statements_however_many_rows(api: APIClient, resource: str) -> None:
    def statements(address: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get(address).json()["results"]
        assert not any('"queries_arrivalseries"."data"' in entry["sql"] for entry in captured.captured_queries)
        return len(captured)

    cluster = make_cluster()
    query = start(make_query(cluster))
    addresses = [f"/api/v1/{resource}", f"/api/v1/queries/{query.pk}/versions"]
    statements(addresses[0])  # the token's last use is written once
    few = [statements(address) for address in addresses]
    for i in range(4):
        make_arrivals(cluster, f"s{i}")
        start(make_query(cluster, f"q{i}"))
        query_version_create(query=query, body=BODY)
    assert [statements(address) for address in addresses] == few


def test_bulk_update_sets_team_and_priority_of_many_queries(api: APIClient) -> None:
    cluster = make_cluster()
    ids = [make_query(cluster, name).pk for name in ("a", "b")]
    values = {"action": "update", "ids": ids, "team": "Ops", "priority": 2}
    answer = api.post("/api/v1/queries/bulk", values, format="json")
    assert answer.json()["changed"] == 2, answer.content
    assert set(Query.objects.values_list("team__name", "priority")) == {("Ops", 2)}
    empty = api.post("/api/v1/queries/bulk", {"action": "update", "ids": ids}, format="json")
    mixed = api.post("/api/v1/queries/bulk", {"action": "stop", "ids": ids, "team": "Ops"}, format="json")
    assert {(answer.status_code, answer.json()["faults"][0]["path"]) for answer in (empty, mixed)} == {
        (400, "action"),
        (400, "team"),
    }
    stopped = api.post("/api/v1/queries/bulk", {"action": "stop", "ids": ids}, format="json").json()
    assert (stopped["changed"], stopped["refused"]) == (0, 2)
