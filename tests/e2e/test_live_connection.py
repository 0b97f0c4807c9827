"""When a page asks for itself once more."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, WebSocketRoute

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_a_page_asks_once_more_when_it_is_subscribed(page: Page) -> None:
    sockets: list[WebSocketRoute] = []
    asked: list[str] = []
    page.route_web_socket("**/ws/", lambda socket: sockets.append(socket))
    page.goto("/jobs/")
    page.on("request", lambda request: asked.append(request.url) if "hx-request" in request.headers else None)
    page.wait_for_timeout(1000)
    assert not asked, "an open socket is no subscription"
    with page.expect_request("**/jobs/"):
        sockets[0].send('{"ready": true}')
