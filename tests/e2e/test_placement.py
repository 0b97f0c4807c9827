"""Placement in the browser against real processes: search, understand, apply, see it moved, take it back."""

from __future__ import annotations

import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.installation import ROOT, Api, Installation

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLUG = "moving"
_TOO_WIDE_PX = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_MAKE = f"""
import django
django.setup()
from apps.estimates.services import ESTIMATE
from tests.apps.small_cluster import small_cluster, start_query
cluster = small_cluster("{SLUG}", nodes=("a", "b", "c"))
for i in range(3):
    start_query(cluster, f"q{{i}}", 0.6, "a")
ESTIMATE.request(cluster=cluster)
"""


@pytest.fixture(scope="module")
def crowded(console: Installation) -> None:
    """Three queries on node a, which they overload; b and c stand empty."""
    subprocess.run([sys.executable, "-c", _MAKE], cwd=ROOT, env=console.env, check=True, capture_output=True)


@pytest.mark.usefixtures("crowded")
def test_search_apply_and_undo(page: Page, api: Api) -> None:
    page.goto(f"/c/{SLUG}/placement/")
    expect(page.locator(".head p").first).to_contain_text("3 operators of 3 queries on 3 nodes; a carries")
    expect(page.locator(".pl-core.hot .blocks .bk")).to_have_count(3)
    page.get_by_text("Pins, forbidden places, algorithm").click()
    page.get_by_label("Operator, as query/operator").fill("q0/work")
    page.get_by_label("Node or operator").fill("a")
    page.locator("[name=budget_s]").fill("60")  # it ends as soon as nothing better can exist
    page.get_by_role("button", name="Search a placement").click()
    finding = page.locator(".answer")
    expect(finding).to_contain_text("operators takes the query nearest its objective from")
    run = api.get(f"placements?cluster={SLUG}")["results"][0]
    moves = run["facts"]["moves"]
    assert (run["state"], run["constraints"]) == ("proposed", {"pin": {"q0/work": "a"}})
    assert run["facts"]["value_after"] < run["facts"]["value_before"]

    page.get_by_role("button", name=f"Apply {moves} moves").click()
    dialog = page.locator("#apply-dialog")
    expect(dialog).to_contain_text(f"{moves} moves in ")
    dialog.get_by_label("Pace").fill("0")
    dialog.get_by_role("button", name=f"Apply {moves} moves").click()
    expect(page.locator(".callout.ok")).to_contain_text(f"{moves} of {moves} moves made")
    page.goto(f"/c/{SLUG}/placement/")
    expect(page.locator(".blocks", has=page.locator(".bk"))).to_have_count(3)

    page.goto(f"/c/{SLUG}/placement/{run['id']}/")
    page.get_by_role("button", name=f"Undo {moves} moves").click()
    page.locator("#confirm-dialog [data-go-on]").click()
    expect(page.get_by_text("every operator is where it was")).to_be_visible()
    detail = api.get(f"placements/{run['id']}")
    assert {move["state"] for move in detail["moves"]} == {"undone"}


@pytest.mark.usefixtures("crowded")
def test_phones_reach_it_and_nothing_is_too_wide(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/c/{SLUG}/")
    page.get_by_role("navigation", name="Main, phone").get_by_role("link", name="Placement").click()
    expect(page.locator("h1")).to_have_text("Placement")
    assert page.evaluate(_TOO_WIDE_PX) == 0
    page.get_by_role("button", name="More").click()
    sheet = page.locator("#more-sheet")
    expect(sheet.get_by_role("link", name="Fleet")).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    page.get_by_role("button", name="More").click()
    sheet.get_by_role("link", name="Fleet").click()
    expect(page.locator("h1")).to_have_text("Fleet")
