"""Help pages: terms and the way to the API."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db


def test_help_explains_terms_and_links_the_api_schema(browser: Client) -> None:
    html = body(browser.get("/help/"))
    for word in ("Admit with changes", "At risk", "Predicted", "Headroom", "Mace"):
        assert word in html
    assert "/api/schema/" in body(browser.get("/help/api/"))
