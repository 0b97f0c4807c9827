"""The access log: a line of key=value pairs for every request, whatever became of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import AsyncClient, Client


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
    assert (good["method"], good["route"], good["path"], good["status"]) == ("GET", "signin:login", "/login/", "200")
    assert float(good["ms"]) > 0
    assert int(good["bytes"]) > 100
    assert (odd["route"], odd["path"], odd["status"]) == ("-", "/no%20such/p%C3%A4ge%3D1/", "404")
    assert "slu_secret" not in str(secret)


PATH = "/static/css/ui.css"
CONTENT = (Path(settings.BASE_DIR) / "static" / "css" / "ui.css").read_bytes()


async def body(response: Any) -> bytes:
    found = b"".join([piece async for piece in response])
    response.close()
    return found


async def test_a_file_arrives_whole() -> None:
    response = await AsyncClient().get(PATH)
    assert response.status_code == 200 and response["Content-Type"].startswith("text/css")
    assert await body(response) == CONTENT


async def test_a_part_of_a_file_and_a_file_that_is_known() -> None:
    part = await AsyncClient().get(PATH, headers={"Range": "bytes=10-19"})
    assert part.status_code == 206 and await body(part) == CONTENT[10:20]
    known = await AsyncClient().get(PATH, headers={"If-None-Match": part["ETag"]})
    assert known.status_code == 304
    assert (await AsyncClient().head(PATH))["Content-Length"] == str(len(CONTENT))


@pytest.mark.django_db  # a request closes what connections are there
@pytest.mark.parametrize("path", ["/static/../manage.py", "/static/%2e%2e/manage.py", "/static//etc/passwd"])
def test_files_outside_static_are_not_served(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.django_db
def test_the_same_file_without_asgi(client: Client) -> None:
    response = client.get(PATH)
    assert b"".join(response.streaming_content) == CONTENT
    response.close()
