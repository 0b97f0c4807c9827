"""The main path in headless Chromium: from signing in to a second query that is let in by one of the alternatives."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.installation import PASSWORD
from tests.e2e.story import CAPACITY_CPS, FIRST, NODES, SECOND, example

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLUG = "by-hand"


def field(page: Page, name: str) -> Any:
    return page.locator(f"main [name={name}]:not([type=hidden])")


def heading(page: Page) -> Any:
    return page.locator("h1")


def sign_in(page: Page) -> None:
    page.context.clear_cookies()
    page.goto("/login/")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def make_fleet(page: Page) -> None:
    """A cluster, a pool, and nodes."""
    page.goto("/clusters/new/")
    for name, value in {"name": "By hand", "slug": SLUG, "subinterval_s": "1", "horizon_s": "3600"}.items():
        field(page, name).fill(value)
    page.get_by_role("button", name="Create cluster").click()
    expect(heading(page)).to_have_text("Fleet")
    page.goto(f"/c/{SLUG}/fleet/new/pool/")
    for name, value in {"name": "std", "capacity_cps": f"{CAPACITY_CPS:.0f}", "cores": "1"}.items():
        field(page, name).fill(value)
    page.get_by_role("button", name="Save pool").click()
    for node in NODES:
        page.goto(f"/c/{SLUG}/fleet/new/node/")
        field(page, "name").fill(node)
        page.get_by_role("button", name="Save node").click()
        expect(page.get_by_role("link", name=node, exact=True)).to_be_visible()


def upload_trace(page: Page, trace: Path) -> None:
    page.goto(f"/c/{SLUG}/arrivals/new/")
    field(page, "file").set_input_files(trace)
    page.get_by_role("button", name="Upload file").click()
    expect(field(page, "time_column")).to_have_value("period")
    expect(field(page, "count_column")).to_have_value("count")
    expect(page.locator("#preview figure").first).to_be_visible()
    field(page, "source_id").fill("requests")
    page.get_by_role("button", name="Store arrivals").dblclick()  # sent once all the same: a second would be refused
    expect(heading(page)).to_contain_text("requests")


def describe(page: Page, name: str, bound_s: float) -> None:
    """Register a query by its document."""
    page.goto(f"/c/{SLUG}/queries/-/new/")
    field(page, "document").fill(json.dumps({"operators": example(name)}))
    field(page, "name").fill(name)
    field(page, "statistic").select_option("worst")
    field(page, "bound_s").fill(f"{bound_s:g}")
    page.get_by_role("button", name="Create query").click()
    expect(heading(page)).to_contain_text(name)


def verdict(page: Page) -> Any:
    """The banner; it appears by itself when the job is done."""
    return page.locator(".verdict h2")


def ask(page: Page, name: str) -> None:
    page.goto(f"/c/{SLUG}/admission/new/?query={name}")
    page.get_by_role("button", name="Preview admission").click()
    expect(heading(page)).to_contain_text(f"Add {name} v1")


def apply(page: Page, name: str) -> None:
    page.get_by_role("button", name="Apply", exact=True).click()
    page.locator("#act-dialog").get_by_role("button", name=f"Apply {name} v1").click()
    expect(page.locator(".toast").first).to_contain_text(f"{name} v1 is applied")


def test_from_an_empty_console_to_two_queries(page: Page, trace: Path) -> None:
    sign_in(page)
    make_fleet(page)
    upload_trace(page, trace)

    describe(page, *FIRST)
    ask(page, FIRST[0])
    expect(verdict(page)).to_have_text("Admit: Every objective holds")
    apply(page, FIRST[0])
    page.get_by_role("link", name=f"Open {FIRST[0]}").click()
    expect(page.get_by_role("heading", name="Latency over the horizon")).to_be_visible()
    expect(page.locator("h1 .badge")).to_have_text("Holds by estimate")

    describe(page, *SECOND)
    ask(page, SECOND[0])
    expect(verdict(page)).to_have_text(f"Reject: {FIRST[0]} would miss its objective")
    expect(page.get_by_role("button", name="Apply", exact=True)).to_have_attribute("aria-disabled", "true")
    expect(page.locator("#why")).to_contain_text("Apply is off while the verdict is reject")
    expect(page.locator(".choice")).not_to_have_count(0)
    page.get_by_role("link", name=re.compile("Admit it with .* of its rate")).click()
    expect(verdict(page)).to_contain_text("Admit with changes: Admit it with")
    expect(page).to_have_url(re.compile(r"\?alternative=scale_rate-1$"))
    page.get_by_role("button", name="Preview this alternative").first.click()
    expect(verdict(page)).to_have_text(re.compile("Admit with changes: Every objective holds"))
    apply(page, SECOND[0])

    page.goto(f"/c/{SLUG}/queries/")
    for name in (FIRST[0], SECOND[0]):
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
