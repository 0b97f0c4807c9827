"""A report is defined in the browser, scheduled for the next minute, watched as it arrives, and downloaded as PDF."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from launcher.children import end_family, spawn
from tests.e2e.installation import ROOT, Api, Installation

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLUG = "reported"


@pytest.fixture
def beat(console: Installation) -> Iterator[None]:
    """The process that looks every few seconds what is due."""
    with (console.var_dir / "beat.log").open("wb") as log:
        command = [sys.executable, "-P", "-m", "celery", "-A", "console", "beat", "-l", "INFO", "--pidfile="]
        process = spawn(command, env=console.env, cwd=ROOT, output=log, tied=True)
    yield
    end_family(process)


@pytest.fixture
def fleet(api: Api) -> None:
    """Two nodes with prices and a running query."""
    api.post("clusters", {"slug": SLUG, "name": "Reported", "subinterval_s": 1, "horizon_s": 120})
    api.post("node-pools", {"cluster": SLUG, "name": "std", "capacity_cps": 1000, "cores": 1, "price_per_hour": 0.2})
    for name in ("n1", "n2"):
        api.post("nodes", {"cluster": SLUG, "pool": "std", "name": name})
    generator = {"kind": "poisson", "mean_rate_eps": 50, "seed": 3}
    api.post("arrivals", {"cluster": SLUG, "source_id": "clicks", "generator": generator})
    operators = [{"id": "work", "inputs": [{"from": "clicks", "selectivity": 1, "cycles_per_event": 12}]}]
    objective = {"statistic": "worst", "bound_s": 10}
    api.post("queries", {"cluster": SLUG, "name": "count", "operators": operators, "objective": objective})
    answer = api.post("admissions", {"cluster": SLUG, "query": "count", "mode": "apply"}, wait_s=30)
    assert answer["state"] == "applied", answer


@pytest.mark.night
def test_a_report_scheduled_for_the_next_minute_arrives(
    page: Page, fleet: None, beat: None, api: Api, tmp_path: Path
) -> None:
    page.goto(f"/c/{SLUG}/reports/")
    expect(page.get_by_text("No report is defined yet").first).to_be_visible()
    page.goto(f"/c/{SLUG}/reports/new/")
    page.locator("[name=name]").fill("Each day")
    page.locator("[name=every]").select_option("day")
    expect(page.locator("[name=days]").first).to_be_hidden()
    page.locator("[name=time_zone]").fill("UTC")
    page.locator("[name=emails]").fill("ops@example.org")
    due = datetime.now(UTC) + timedelta(seconds=65)
    page.locator("[name=at]").fill(f"{due:%H:%M}")
    expect(page.locator("#runs")).to_contain_text(f"{due:%H:%M}")
    page.get_by_role("button", name="Save report").click()
    expect(page.get_by_text(f"Every day at {due:%H:%M} UTC; next")).to_be_visible()
    # the list shows it by itself once it is there
    link = page.locator("section[aria-labelledby=t-written] tbody a.name")
    expect(link).to_have_text("Each day", timeout=300_000)
    expect(page.locator("section[aria-labelledby=t-written]")).to_contain_text("Ready")
    link.click()
    expect(page.locator("figure svg").first).to_be_visible()
    expect(page.get_by_text("No mail server is configured")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("link", name="PDF").click()
    file = tmp_path / "report.pdf"
    download.value.save_as(file)
    assert download.value.suggested_filename.startswith("each-day-")
    assert file.read_bytes().startswith(b"%PDF-")
    reports = api.get(f"reports?cluster={SLUG}")["results"]
    assert [(report["trigger"], report["missed"]) for report in reports] == [("scheduled", 0)]
    assert reports[0]["due_at"].startswith(f"{due:%Y-%m-%dT%H:%M}:00")
