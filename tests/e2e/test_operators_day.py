"""The operator's day in Chromium, each story from the overview by what the pages offer."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.installation import Installation
from tests.servers import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SLUG = "day"
_MAKE = f"""
import django
django.setup()
from apps.estimates.services import ESTIMATE
from tests.apps.small_cluster import make_query, small_cluster, start_query
cluster = small_cluster("{SLUG}", nodes=("a", "b", "c"))
for i in range(3):
    start_query(cluster, f"q{{i}}", 0.6, "a")
make_query(cluster, "draft", 0.1)
ESTIMATE.request(cluster=cluster)
"""
#: What beat does every few seconds.
_ADVANCE = """
from apps.planning.evacuation_steps import evacuations_advance
evacuations_advance()
"""


@pytest.fixture(scope="module")
def _late_cluster(console: Installation) -> None:
    """Three queries on node a, which they overload, a draft, and two nodes without work."""
    console.script(_MAKE)


@pytest.fixture
def overview(page: Page, _late_cluster: None) -> Page:
    """The overview of that cluster."""
    page.goto(f"/c/{SLUG}/")
    return page


def field(page: Page, name: str) -> Locator:
    return page.locator(f"main [name={name}]:not([type=hidden])")


def button(page: Page, name: str | re.Pattern[str]) -> Locator:
    return page.locator("main").get_by_role("button", name=name).first


def menu(page: Page, name: str) -> None:
    links = page.get_by_role("navigation", name="Main", exact=True).get_by_role("link")
    links.filter(has_text=re.compile(f"^\\s*{name}")).first.click()  # some have a count behind their name


def at(hours: float) -> str:
    """A time from now as a form takes it; the console's clock is that of its zone, UTC."""
    return f"{datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%dT%H:%M}"


def test_late_query_is_helped_by_a_remedy_that_is_previewed_and_applied(overview: Page) -> None:
    page = overview
    page.locator("[aria-labelledby=t-attention]").get_by_role("link", name="What helps").first.click()
    button(page, "Look").click()
    expect(page.locator("#t-remedies")).to_be_visible()
    button(page, re.compile("^Preview moves: ")).click()
    button(page, re.compile(r"^Apply \d+ moves?$")).click()
    dialog = page.locator("#apply-dialog")
    dialog.get_by_label("Pace").fill("0")
    dialog.get_by_role("button", name=re.compile("^Apply")).click()
    expect(page.locator(".callout.ok")).to_contain_text(re.compile(r"moves? made"))
    menu(page, "Overview")
    expect(page.locator(".head p").first).to_contain_text(re.compile("All|[1-3] of 3 objectives? hold|objectives hold"))


def test_nodes_are_emptied_for_a_time_and_come_back(overview: Page, console: Installation) -> None:
    page = overview
    menu(page, "Fleet")
    page.get_by_label("Select a", exact=True).check()
    button(page, "Evacuate").click()
    expect(field(page, "nodes")).to_have_value("a")
    field(page, "ends_at").fill(at(4))
    button(page, "Plan the evacuation").click()
    expect(page.locator("main .answer")).to_contain_text("move")
    for box in page.locator("main [name=accept_late]").all():
        box.check()
    button(page, "Confirm and begin").click()
    state = page.locator("section.panel header p .mark, section.panel header p").filter(has_text="Away")

    def is_away() -> bool:
        console.script(_ADVANCE)
        return state.count() > 0

    wait_until(is_away, what="the node to be empty")
    button(page, "End the time away").click()

    def is_done() -> bool:
        console.script(_ADVANCE)
        return "Done" in page.locator("h1").inner_text()

    wait_until(is_done, what="the operators to be back")
    menu(page, "Fleet")
    expect(page.locator("main tbody")).not_to_contain_text("Draining")


def test_event_is_planned_worked_out_and_ticked_off(overview: Page) -> None:
    page = overview
    menu(page, "Provisioning")
    page.locator("main").get_by_role("link", name="Events").click()
    page.locator("main").get_by_role("link", name="Plan an event").first.click()
    field(page, "name").fill("Sale")
    field(page, "factors").fill("clicks 3x, rest 1.5x")
    field(page, "starts_at").fill(at(48))
    field(page, "ends_at").fill(at(60))
    button(page, "Save event").click()
    button(page, "Work it out").click()
    expect(page.locator("main .answer")).to_contain_text(re.compile("break|hold"))
    expect(page.locator("#t-breaks")).to_be_visible()
    item = page.locator(".ev-check li").first
    name = item.locator(".name").inner_text()
    item.get_by_role("button", name=f"Done: {name}").click()
    expect(page.locator(".ev-check li", has_text=name)).to_contain_text("done")


def test_change_is_taken_back_from_its_toast(overview: Page) -> None:
    page = overview
    page.goto(f"/c/{SLUG}/queries/draft/")
    page.locator("main").get_by_role("link", name="Edit", exact=True).click()
    field(page, "priority").fill("7")
    button(page, re.compile("^Save")).click()
    page.locator(".toast").get_by_role("button", name="Undo").click()
    expect(page.locator(".toast").first).to_contain_text("taken back")


def test_promises_lead_from_the_menu_to_what_came_of_them(overview: Page) -> None:
    page = overview
    menu(page, "Accuracy")
    page.get_by_role("link", name="Promises").first.click()
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("main")).to_contain_text(re.compile("[Pp]romise"))
