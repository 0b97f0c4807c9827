"""The connection over which the console says that a configuration changed, with a real WebSocket server at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import Server, ServerConnection, serve

from agent.uplink import control
from agent.uplink.console import Client
from agent.uplink.control import PushChannel
from launcher.places import free_port
from tests.servers import PATIENCE_S, wait_until

SECRET = "sla_mine"


class Console:
    """A WebSocket server; `greet` is called with each connection, which then stays until the server says otherwise."""

    def __init__(self, greet: Callable[[ServerConnection], None]) -> None:
        self.port = free_port()
        self.greet = greet
        self.connections: list[ServerConnection] = []
        self._server: Server | None = None

    def start(self) -> None:
        self._server = serve(self._handle, "127.0.0.1", self.port)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self, code: int = 1012) -> None:
        if self._server is not None:
            self._server.shutdown()
        for connection in self.connections:
            connection.close(code)

    def _handle(self, connection: ServerConnection) -> None:
        self.connections.append(connection)
        self.greet(connection)
        with pytest.raises(ConnectionClosed):
            connection.recv()


@pytest.fixture
def console() -> Iterator[Console]:
    made = Console(lambda connection: connection.send('{"config_version": 1}'))
    made.start()
    yield made
    made.stop()


@pytest.fixture
def listening() -> Iterator[Callable[[str], tuple[PushChannel, list[int]]]]:
    made: list[PushChannel] = []

    def listen(url: str) -> tuple[PushChannel, list[int]]:
        told: list[int] = []
        made.append(PushChannel(Client(url, secret=SECRET), lambda version, _: told.append(version)))
        made[-1].start()
        return made[-1], told

    yield listen
    for one in made:
        one.stop()
        assert not one._thread.is_alive()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_MIN_ATTEMPT_S", 0.05)


def test_push_receives_versions_with_the_secret_under_the_consoles_address(console: Console, listening) -> None:
    agent, told = listening(f"http://127.0.0.1:{console.port}/sluice/")
    wait_until(lambda: told == [1], what="the version on connecting")
    (connection,) = console.connections
    assert connection.request is not None
    assert (connection.request.path, connection.request.headers["Authorization"]) == (
        "/sluice/ws/agents/",
        f"Bearer {SECRET}",
    )
    for odd in ("{", "[]", '"7"', '{"config_version": "2"}', '{"else": 1}', b"\xff\x00", '{"config_version": 2}'):
        connection.send(odd)
    wait_until(lambda: told == [1, 2], what="the next version, after what is not understood")
    assert agent.state == "connected"


@pytest.mark.parametrize("code", [1000, 1001, 1012])
def test_push_reconnects_when_the_console_is_back(console: Console, listening, code: int) -> None:
    agent, told = listening(f"http://127.0.0.1:{console.port}")
    wait_until(lambda: told == [1], what="the first version")
    console.stop(code)
    wait_until(lambda: agent.state == "away", what="noticing that the console went")
    time.sleep(0.3)  # attempts that fail
    console.start()
    wait_until(lambda: told == [1, 1], what="the version after coming back")


@pytest.mark.parametrize("code", [4401, 4403, 4409])
def test_refused_push_waits_long_unless_heartbeats_are_answered_again(console: Console, listening, code: int) -> None:
    greet = console.greet
    console.greet = lambda connection: connection.close(code)
    agent, told = listening(f"http://127.0.0.1:{console.port}")
    wait_until(lambda: agent.state == "refused", what="being refused")
    time.sleep(0.3)
    assert len(console.connections) == 1
    console.greet = greet
    agent.retry()
    wait_until(lambda: told == [1], what="the version after the second attempt")


def test_internal_fault_does_not_end_the_thread(console: Console, listening) -> None:
    agent, told = listening(f"http://127.0.0.1:{console.port}")
    wait_until(lambda: told == [1], what="the first version")
    hear, agent._told = agent._told, lambda version, _: told.index(-version)
    console.connections[0].send('{"config_version": 2}')
    wait_until(lambda: agent.state == "away", what="the end of this connection")
    agent._told = hear
    wait_until(lambda: told == [1, 1], what="the version on the next connection")


def test_foreign_server_counts_as_an_absent_console(listening) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *args: object) -> None:
            pass

    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    agent, told = listening(f"http://127.0.0.1:{server.server_port}")
    wait_until(lambda: len(asked) > 1, what="a second attempt")
    server.shutdown()
    server.server_close()
    assert (agent.state, told) == ("away", [])


def test_silently_cut_connection_is_noticed_by_the_ping(
    console: Console, listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "_PING_S", 0.2)
    _, told = listening(f"http://127.0.0.1:{console.port}")
    wait_until(lambda: told == [1], what="the first version")
    (connection,) = console.connections
    with connection.protocol_mutex:  # from here on the other end answers nothing
        wait_until(lambda: len(told) > 1, what="another connection after the silence")
    assert set(told) == {1}


def test_without_websockets_heartbeats_carry_the_version(listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "websockets.exceptions", None)
    agent, _ = listening("http://127.0.0.1:1")
    agent._thread.join(PATIENCE_S)
    assert agent.state == "unavailable"
    agent.retry()


def test_stopping_does_not_wait_for_the_pause(listening, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "_MIN_ATTEMPT_S", 1000.0)
    agent, _ = listening("http://127.0.0.1:1")
    wait_until(lambda: agent.state == "away" and agent._connection is None, what="the first attempt")
    agent.stop()
    assert not agent._thread.is_alive()
