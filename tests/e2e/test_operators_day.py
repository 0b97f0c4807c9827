"""The operator's day in Chromium, each story from the overview by what the pages offer."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def overview(page: Page, world: dict[str, Any]) -> None:
    page.goto(f"/c/{world['cluster']}/")


def field(page: Page, name: str) -> Any:
    return page.locator(f"main [name={name}]:not([type=hidden])")


def at(hours: float) -> str:
    """A time from now as a form takes it; the console's clock is that of its zone, UTC."""
    return f"{datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%dT%H:%M}"


def test_a_node_is_evacuated_for_a_time(page: Page, world: dict[str, Any]) -> None:
    overview(page, world)
    page.get_by_role("link", name="n1", exact=True).first.click()
    page.get_by_role("link", name="Evacuate n1").click()
    field(page, "starts_at").fill(at(3))
    field(page, "ends_at").fill(at(7))
    page.get_by_role("button", name="Plan the evacuation").click()
    expect(page.locator("main .answer").or_(page.locator("main .callout.bad")).first).to_be_visible()


def test_promises_lead_from_the_menu_to_what_came_of_them(page: Page, world: dict[str, Any]) -> None:
    overview(page, world)
    page.get_by_role("link", name="Accuracy").first.click()
    page.get_by_role("link", name="Promises").first.click()
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("main")).to_contain_text(re.compile("[Pp]romise"))
