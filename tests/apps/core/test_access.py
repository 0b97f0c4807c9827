"""The access log: a line of key=value pairs for every request, whatever became of it."""

from __future__ import annotations

import logging

import pytest
from django.conf import settings
from django.test import Client


def _written(client: Client, *paths: str) -> list[dict[str, str]]:
    before = settings.ACCESS_LOG.stat().st_size if settings.ACCESS_LOG.exists() else 0
    for path in paths:
        client.get(path)
    for handler in logging.getLogger("sluice.access").handlers:
        handler.flush()
    lines = settings.ACCESS_LOG.read_bytes()[before:].decode().splitlines()
    return [dict(pair.split("=", 1) for pair in line.split(" ")) for line in lines]


@pytest.mark.django_db
def test_each_request_has_its_line(client: Client) -> None:
    good, odd, secret = _written(client, "/login/", "/no such/päge=1/", "/login/?token=slu_secret")
    assert (good["method"], good["route"], good["path"], good["status"]) == ("GET", "accounts:login", "/login/", "200")
    assert float(good["ms"]) > 0
    assert int(good["bytes"]) > 100
    assert (odd["route"], odd["path"], odd["status"]) == ("-", "/no%20such/p%C3%A4ge%3D1/", "404")
    assert "slu_secret" not in str(secret)
