"""Charts and plans in the browser: values under the pointer, a closer look by dragging, a plan made larger."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.apps.contracts.pages import page_address

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def test_chart_tells_values_and_looks_closer(page: Page, world: dict[str, Any]) -> None:
    page.goto(page_address("pages:arrivals-detail", world))
    page.wait_for_load_state("networkidle")  # parts of the page fetch themselves again once they are listened to
    chart = page.locator("figure[data-chart=rate]")
    drawing, reset = chart.locator("svg"), chart.get_by_role("button", name="Show all")
    expect(drawing.locator("g path").first).to_be_visible()
    box = chart.locator("[data-plot]").bounding_box()
    assert box is not None
    middle_y = box["y"] + box["height"] / 2

    def at(share: float) -> float:
        return box["x"] + share * box["width"]

    words = drawing.locator("text").all_text_contents()
    page.mouse.move(at(0.5), middle_y)
    told = [text for text in drawing.locator("text").all_text_contents() if text not in words]
    assert any(text.endswith("/s") for text in told), told
    expect(reset).to_be_hidden()
    page.mouse.down()
    page.mouse.move(at(0.7), middle_y, steps=4)
    page.mouse.up()
    expect(reset).to_be_visible()
    page.mouse.move(at(0.5), box["y"] + box["height"] + 40)
    assert drawing.locator("text").all_text_contents() != words, "a shorter time has other ticks"
    reset.click()
    expect(reset).to_be_hidden()
    page.mouse.move(0, 0)
    assert drawing.locator("text").all_text_contents() == words


def test_plan_fits_its_frame_and_is_made_larger(page: Page, world: dict[str, Any]) -> None:
    page.goto(page_address("pages:query", world))
    page.wait_for_load_state("networkidle")
    plan = page.locator("[data-zoom]")
    drawing = plan.locator("svg.dag")

    def width() -> float:
        box = drawing.bounding_box()
        assert box is not None
        return box["width"]

    fitted = width()
    plan.get_by_role("button", name="Larger").click()
    assert width() == pytest.approx(1.25 * fitted, rel=0.02)
    plan.get_by_role("button", name="Fit").click()
    assert width() == pytest.approx(fitted, rel=0.02)
