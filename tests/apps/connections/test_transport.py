"""Questions to engines: only to addresses that may be asked, and every useless answer in clear words."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from apps.connections import transport
from apps.connections.transport import EngineAway, EngineClient, EngineRefused, PathMissing, ca_faults, url_faults
from tests.apps.connections.engine_server import EngineServer, Reply, own_certificate, serve_engine


def refusal_of(engine: EngineServer, path: str = "/overview", **options: Any) -> EngineRefused:
    with EngineClient(engine.url, **options) as client, pytest.raises(EngineRefused) as refused:
        client.get_json(path)
    return refused.value


def test_answer_is_read_and_counted(engine: EngineServer) -> None:
    engine.replies["/overview"] = Reply({"flink-version": "2.3.0"})
    with EngineClient(engine.url + "/", token="t0ken") as client:
        assert client.get_json("/overview") == {"flink-version": "2.3.0"}
        assert client.get_json("/overview") == {"flink-version": "2.3.0"}
        assert client.requests == 2 and client.bytes == 2 * len(b'{"flink-version": "2.3.0"}') and client.seconds > 0
    assert engine.headers[0]["Authorization"] == "Bearer t0ken"
    assert engine.headers[0]["Host"] == engine.url.removeprefix("http://")


def test_nan_and_infinity_are_texts(engine: EngineServer) -> None:
    engine.replies["/x"] = Reply(b'{"busy": NaN, "rate": Infinity, "low": -Infinity, "said": "NaN"}')
    with EngineClient(engine.url) as client:
        assert client.get_json("/x") == {"busy": "NaN", "rate": "Infinity", "low": "-Infinity", "said": "NaN"}


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (Reply(b"<!DOCTYPE html><title>Sign in</title>", kind="text/html"), "html", "page of a proxy or of a login"),
        (Reply(b"<html>", kind="application/json"), "html", "HTML"),
        (Reply({}, 401), "unauthorised", "wants a token"),
        (Reply({}, 403), "forbidden", "403"),
        (Reply(b"hello"), "not_json", "hello"),
        (Reply(b""), "not_json", "with nothing"),
        (Reply(b'{"jobs": [{"jid":'), "not_json", "broken or ends too early"),
        (Reply(b"[" * 200_000), "not_json", "broken"),
        (Reply({}, 302, headers={"Location": "http://169.254.169.254/latest"}), "redirect", "another host"),
        (Reply({}, 302, headers={"Location": "http://[::1"}), "redirect", "is no address"),
        (Reply({}, 307, headers={"Location": "/overview"}), "redirect", "more than 3 times"),
        (Reply({}, 418), "wrong_answer", "418"),
        (Reply(b"x", headers={"Content-Encoding": "gzip"}), "wrong_answer", "gzip"),
    ],
)
def test_useless_answer_is_refused_in_clear_words(engine: EngineServer, reply: Reply, code: str, words: str) -> None:
    engine.replies["/overview"] = reply
    refused = refusal_of(engine)
    assert refused.code == code and words in str(refused)


def test_redirect_within_the_host_is_followed(engine: EngineServer) -> None:
    engine.replies["/overview"] = Reply({}, 308, headers={"Location": "/v1/overview"})
    engine.replies["/v1/overview"] = Reply({"taskmanagers": 1})
    with EngineClient(engine.url) as client:
        assert client.get_json("/overview") == {"taskmanagers": 1}


def test_unknown_path_keeps_the_words_of_the_engine(engine: EngineServer) -> None:
    engine.replies["/long"] = Reply({"errors": ["Unable to load requested file /bad-request."]}, 404)
    with EngineClient(engine.url) as client:
        with pytest.raises(PathMissing, match="longer than the engine takes") as missing:
            client.get_json("/long")
        assert missing.value.answer == {"errors": ["Unable to load requested file /bad-request."]}
        with pytest.raises(PathMissing, match="Not found"):
            client.get_json("/jobs/0")


def test_half_an_answer_is_an_engine_away(engine: EngineServer) -> None:
    engine.replies["/overview"] = Reply({"jobs": ["x" * 1000]}, cut=True)
    with EngineClient(engine.url) as client, pytest.raises(EngineAway, match="broke off"):
        client.get_json("/overview")


def test_answer_that_drips_is_cut_off(engine: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_DURATION_S", 0.3)
    engine.replies["/first"] = Reply({})
    engine.replies["/overview"] = Reply(b"[" + b" " * 10_000 + b"]", pause_s=0.05)
    with EngineClient(engine.url) as client:
        client.get_json("/first")  # the connection is kept and used again
        with pytest.raises(EngineAway, match=r"longer than 0\.3 s"):
            client.get_json("/overview")


def test_large_answer_is_refused(engine: EngineServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_ANSWER_BYTES", 1000)
    engine.replies["/overview"] = Reply(["x" * 2000])
    assert refusal_of(engine).code == "too_large"


def test_engine_that_is_down_is_away(engine: EngineServer) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with EngineClient(f"http://127.0.0.1:{port}") as client, pytest.raises(EngineAway, match="does not answer"):
        client.get_json("/overview")
    engine.replies["/overview"] = Reply({}, 503)
    with EngineClient(engine.url) as client, pytest.raises(EngineAway, match="503"):
        client.get_json("/overview")


def test_private_address_is_refused_unless_it_is_listed(engine: EngineServer, settings: Any) -> None:
    engine.replies["/overview"] = Reply({})
    settings.CONNECT_HOSTS = []
    refused = refusal_of(engine)
    assert refused.code == "private_address" and "SLUICE_CONNECT_HOSTS" in str(refused)
    port = engine.url.rpartition(":")[2]
    with EngineClient(f"http://localhost:{port}") as client, pytest.raises(EngineRefused, match="private network"):
        client.get_json("/overview")
    settings.CONNECT_HOSTS = ["localhost"]
    with EngineClient(f"http://localhost:{port}") as client:
        assert client.get_json("/overview") == {}
    assert engine.asked == ["/overview"]


def test_name_is_looked_up_once_for_check_and_connection(
    engine: EngineServer, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that leads elsewhere the second time does not get around the check."""
    looked_up: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: Any, *arguments: Any, **options: Any) -> Any:
        if host == "engine.example":
            looked_up.append(host)
            return real("8.8.8.8" if len(looked_up) == 1 else "127.0.0.1", *arguments, **options)
        return real(host, *arguments, **options)

    connected: list[Any] = []

    def connect(address: Any, *arguments: Any, **options: Any) -> socket.socket:
        connected.append(address)
        raise OSError("no network in tests")

    settings.CONNECT_HOSTS = []
    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    monkeypatch.setattr(socket, "create_connection", connect)
    port = int(engine.url.rpartition(":")[2])
    with EngineClient(f"http://engine.example:{port}") as client, pytest.raises(EngineAway):
        client.get_json("/overview")
    assert connected == [("8.8.8.8", port)] and len(looked_up) == 1


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8081",
        "http://10.0.0.7",
        "http://169.254.169.254/latest",
        "http://[::1]:8081",
        "http://[::ffff:10.0.0.1]",
        "http://0.0.0.0:1",
        "ftp://engine",
        "engine:8081",
        "http://user:secret@engine",
        "http://engine/?a=1",
        "http://engine:99999",
        "",
        None,
    ],
)
def test_url_that_may_not_be_asked_is_a_fault(url: Any, settings: Any) -> None:
    settings.CONNECT_HOSTS = []
    assert [fault.path for fault in url_faults(url, "url")] == ["url"]
    assert url_faults("https://engine.example/flink/v1", "url") == []


def test_certificate_must_be_signed_by_whom_one_trusts(settings: Any, tmp_path: Path) -> None:
    settings.CONNECT_HOSTS = ["127.0.0.0/8", "::1"]
    path = own_certificate(tmp_path)
    pem = path.read_text().partition("-----BEGIN PRIVATE")[0]
    with serve_engine(path) as engine:
        engine.replies["/overview"] = Reply({})
        refused = refusal_of(engine)
        assert refused.code == "tls" and "not trusted" in str(refused)
        named = engine.url.replace("127.0.0.1", "localhost")
        for url in (engine.url, named):
            with EngineClient(url, ca_pem=pem) as client:
                assert client.get_json("/overview") == {}
        with EngineClient(engine.url, verify_tls=False) as client:
            assert client.get_json("/overview") == {}
        engine.url = engine.url.replace("https:", "http:")
        with EngineClient(engine.url) as client, pytest.raises((EngineAway, EngineRefused)):
            client.get_json("/overview")


def test_https_to_a_server_without_tls_is_refused(engine: EngineServer) -> None:
    engine.url = engine.url.replace("http:", "https:")
    assert refusal_of(engine).code == "tls"


def test_faulty_certificates_are_told() -> None:
    for text in ("not a certificate", "é", "-----BEGIN CERTIFICATE-----\nÄÖÜ\n-----END CERTIFICATE-----", "\0"):
        assert [fault.path for fault in ca_faults(text)] == ["ca_pem"], text
    assert ca_faults("") == []
