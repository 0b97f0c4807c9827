"""The bench in a browser: the slider moves the answer, a size is chosen in the picture, a search is proven."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from tests.e2e.installation import Api

pytestmark = pytest.mark.e2e

BODY = {"operators": [{"id": "work", "inputs": [{"from": "taps", "selectivity": 1.0, "cycles_per_event": 6.0}]}]}
SLIDE = """v => { const rate = document.getElementById("rate"); rate.value = v;
rate.dispatchEvent(new Event("input", { bubbles: true })); }"""


@pytest.fixture(scope="module")
def cluster(api: Api) -> str:
    """Two nodes, each with a query that takes six tenths of it."""
    api.post("clusters", {"slug": "bench", "name": "Bench", "subinterval_s": 1, "horizon_s": 60})
    pool = {"cluster": "bench", "name": "std", "capacity_cps": 1000, "cores": 1, "price_per_hour": "0.94"}
    api.post("node-pools", pool)
    for name in ("a", "b"):
        api.post("nodes", {"cluster": "bench", "pool": "std", "name": name})
    api.post("arrivals", {"cluster": "bench", "source_id": "taps", "counts": [25.0] * 240})
    for query, node in (("one", "a"), ("two", "b")):
        objective = {"statistic": "worst", "bound_s": 2.0}
        api.post("queries", {"cluster": "bench", "name": query, **BODY, "objective": objective})
        asked = {"cluster": "bench", "query": query, "mode": "apply", "placement": {"work": node}}
        assert api.post("admissions", asked, wait_s=30)["state"] == "applied"
    return "bench"


@pytest.fixture
def page(page: Page, cluster: str) -> Page:
    page.goto(f"/c/{cluster}/provisioning/")
    page.wait_for_selector("svg.wide a.hit", state="attached")
    return page


def said(page: Any) -> str:
    return page.inner_text("#bench-sentence").replace("\u00a0", " ")


def test_the_slider_moves_the_answer(page: Any) -> None:
    assert "3 nodes" in said(page) or "The 2 nodes of now" in said(page)
    page.evaluate(SLIDE, "1.5")
    page.wait_for_selector("#bench-sentence:has-text('1.5')")
    assert said(page).startswith("3 nodes keep every worst case within the 2 s objective at 1.5 × the load")
    assert "rate=1.5" in page.url
    page.click("svg.wide a.hit[data-nodes='2']")
    page.wait_for_selector("#t-chosen:has-text('With 2 nodes')")
    assert "3 nodes would do" in said(page)
    page.wait_for_selector("a.hit[data-nodes='2']:focus", state="attached")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#t-chosen:has-text('With 3 nodes')")
    assert "nodes=3" in page.url
    page.wait_for_selector("#bench th:has-text('Holds with probability')")  # a job's answer appears by itself


def test_a_scenario_is_saved_and_answered(page: Any) -> None:
    page.evaluate(SLIDE, "1.5")
    page.wait_for_selector("#bench-sentence:has-text('1.5')")
    page.click("#bench-acts button:has-text('Save scenario')")
    page.fill("#scenario-name", "Friday peak")
    page.click("#save-scenario button.pri")
    page.wait_for_selector("#scenarios tbody tr:has-text('Would hold')")
    assert "€ 2.82" in page.inner_text("#scenarios").replace("\u00a0", " ")


def test_the_smallest_pool_is_found_with_proof(page: Any) -> None:
    page.evaluate(SLIDE, "1.5")
    page.wait_for_selector("#bench-sentence:has-text('1.5')")
    page.click("#searches button[value=smallest_pool]")
    page.wait_for_selector("#found .answer")
    found = page.inner_text("#found")
    assert "3 nodes keep every objective with any one lost" in found
    assert "With 2 nodes:" in found
