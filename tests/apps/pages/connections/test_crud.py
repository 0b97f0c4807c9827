"""Connections: inherited tests of the pages that create, change and delete one."""

from __future__ import annotations

from apps.connections.models import Connection
from tests.apps.pages.crud import CrudTests

_ROOT = "/c/little/connections/"


class TestConnectionCrud(CrudTests):
    model = Connection
    create_url = f"{_ROOT}new/"
    change_url = f"{_ROOT}{{pk}}/edit/"
    delete_url = f"{_ROOT}{{pk}}/delete/"
    key = {"name": "shop"}
    valid = {"engine": "flink", "url": "https://flink.example.org", "name": "shop", "poll_interval_s": "15"}
    changed = {"poll_interval_s": 30.0, "latency_metric": "resultLatency_p99"}
    invalid = {"url": "ftp://flink.example.org"}
