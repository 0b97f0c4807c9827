"""Weight of pages: no script that a page does not need, and little of all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.contrib.staticfiles import finders
from django.test import Client

from apps.fleet.models import Cluster
from tests.apps.pages.html import body

pytestmark = pytest.mark.django_db

MAX_BYTES = 200_000  #: scripts and styles of a page together, uncompressed; htmx alone is 50 kB
_LOADED = re.compile(r'<(?:script[^>]* src|link[^>]* rel="stylesheet"[^>]* href)="/static/([^"?]+)')
_CHARTS = "js/charts.js"


def loaded(client: Client, path: str) -> list[str]:
    response = client.get(path)
    assert response.status_code == 200
    return _LOADED.findall(body(response))


def size_bytes(name: str) -> int:
    found: Any = finders.find(name)
    assert found, name
    return Path(found).stat().st_size


@pytest.mark.parametrize(
    "path", ["", "fleet/", "queries/", "placement/", "admission/", "provisioning/", "sources/", "arrivals/", "reports/"]
)
def test_pages_without_a_chart_load_no_script_for_charts(path: str, browser: Client, cluster: Cluster) -> None:
    names = loaded(browser, f"/c/little/{path}")
    assert "js/ui.js" in names and _CHARTS not in names
    assert sum(map(size_bytes, names)) < MAX_BYTES


@pytest.mark.parametrize("path", ["fleet/nodes/a/", "queries/calm/", "accuracy/", "provisioning/forecast/"])
def test_pages_with_charts_load_little(path: str, browser: Client, cluster: Cluster) -> None:
    names = loaded(browser, f"/c/little/{path}")
    assert _CHARTS in names
    assert sum(map(size_bytes, names)) < MAX_BYTES
