"""Every page that can be read: nothing serious to say for axe, nothing that lies over something else, nothing cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.apps.contracts.pages import PAGES, page_address
from tests.servers import PATIENCE_S, wait_until
from tests.thoroughness import share_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

_SERIOUS = {"serious", "critical"}
_LAYOUT = Path(__file__).with_name("layout.js").read_text()
#: Answers that are no pages: parts that htmx fetches, and files.
_PARTS = {
    "pages:search-suggestions",
    "pages:query-example",
    "pages:query-operator-row",
    "pages:admission-plan",
    "pages:placement-rule",
    "pages:names",
    "pages:placement-live",
    "pages:placement-standing",
    "pages:agent-budget-preview",
    "pages:incidents-menu",
    "pages:cluster-menu",
    "pages:jobs-menu",
    "pages:job-progress",
    "pages:report-file",
    "pages:evacuation-commands",
}


@pytest.fixture(scope="module")
def wide_page(browser: Browser, signed_in: dict[str, Any]) -> Iterator[Page]:
    """The administrator's, for all of them."""
    context = browser.new_context(**signed_in)
    context.set_default_timeout(PATIENCE_S * 1000)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(
    "name", share_of([name for name, page in PAGES.items() if page.get and name not in _PARTS], every=8)
)
def test_page_is_accessible_and_shows_all_of_itself(name: str, world: dict[str, Any], wide_page: Page) -> None:
    from axe_playwright_python.sync_playwright import Axe

    wide_page.set_viewport_size({"width": 1280, "height": 900})
    answer = wide_page.goto(page_address(name, world))
    assert answer is not None and answer.status == 200
    found = Axe().run(wide_page, options={"resultTypes": ["violations"]}).response["violations"]
    assert [(row["id"], row["nodes"][0]["html"]) for row in found if row["impact"] in _SERIOUS] == []
    assert wide_page.evaluate(_LAYOUT) == []
    wide_page.set_viewport_size({"width": 390, "height": 844})
    faults: list[str] = []

    def is_sound() -> bool:
        faults[:] = wide_page.evaluate(_LAYOUT)
        return not faults

    with suppress(AssertionError):  # charts draw themselves again for the new width
        wait_until(is_sound, 5)
    assert faults == []
