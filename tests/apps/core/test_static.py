"""Static files from the ASGI server: whole, in parts, unchanged; without the warning that Django has for others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import AsyncClient, Client

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
def test_nothing_else_is_served(client: Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.django_db
def test_the_same_file_without_asgi(client: Client) -> None:
    response = client.get(PATH)
    assert b"".join(response.streaming_content) == CONTENT
    response.close()
