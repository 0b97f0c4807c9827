"""The console tells its agents over a WebSocket that their configuration changed: they need not wait for a heartbeat.

Nothing depends on it: without the package, the way or the console, the answers to heartbeats say the same.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agent.client import Client
from agent.version import VERSION

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["Push"]

log = logging.getLogger(__name__)
_quiet = logging.getLogger(f"{__name__}.protocol")
_quiet.setLevel(logging.CRITICAL)  # what ends a connection is said here, once

_PATH = "/ws/agents/"
_OPEN_S = 15.0
_CLOSE_S = 1.0
_PING_S = 25.0  # a way that is cut without a word is noticed within twice as long
_SHORTEST_S, _LONGEST_S = 1.0, 60.0  # between two attempts
_LASTED_S = 30.0  # a connection that held so long was a good one
_REFUSED = (4401, 4403, 4409)  # no such agent, disabled, connected from elsewhere
_MOST_MESSAGE_BYTES = 4096


class Push:
    """A thread that keeps one connection to the console. `told` is called in it with each version that it hears of.

    `state` is connected, away, refused, or unavailable (the package `websockets` is not installed).
    """

    def __init__(self, client: Client, told: Callable[[int], None]) -> None:
        scheme = "wss" if client.url.startswith("https://") else "ws"
        self._url = f"{scheme}://{client.url.partition('://')[2]}{_PATH}"
        self._client = client
        self._told = told
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._connection: ClientConnection | None = None
        self._thread = threading.Thread(target=self._run, name="push", daemon=True)
        self.state = "away"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._again.set()
        connection = self._connection
        if connection is not None:
            connection.close()
        if self._thread.is_alive():
            self._thread.join(2 * _CLOSE_S)

    def retry(self) -> None:
        """The console answers again: try soon, not after the pause."""
        if self.state != "connected":
            self._again.set()

    def _run(self) -> None:
        pause_s = _SHORTEST_S
        while not self._stopping.is_set():
            began = time.monotonic()
            self._again.clear()
            self._attempt()
            if self.state == "unavailable" or self._stopping.is_set():
                return
            lasted = time.monotonic() - began >= _LASTED_S
            pause_s = _LONGEST_S if self.state == "refused" else _SHORTEST_S if lasted else pause_s
            if self._again.wait(pause_s * random.uniform(0.5, 1.5)):  # many agents do not come back at once
                self._stopping.wait(random.uniform(0.0, _SHORTEST_S))
            pause_s = min(2 * pause_s, _LONGEST_S)

    def _attempt(self) -> None:
        """One connection, from its beginning to its end."""
        try:
            from websockets.exceptions import ConnectionClosed, WebSocketException
        except ImportError:
            self._is("unavailable", "the package websockets is not installed; heartbeats say the same, later")
            return
        try:
            self._listen()
            self._is("away", "closed")
        except ConnectionClosed as closed:
            code = closed.rcvd.code if closed.rcvd is not None else None
            self._is("refused" if code in _REFUSED else "away", str(closed))
        except (OSError, WebSocketException) as error:
            self._is("away", f"{error or type(error).__name__}")
        except Exception as error:  # a fault of ours must be seen, and must not end the listening for good
            log.exception("listening to the console failed")
            self._is("away", type(error).__name__)
        finally:
            self._connection = None

    def _listen(self) -> None:
        from websockets.sync.client import connect

        with connect(
            self._url,
            ssl=self._client.context,
            additional_headers={"Authorization": f"Bearer {self._client.secret}"},
            user_agent_header=f"sluice-agent/{VERSION}",
            compression=None,
            proxy=None,  # as the other requests of the agent
            open_timeout=_OPEN_S,
            close_timeout=_CLOSE_S,
            ping_interval=_PING_S,
            ping_timeout=_PING_S,
            max_size=_MOST_MESSAGE_BYTES,
            max_queue=1,
            logger=_quiet,
        ) as connection:
            self._connection = connection
            if self._stopping.is_set():  # it did not see this connection
                return
            for message in connection:
                self._is("connected", "")
                self._hear(message)

    def _hear(self, message: str | bytes) -> None:
        try:
            version = json.loads(message)["config_version"]
        except (ValueError, KeyError, TypeError):
            return
        if isinstance(version, int):
            self._told(version)

    def _is(self, state: str, fault: str) -> None:
        if state != self.state:
            log.info("told of changes by %s: %s %s", self._url, state, fault)
        self.state = state
