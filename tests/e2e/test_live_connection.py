"""Renewal of pages: when they ask, what they fetch, and what outlives it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.e2e.installation import Api

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FLEET = "/c/parts/fleet/"


@pytest.fixture(scope="module")
def nodes(api: Api) -> dict[str, int]:
    """Two nodes of a cluster of their own: {name: id}."""
    api.post("clusters", {"slug": "parts", "name": "Parts", "subinterval_s": 1, "horizon_s": 60})
    api.post("node-pools", {"cluster": "parts", "name": "std", "capacity_cps": 1e9, "cores": 2})
    made = {name: api.post("nodes", {"cluster": "parts", "pool": "std", "name": name}) for name in ("n1", "n2")}
    return {name: node["id"] for name, node in made.items()}


@pytest.fixture
def sockets(page: Page) -> list[WebSocketRoute]:
    """Connections of the pages opened from now on, answered by the test."""
    opened: list[WebSocketRoute] = []
    page.route_web_socket("**/ws/", lambda socket: opened.append(socket))
    return opened


def test_a_page_asks_once_more_when_it_is_subscribed(page: Page, sockets: list[WebSocketRoute]) -> None:
    asked: list[str] = []
    page.goto("/jobs/")
    page.on("request", lambda request: asked.append(request.url) if "hx-request" in request.headers else None)
    page.wait_for_timeout(1000)
    assert not asked, "an open socket is no subscription"
    with page.expect_request("**/jobs/"):
        sockets[0].send('{"ready": true}')


def test_unchanged_part_is_not_sent_again(page: Page, sockets: list[WebSocketRoute], nodes: dict[str, int]) -> None:
    page.goto(FLEET)
    page.wait_for_timeout(1000)
    with page.expect_response(lambda response: response.url.endswith(FLEET)) as answer:
        sockets[0].send('{"ready": true}')
    assert answer.value.status == 304
    expect(page.get_by_role("link", name="n1", exact=True)).to_be_visible()


def test_renewal_keeps_what_was_opened_chosen_and_focused(page: Page, api: Api, nodes: dict[str, int]) -> None:
    page.goto(FLEET)
    page.get_by_label("Select n2").check()
    page.locator("#views-menu > summary").click()
    link = page.get_by_role("link", name="n1", exact=True)
    link.focus()
    api.patch(f"nodes/{nodes['n2']}", {"cores": 7})
    expect(page.locator("tr", has_text="n2").locator('[data-l="Cores"]')).to_have_text("7")
    expect(page.get_by_label("Select n2")).to_be_checked()
    expect(page.locator(".bulk [data-count]")).to_have_text("1 selected")
    expect(page.get_by_role("heading", name="Views of this list")).to_be_visible()
    expect(link).to_be_focused()


def test_text_that_is_being_typed_holds_the_renewal(page: Page, api: Api, nodes: dict[str, int]) -> None:
    page.goto(FLEET)
    find = page.get_by_label("Node, pool or label")
    find.type("n")
    with page.expect_response(lambda response: response.url.endswith(FLEET)):
        api.patch(f"nodes/{nodes['n1']}", {"cores": 9})
    expect(find).to_have_value("n")
    expect(find).to_be_focused()
    find.fill("")
    expect(page.locator("tr", has_text="n1").locator('[data-l="Cores"]')).to_have_text("9")


def test_tab_that_is_not_looked_at_waits(page: Page, sockets: list[WebSocketRoute], nodes: dict[str, int]) -> None:
    page.add_init_script("Object.defineProperty(document, 'hidden', {get: () => window.isAway ?? false})")
    page.goto(FLEET)
    asked: list[str] = []
    page.evaluate("window.isAway = true")
    page.on("request", lambda request: asked.append(request.url) if "hx-request" in request.headers else None)
    sockets[0].send('{"changed": "cluster:parts"}')
    page.wait_for_timeout(1000)
    assert not asked
    with page.expect_request(f"**{FLEET}"):
        page.evaluate("window.isAway = false; document.dispatchEvent(new Event('visibilitychange'))")


def test_page_says_since_when_it_is_not_updated(page: Page, sockets: list[WebSocketRoute]) -> None:
    page.goto("/jobs/")
    sockets[0].send('{"ready": true}')
    expect(page.locator("[data-live]")).to_be_hidden()
    page.unroute_all()
    page.route_web_socket("**/ws/", lambda socket: socket.close())
    sockets[0].close()
    expect(page.locator("[data-live]")).to_have_text(re.compile(r"Not updated since \d\d:\d\d"))
