"""Arrivals in the browser: the list, one source, upload in two steps, generators."""

from __future__ import annotations

import gzip
from collections.abc import Callable

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from apps.fleet.models import Cluster
from apps.queries.models import ArrivalSeries
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

ROOT = "/c/little/arrivals/"
TRACE = "period,count\n" + "".join(f"2026-03-01 10:{i:02}:00,{200 * (i + 1)}\n" for i in range(15))


def uploaded(browser: Client, text: str = TRACE, query: str = "") -> str:
    """The address of the second step."""
    file = SimpleUploadedFile("trace.csv.gz", gzip.compress(text.encode()))
    response = browser.post(f"{ROOT}new/{query}", {"file": file, "time_zone": "UTC"})
    assert response.status_code == 302, body(response)
    return response["Location"]


def columns(browser: Client, address: str, **fields: str) -> dict[str, str]:
    key = body(browser.get(address)).split('name="key" value="')[1].split('"')[0]
    chosen = {"key": key, "source_id": "requests", "time_column": "period", "count_column": "count"}
    return {**chosen, "time_zone": "UTC", "stretch": "busiest", **fields}


def test_list_shows_rates_and_readers(browser: Client, cluster: Cluster) -> None:
    html = body(browser.get(ROOT))
    assert "1 source: 1 imported." in html
    assert "calm</a>, " in html
    assert 'aria-label="clicks: rate over the horizon' in html
    csv = browser.get(f"{ROOT}?export=csv").getvalue().decode()
    assert "clicks,,document,assumed,100.0,100.0,,calm late" in csv
    assert "Nothing matches" in body(browser.get(f"{ROOT}?q=zzz"))


def test_source_with_readers_is_not_deleted(browser: Client, cluster: Cluster) -> None:
    row = ArrivalSeries.objects.get()
    html = body(browser.get(f"{ROOT}{row.pk}/"))
    assert 'data-chart="rate"' in html
    assert "It cannot be deleted while calm and late read it." in html
    assert "delete-dialog" not in html
    refused = browser.post(f"{ROOT}{row.pk}/delete/")
    assert refused.status_code == 409
    assert "calm" in body(refused)
    assert browser.get(f"{ROOT}{row.pk + 99}/").status_code == 404


def test_trace_is_uploaded_previewed_and_stored(browser: Client, cluster: Cluster) -> None:
    address = uploaded(browser)
    html = body(browser.get(address))
    assert "trace.csv.gz" in html
    assert "one count every 60" in html
    form = columns(browser, address)
    preview = body(browser.post(f"{ROOT}new/columns/", {**form, "source_id": "", "preview": "1"}))
    assert 'data-chart="rate"' in preview
    assert "3 k events from 1 Mar 2026, 10:14:00 UTC" in preview.replace("\xa0", " ")
    response = browser.post(f"{ROOT}new/columns/", form)
    row = ArrivalSeries.objects.get(source_id="requests")
    assert response["Location"] == f"{ROOT}{row.pk}/"
    assert (row.events, row.evidence) == (3000.0, "measured")
    assert "trace.csv.gz" in body(browser.get(f"{ROOT}{row.pk}/"))
    taken = browser.post(f"{ROOT}new/columns/", form)
    assert taken.status_code == 422
    assert "id_source_id_error" in body(taken)


def test_short_trace_with_explicit_start_is_filled_as_chosen(browser: Client, cluster: Cluster) -> None:
    form = columns(browser, uploaded(browser), stretch="at")
    assert "when the range begins" in body(browser.post(f"{ROOT}new/columns/", {**form, "preview": "1"}))
    late = {**form, "start": "2026-03-01 10:14:30"}
    assert "choose fill" in body(browser.post(f"{ROOT}new/columns/", {**late, "preview": "1"}))
    assert browser.post(f"{ROOT}new/columns/", {**late, "fill": "repeat"}).status_code == 302
    outside = browser.post(f"{ROOT}new/columns/", {**form, "source_id": "x", "start": "2031-01-01"})
    assert outside.status_code == 422
    assert "allowed: busiest, first, or a time from" in body(outside)


def test_running_total_is_told_and_may_be_read_as_counts(browser: Client, cluster: Cluster) -> None:
    totals = "period,hits_total\n" + "".join(f"2026-03-01 10:{i:02}:00,{9000 + 600 * i}\n" for i in range(15))
    address = uploaded(browser, totals)
    assert "differences count" in body(browser.get(address))
    form = columns(browser, address, count_column="hits_total")
    assert "differences count" in body(browser.post(f"{ROOT}new/columns/", {**form, "preview": "1"}))
    assert browser.post(f"{ROOT}new/columns/", form).status_code == 302
    row = ArrivalSeries.objects.get(source_id="requests")
    assert (row.events, row.spec["count_kind"]) == (600.0, "total")
    assert "running total since some time" in body(browser.get(f"{ROOT}{row.pk}/"))
    counts = {**form, "source_id": "counts", "count_kind": "count"}
    assert browser.post(f"{ROOT}new/columns/", counts).status_code == 302
    assert ArrivalSeries.objects.get(source_id="counts").spec["count_kind"] == "count"


def test_lines_that_would_each_be_one_event_are_warned_of(browser: Client, cluster: Cluster) -> None:
    rows = "".join(f"2026-03-01 10:{i:02}:00,about a dozen\n" for i in range(15))
    html = body(browser.get(uploaded(browser, f"period,requests\n{rows}")))
    callout = html.split('class="callout watch"')[1].split("</div>")[0]
    assert "each line would be one event" in callout
    assert 'class="callout watch"' not in body(browser.get(uploaded(browser)))


def test_dates_that_may_be_two_days_are_asked_for(browser: Client, cluster: Cluster) -> None:
    address = uploaded(browser, TRACE.replace("2026-03-01", "03/01/2026"))
    assert "choose dmy or mdy" in body(browser.get(address))
    form = columns(browser, address)
    refused = browser.post(f"{ROOT}new/columns/", form)
    assert refused.status_code == 422
    assert "id_time_format_error" in body(refused)
    assert browser.post(f"{ROOT}new/columns/", {**form, "time_format": "mdy"}).status_code == 302


def test_unreadable_lines_are_listed(browser: Client, cluster: Cluster) -> None:
    address = uploaded(browser, TRACE.replace(",400\n", ",many\n"))
    html = body(browser.get(address))
    assert "1 line cannot be read" in html
    assert "<code>many</code>" in html
    form = columns(browser, address)
    refused = browser.post(f"{ROOT}new/columns/", form)
    assert refused.status_code == 422
    assert "1 line cannot be read; first: line 3, column count" in body(refused)
    assert "file.line" not in body(refused)
    assert "file.line" not in body(browser.post(f"{ROOT}new/columns/", {**form, "preview": "1"}))
    assert browser.post(f"{ROOT}new/columns/", {**form, "leave_out_problems": "on"}).status_code == 302


def test_file_that_is_no_table_is_refused(browser: Client, cluster: Cluster) -> None:
    file = SimpleUploadedFile("t.csv.gz", gzip.compress(b"a,b\n1,2\n")[:-9])
    response = browser.post(f"{ROOT}new/", {"file": file, "time_zone": "Mars/Phobos"})
    assert response.status_code == 422
    assert "id_time_zone_error" in body(response)
    assert browser.get(f"{ROOT}new/columns/?key=forged").status_code == 400
    assert not ArrivalSeries.objects.exclude(source_id="clicks").exists()


def generator(**fields: str) -> dict[str, str]:
    spec = {"kind": "diurnal", "mean_rate_eps": "50", "seed": "1", "swing": "0.5", "second_swing": "0"}
    return {**spec, "source_id": "g", "peak_s": "10", "second_peak_s": "0", "day_s": "60", "noise": "on", **fields}


def test_generator_is_previewed_and_stored(browser: Client, cluster: Cluster) -> None:
    path = f"{ROOT}new/generator/"
    assert 'name="swing"' in body(browser.get(path))
    other = body(browser.get(f"{path}?kind=on_off&source_id=kept"))
    assert 'name="ratio"' in other
    assert 'value="kept"' in other
    assert 'data-chart="rate"' in body(browser.post(path, {**generator(source_id=""), "preview": "1"}))
    faulty = body(browser.post(path, generator(swing="7")))
    assert 'id="id_swing_error"' in faulty
    assert "generator.swing" not in faulty
    assert "data-focus" not in body(browser.post(path, {**generator(swing="7"), "preview": "1"}))
    browser.post(path, generator())
    row = ArrivalSeries.objects.get(source_id="g")
    assert row.spec["swing"] == 0.5
    assert "Diurnal" in body(browser.get(f"{ROOT}{row.pk}/"))
    browser.post(f"{ROOT}{row.pk}/delete/")
    assert not ArrivalSeries.objects.filter(source_id="g").exists()


def test_arrivals_are_replaced(browser: Client, cluster: Cluster) -> None:
    page = body(browser.get(f"{ROOT}new/generator/?replace=clicks"))
    assert "Replace the arrivals of clicks" in page
    assert 'value="clicks"' in page
    browser.post(f"{ROOT}new/generator/?replace=clicks", generator(source_id="clicks", replace="on"))
    assert ArrivalSeries.objects.get().origin == "generator"
    address = uploaded(browser, query="?replace=clicks")
    assert 'value="clicks"' in body(browser.get(address))


def test_viewer_reads_arrivals(browser_of: Callable[..., Client], cluster: Cluster) -> None:
    viewer = browser_of("viewer")
    row = ArrivalSeries.objects.get()
    for path in ("", f"{row.pk}/"):
        html = body(viewer.get(f"{ROOT}{path}"))
        assert "/new/" not in html
        assert "Delete" not in html
    ArrivalSeries.objects.all().delete()
    html = body(viewer.get(ROOT))
    assert "No arrivals yet" in html
    assert 'href="/c/little/arrivals/new/"' not in html


def test_team_and_labels_of_a_source_are_set_and_chosen_by(browser: Client, cluster: Cluster) -> None:
    row = cluster.arrivals.get()
    address = f"{ROOT}{row.pk}/owner/"
    refused = browser.post(address, {"team": "ads", "labels": "domain=$ tier"})
    assert refused.status_code == 422 and body(refused).count("; allowed: ") >= 2
    assert browser.post(address, {"team": "ads", "labels": "domain=payments tier="})["Location"] == f"{ROOT}{row.pk}/"
    row.refresh_from_db()
    assert (str(row.team), row.labels) == ("ads", {"domain": "payments", "tier": ""})
    assert 'value="domain=payments tier="' in body(browser.get(address))
    assert "domain=payments tier=" in browser.get(f"{ROOT}?export=csv").getvalue().decode()
    for query, is_found in {
        "labels=tier,!canary": True,
        "labels=domain!%3Dpayments": False,
        "q=domain%3Dpay": True,
    }.items():
        assert ("Nothing matches" not in body(browser.get(f"{ROOT}?{query}"))) == is_found, query
