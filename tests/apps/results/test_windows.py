"""Windows are kept once, replaced by later revisions, shown, exported and forgotten."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from apps.core.errors import Malformed
from apps.results import services
from apps.results.models import ResultWindow
from apps.results.rows import group_columns, number_columns, table_in
from apps.results.selectors import result_schema
from apps.results.services import RESULTS_KEPT, results_purge
from apps.results.windows import results_receive
from apps.telemetry.frames import frames_receive
from apps.telemetry.models import LiveQuery
from tests.apps.results.rows import BEGIN_US, WIDTH_US, pipeline, result, rows_of

pytestmark = pytest.mark.django_db

AB, CD = ("a", "b"), ("c", "d")


def rtts(row: ResultWindow) -> list[float]:
    return table_in(row.body).column("rtt").to_pylist()


def test_window_is_stored_once_and_replaced_by_a_higher_revision(live: LiveQuery) -> None:
    first, second = result(live.query, {AB: 1.0}), result(live.query, {AB: 2.0, CD: 3.0}, revision=1, early=4)
    frames_receive([first])
    frames_receive([first, second, first, second])
    row = ResultWindow.objects.get()
    assert (row.revision, row.row_count, rtts(row)) == (1, 2, [2.0, 3.0])
    assert (row.window_us, row.version_number, row.complete, row.early) == (BEGIN_US, 1, True, 4)
    assert row.latency_s == pytest.approx(1.5)
    received_at = row.received_at
    frames_receive([replace(first, extra={**first.extra, "revision": 1})])
    row.refresh_from_db()
    assert rtts(row) == [2.0, 3.0], "the same revision changes nothing"
    assert row.received_at == received_at


def test_another_plan_has_its_own_windows(live: LiveQuery) -> None:
    frames_receive([result(live.query, {AB: 1.0}), replace(result(live.query, {AB: 5.0}), plan="f" * 64)])
    assert ResultWindow.objects.count() == 2
    assert set(ResultWindow.objects.values_list("version_number", flat=True)) == {1, None}


def test_results_of_a_deleted_query_are_ignored(live: LiveQuery) -> None:
    frame = result(live.query, {AB: 1.0})
    kept = result(live.query, {AB: 2.0}, 1)
    results_receive([replace(frame, query="little/gone"), replace(frame, query="nowhere"), kept])
    assert ResultWindow.objects.get().window_us == BEGIN_US + WIDTH_US


def test_every_fault_of_a_frame_is_named(live: LiveQuery) -> None:
    frame = result(live.query, {AB: 1.0}, window_us="soon", width_us=0, missing=["x"])
    broken = replace(frame, extra={**frame.extra, "missing": [1], "emitted_us": None, "recovered": {"a": "x"}})
    with pytest.raises(Malformed) as refused:
        results_receive([broken])
    assert [fault.path.removeprefix("extra.") for fault in refused.value.faults] == [
        "window_us",
        "width_us",
        "emitted_us",
        "missing",
        "recovered",
    ]
    with pytest.raises(Malformed, match="body"):
        results_receive([replace(result(live.query, {}), body=b"no arrow")])
    assert not ResultWindow.objects.exists()


@pytest.mark.parametrize("name", ["window_us", "emitted_us", "closing_epoch_us"])
def test_time_outside_the_calendar_is_a_fault(live: LiveQuery, name: str) -> None:
    frame = result(live.query, {AB: 1.0})
    with pytest.raises(Malformed, match=name):
        results_receive([replace(frame, extra={**frame.extra, name: 2**60})])


def test_early_window_is_marked_until_a_revision_completes_it(api: APIClient, live: LiveQuery) -> None:
    latest = f"/api/v1/queries/{live.query_id}/results/latest"
    results_receive([result(live.query, {AB: 1.0}, missing=["x"], recovered={"x": 12})])
    assert api.get(latest).json()["recovered"] == {"x": 12}
    results_receive([result(live.query, {AB: 1.0}, revision=1)])
    assert (api.get(latest).json()["recovered"], api.get(latest).json()["complete"]) == ({}, True)


def test_groups_are_the_keys_of_the_last_aggregate() -> None:
    schema = rows_of({AB: 1.0}).schema
    document = pipeline().document
    assert group_columns(document, schema) == ["src", "dst"]
    assert number_columns(schema, ["src", "dst"]) == ["n", "rtt"]
    renamed = {
        **document,
        "operators": [
            *document["operators"],
            {"id": "p", "expression": {"op": "project", "columns": {"n": "dst", "rtt": "rtt"}}},
        ],
    }
    assert group_columns(renamed, pa.schema([("n", pa.string()), ("rtt", pa.float64())])) == ["n"]
    buckets = {"operators": [{"id": "h", "expression": {"op": "aggregate", "by": ["bucket"], "compute": {}}}]}
    numbers = pa.schema([("bucket", pa.int64()), ("n", pa.int64())])
    assert group_columns(buckets, numbers) == ["bucket"], "a group may be named by a number"
    assert group_columns(None, schema) == ["src", "dst"]


def test_columns_are_known_before_the_first_result(live: LiveQuery) -> None:
    schema = result_schema(live.query)
    assert schema is not None
    assert set(schema.names) == {"window_start", "src", "dst", "n", "rtt"}
    live.delete()
    live.query.refresh_from_db()
    assert result_schema(live.query) is None


def test_api_shows_windows_and_rows(api: APIClient, live: LiveQuery) -> None:
    base = f"/api/v1/queries/{live.query_id}/results"
    assert api.get(f"{base}/latest").status_code == 404
    frames_receive([result(live.query, {AB: float(w), CD: None}, w, missing=["x"] if w == 1 else ()) for w in range(3)])
    listed = api.get(base).json()["results"]
    assert [row["window_us"] for row in listed] == [BEGIN_US + w * WIDTH_US for w in (2, 1, 0)]
    assert "rows" not in listed[0]
    assert [row["missing"] for row in api.get(f"{base}?complete=false").json()["results"]] == [["x"]]
    latest = api.get(f"{base}/latest").json()
    assert latest["rows"][0]["rtt"] == 2.0
    assert latest["rows"][1]["rtt"] is None
    assert latest["columns"]["rtt"] == "double"
    assert api.get(f"{base}/{BEGIN_US}").json()["rows"][0]["rtt"] == 0.0
    assert api.get(f"{base}/17").status_code == 404
    assert api.get("/api/v1/queries/999999/results").status_code == 404


def test_results_are_exported(api: APIClient, live: LiveQuery) -> None:
    base = f"/api/v1/queries/{live.query_id}/results"
    frames_receive([result(live.query, {("=a", "b"): float(w)}, w) for w in range(3)])
    text = b"".join(api.get(f"{base}.csv?windows=2").streaming_content).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["rtt"] for row in rows] == ["1.0", "2.0"]
    assert rows[0]["src"] == "'=a", "a spreadsheet would run it"
    table = pa.ipc.open_stream(api.get(f"{base}.arrow").content).read_all()
    assert table.column("rtt").to_pylist() == [0.0, 1.0, 2.0]
    refused = api.get(f"{base}.csv?windows=0")
    assert (refused.status_code, refused.json()["faults"][0]["path"]) == (400, "windows")


def test_old_results_are_purged(live: LiveQuery, monkeypatch: pytest.MonkeyPatch) -> None:
    frames_receive([result(live.query, {AB: 1.0}, w) for w in range(5)])
    old = ResultWindow.objects.order_by("window_us").first()
    assert old is not None
    ResultWindow.objects.filter(pk=old.pk).update(received_at=timezone.now() - RESULTS_KEPT - timedelta(seconds=1))
    assert results_purge() == 1
    monkeypatch.setattr(services, "MAX_WINDOWS", 2)
    assert results_purge() == 2
    left = list(ResultWindow.objects.values_list("window_us", flat=True))
    assert left == [BEGIN_US + w * WIDTH_US for w in (4, 3)]
    monkeypatch.setattr(services, "MAX_BYTES", 1)
    assert results_purge() == 1
    assert ResultWindow.objects.get().window_us == left[0], "the newest is kept, however large"
