"""Bodies over raw sockets to a real server: every one counts however it is framed, and none is read too far."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.installation import PASSWORD, Api, Installation
from tests.servers import PATIENCE_S


@dataclass(frozen=True)
class Answer:
    """An answer as it came over the socket."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def exchange(console: Installation, parts: Iterable[bytes]) -> Answer:
    """Send bytes as they are and read one answer. A server that has heard enough may stop listening."""
    with socket.create_connection(("127.0.0.1", console.port), timeout=PATIENCE_S) as connection:
        for part in parts:
            try:
                connection.sendall(part)
            except (BrokenPipeError, ConnectionResetError):
                break
        received = b""
        while chunk := _receive(connection):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return Answer(int(first.split()[1]), headers, body)


def _receive(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except ConnectionResetError:
        return b""


def head_of(method: str, path: str, token: str = "", **headers: str) -> bytes:
    named = {"Host": "localhost", "Connection": "close", "Content-Type": "application/json"}
    named |= {"Authorization": f"Bearer {token}"} if token else {}
    named |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def chunks_of(body: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    yield b"0\r\n\r\n"


def send(
    console: Installation, framing: str, method: str, path: str, body: bytes, token: str = "", **headers: str
) -> Answer:
    """`framing` is `length`, or the size of chunks."""
    if framing == "length":
        return exchange(console, [head_of(method, path, token, Content_Length=str(len(body)), **headers), body])
    head = head_of(method, path, token, Transfer_Encoding="chunked", **headers)
    return exchange(console, [head, *chunks_of(body, int(framing))])


every_framing = pytest.mark.parametrize("framing", ["length", "7", "65536"])


@pytest.fixture(scope="module")
def cluster(api: Api) -> str:
    api.post("clusters", {"slug": "framed", "name": "Framed", "subinterval_s": 60})
    return "framed"


@every_framing
def test_patch_changes_what_its_body_says(console: Installation, api: Api, cluster: str, framing: str) -> None:
    body = json.dumps({"name": f"sent in {framing}"}).encode()
    answer = send(console, framing, "PATCH", f"/api/v1/clusters/{cluster}", body, console.token)
    assert answer.status == 200 and answer.json()["name"] == f"sent in {framing}"
    assert api.get(f"clusters/{cluster}")["name"] == f"sent in {framing}"


@every_framing
def test_optional_body_is_read(console: Installation, cluster: str, framing: str) -> None:
    """An unknown field of a body that may be left out is refused; an empty body would have been taken."""
    body = json.dumps({"cluster": cluster, "unheard_of": 1}).encode()
    answer = send(console, framing, "POST", "/api/v1/estimates", body, console.token)
    assert answer.status == 400 and "unheard_of" in answer.body.decode()


@every_framing
def test_sign_in_form_is_read(console: Installation, framing: str) -> None:
    form = send(console, "length", "GET", "/login/", b"")
    cookie = form.headers["set-cookie"].split(";")[0]
    mark = b'name="csrfmiddlewaretoken" value="'
    token = form.body.split(mark)[1].split(b'"')[0].decode()
    body = f"csrfmiddlewaretoken={token}&username=admin&password={PASSWORD.replace(' ', '+')}".encode()
    headers = {"Cookie": cookie, "Content_Type": "application/x-www-form-urlencoded", "Origin": "http://localhost"}
    answer = send(console, framing, "POST", "/login/", body, **headers)
    assert answer.status == 302, answer.body


@every_framing
def test_file_of_a_form_is_read(console: Installation, framing: str) -> None:
    file = b"period,count\n2026-01-01 00:00:00,5\n2026-01-01 00:01:00,7\n" * 5_000
    body = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n' + file + b"\r\n--x--\r\n"
    kind = "multipart/form-data; boundary=x"
    answer = send(console, framing, "POST", "/api/v1/arrivals/inspect", body, console.token, Content_Type=kind)
    assert answer.status == 200 and answer.json()["key"], answer.body


@every_framing
def test_frames_are_read(console: Installation, framing: str) -> None:
    """Bytes that are no frames are refused as such; without a body there would be nothing to refuse."""
    kind = "application/vnd.sluice.frames"
    path = "/api/v1/stream-processor/frames"
    answer = send(console, framing, "POST", path, b"no frame at all", console.token, Content_Type=kind)
    assert answer.status in {400, 403}
    if answer.status == 400:
        assert answer.json()["code"] == "corrupt", answer.body


@pytest.mark.parametrize("framing", ["length", "65536"])
@pytest.mark.parametrize(
    ("path", "token", "status", "code"),
    [
        ("/api/v1/agents/enrol", "", 413, "too_large"),
        ("/api/v1/estimates", "", 401, "not_authenticated"),
        ("/api/v1/estimates", "slu_wrong", 401, "not_authenticated"),
        ("/api/v1/telemetry/batches", "sla_wrong", 401, "agent_unknown"),
        ("/api/v1/nothing/here", "", 413, "too_large"),
    ],
)
def test_long_body_of_a_stranger_is_refused_unread(
    console: Installation, framing: str, path: str, token: str, status: int, code: str
) -> None:
    body = b'{"token": "sle_no", "x": [' + b"1," * 1_000_000 + b"1]}"
    answer = send(console, framing, "POST", path, body, token)
    assert (answer.status, answer.json()["code"]) == (status, code)


@pytest.mark.parametrize("framing", ["length", "65536"])
def test_long_form_of_a_stranger_is_refused_unread(console: Installation, framing: str) -> None:
    answer = send(console, framing, "POST", "/login/", b"username=" + b"x" * 1_000_000)
    assert answer.status == 413 and b"at most 65,536 bytes" in answer.body
    answer = send(console, framing, "POST", "/c/any/arrivals/-/upload/", b"x" * 1_000_000)
    assert answer.status in {401, 413}


@pytest.mark.parametrize("framing", ["length", "65536"])
def test_body_over_the_size_of_its_endpoint_is_refused(console: Installation, cluster: str, framing: str) -> None:
    body = json.dumps({"name": "x" * 1_100_000}).encode()
    answer = send(console, framing, "PATCH", f"/api/v1/clusters/{cluster}", body, console.token)
    assert (answer.status, answer.json()["code"]) == (413, "too_large")
    assert "1.1 MB; at most 1 MB" in answer.json()["detail"]


def test_stranger_is_told_before_the_body_has_come(console: Installation) -> None:
    """A sender that waits for a word to send its 15 MB gets the refusal instead."""
    head = head_of("POST", "/api/v1/estimates", "slu_wrong", Content_Length="15000000", Expect="100-continue")
    with socket.create_connection(("127.0.0.1", console.port), timeout=PATIENCE_S) as connection:
        connection.sendall(head)
        received = b""
        while chunk := connection.recv(1 << 16):
            received += chunk
    assert b" 401 " in received.split(b"\r\n")[0]


@pytest.mark.parametrize(
    "path",
    ["/api/v1/clusters/a%00b", "/api/v1/clusters?name=a%00b", "/c/a%00b/", "/api/v1/pipelines/%00", "/?%00=1"],
)
def test_zero_character_in_an_address_is_refused(console: Installation, path: str) -> None:
    answer = exchange(console, [head_of("GET", path, console.token)])
    assert answer.status == 400 and b"zero character" in answer.body


def test_zero_character_in_a_cookie_is_refused(console: Installation) -> None:
    answer = exchange(console, [head_of("GET", "/", Cookie='sessionid="\\000aaaaaaaaaaaaaaaa"')])
    assert answer.status == 400 and b"zero character" in answer.body


@pytest.mark.parametrize("path", ["/api/v1/clusters?name=%FF", "/api/v1/clusters?name=\xff", "/c/%FF/", "/\xff"])
def test_bytes_that_are_no_text_are_an_answer(console: Installation, path: str) -> None:
    request = head_of("GET", "/PATH", console.token).replace(b"/PATH", path.encode("latin-1"))
    assert exchange(console, [request]).status in {200, 302, 400, 404}
