"""Control thread: heartbeats, configurations, and the WebSocket over which the console announces them.

The console names a new configuration in its answers to heartbeats and, sooner, over the WebSocket. Nothing depends on
the latter: without the package, the connection or the console, the answers to heartbeats carry the same version.
"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent import VERSION
from agent.config import AgentConfig
from agent.uplink.console import Client, ConsoleAnswer, ConsoleUnreachable, Identity
from agent.wire.heartbeat import REQUEST_ID
from engine.backoff import Backoff
from engine.errors import DocumentError, Fault
from engine.files import replace_file

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

__all__ = ["Control", "PushChannel", "cached_config"]


log = logging.getLogger(__name__)
_quiet = logging.getLogger(f"{__name__}.protocol")
_quiet.setLevel(logging.CRITICAL)  # the end of a connection is logged here, once

_PATH = "/ws/agents/"
_OPEN_S = 15.0
_CLOSE_S = 1.0
_PING_S = 25.0  # a way that is cut without a word is noticed within twice as long
_MIN_ATTEMPT_S, _MAX_ATTEMPT_S = 1.0, 60.0  # between two attempts
_LASTED_S = 30.0  # a connection that held so long was a good one
_REFUSED = (4401, 4403, 4409)  # no such agent, disabled, connected from elsewhere
_MAX_MESSAGE_BYTES = 4096
_CACHE = "config.json"
_REFUSED_PAUSE_S = 15.0
_MAX_PAUSE_S = 10.0
_MIN_PAUSE_S = 0.02  # however often it is asked to
_TOLD_FAULTS = 5


class PushChannel:
    """Thread that keeps one connection to the console. `on_version` is called in it with each announced version.

    Its second argument is the id of the request that the version came of; empty where the console does not say.
    `state` is connected, away, refused, or unavailable (the package `websockets` is not installed).
    """

    def __init__(self, client: Client, on_version: Callable[[int, str], None]) -> None:
        scheme = "wss" if client.url.startswith("https://") else "ws"
        self._url = f"{scheme}://{client.url.partition('://')[2]}{_PATH}"
        self._client = client
        self._told = on_version
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
        backoff = Backoff(_MIN_ATTEMPT_S, _MAX_ATTEMPT_S, spread=0.5)  # many agents do not come back at once
        while not self._stopping.is_set():
            began = time.monotonic()
            self._again.clear()
            self._attempt()
            if self.state == "unavailable" or self._stopping.is_set():
                return
            if time.monotonic() - began >= _LASTED_S:
                backoff.reset()
            if self.state == "refused":
                backoff.exhaust()
            if self._again.wait(backoff.next_s()):
                self._stopping.wait(random.uniform(0.0, _MIN_ATTEMPT_S))

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
            max_size=_MAX_MESSAGE_BYTES,
            max_queue=1,
            logger=_quiet,
        ) as connection:
            self._connection = connection
            if self._stopping.is_set():  # it did not see this connection
                return
            for message in connection:
                self._is("connected", "")
                self._on_message(message)

    def _on_message(self, message: str | bytes) -> None:
        try:
            said = json.loads(message)
            version, request_id = said["config_version"], said.get("request_id", "")
        except (ValueError, KeyError, TypeError, AttributeError):
            return
        if isinstance(version, int):
            self._told(version, request_id if REQUEST_ID.match(str(request_id)) else "")

    def _is(self, state: str, fault: str) -> None:
        if state != self.state:
            log.info("announcements from %s: %s %s", self._url, state, fault)
        self.state = state


class Control:
    """Thread that sends heartbeats and fetches configurations.

    `state` is connected, away (nobody answers), or refused (the secret is not valid, or the agent is disabled or gone).
    A configuration with faults is not taken: the one before stays, and the heartbeat says why.
    """

    def __init__(
        self,
        client: Client,
        identity: Identity,
        state_dir: Path,
        *,
        report: Callable[[], dict[str, Any]],
        progress: Callable[[Mapping[str, Any], Mapping[str, Any], int | None], None],
        post_marker: Callable[[], int | None],
        adopt: Callable[[AgentConfig], None],
    ) -> None:
        self._client = client
        self._identity = identity
        self._cache = state_dir / _CACHE
        self._report, self._progress, self._post_marker, self._adopt = report, progress, post_marker, adopt
        self._stopping = threading.Event()
        self._wakened = threading.Event()
        self._push = PushChannel(client, self._on_version)
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._etag: str | None = None
        self._version: int | None = None  # of the configuration that was fetched last
        self._told: int | None = None  # the version that was named over the WebSocket, until it is fetched
        self._request_id = ""  # of whoever changed it
        self._failures = 0
        self.state = "connecting"
        self.fault = ""
        self.config_faults: list[str] = []

    def start(self) -> None:
        self._thread.start()
        self._push.start()

    @property
    def push_state(self) -> str:
        """State of the push connection, over which the console announces changes."""
        return self._push.state

    def wake(self) -> None:
        """Send a heartbeat now. From any thread."""
        self._wakened.set()

    def stop(self) -> None:
        """Stop with a last heartbeat, if the console answers at once."""
        self._stopping.set()
        self._wakened.set()
        self._push.stop()
        self._thread.join(2.0)
        if self._thread.is_alive():
            return
        if self.state == "connected":
            self._beat()
        self._client.close()

    def _run(self) -> None:
        wait_s = 0.0
        while True:
            self._wakened.wait(wait_s)
            if self._stopping.wait(_MIN_PAUSE_S):
                return
            self._wakened.clear()
            try:
                self._exchange()
            except Exception as error:  # a fault of ours must be seen, and must not end the talk for good
                log.exception("the talk with the console failed")
                self._is("failed", f"{type(error).__name__}: {error}")
            wait_s = self._pause_s()

    def _pause_s(self) -> float:
        if self.state == "refused":
            return _REFUSED_PAUSE_S
        longest_s = max(self._identity.heartbeat_s, _MAX_PAUSE_S)
        return min(self._identity.heartbeat_s * (1 + self._failures // 3), longest_s)

    def _exchange(self) -> None:
        announced, self._told = self._told, None
        request_id, self._request_id = self._request_id, ""
        if self._version is None or announced not in (None, self._version):
            self._fetch(request_id)
        document = self._beat()
        if document is not None and document.get("config_version") != self._version:
            self._fetch()

    def _on_version(self, version: int, request_id: str) -> None:
        """Called by the thread that listens."""
        if version != self._version:
            self._request_id, self._told = request_id, version
            self.wake()

    def _beat(self) -> Mapping[str, Any] | None:
        """One heartbeat; its answer when it was taken."""
        document, since = self._report(), self._post_marker()
        answer = self._ask(lambda: self._client.heartbeat(self._identity.agent, document))
        if answer is None:
            return None
        self._progress(document, answer.document, since)
        return answer.document

    def _fetch(self, request_id: str = "") -> None:
        answer = self._ask(lambda: self._client.config(self._identity.agent, self._etag, request_id))
        if answer is None or answer.status == 304:
            return
        document = answer.document
        try:
            config = _read(document, self._identity.agent)
        except DocumentError as error:
            texts = [str(fault) for fault in error.faults]
            version = document.get("version")
            self.config_faults = [f"configuration {version} is not taken: {fault}" for fault in texts[:_TOLD_FAULTS]]
            if version != self._version:
                log.error("configuration %s is refused; %d faults: %s", version, len(texts), "; ".join(texts[:20]))
            self._version, self._etag = version if isinstance(version, int) else self._version, answer.etag
            return
        self.config_faults = []
        self._etag, self._version = answer.etag, config.version
        if request_id:
            words, facts = "configuration %d comes of request %s", {"request_id": request_id}
            log.info(words, config.version, request_id, extra={"facts": facts})
        self._push.retry()  # it may have been refused until now
        replace_file(self._cache, json.dumps(document).encode())
        self._adopt(config)

    def _ask(self, request: Callable[[], ConsoleAnswer]) -> ConsoleAnswer | None:
        try:
            answer = request()
        except ConsoleUnreachable as away:
            self._is("away", str(away))
            return None
        if answer.status in (200, 304):
            self._is("connected", "")
            return answer
        refused = answer.status in (401, 403, 404)
        self._is("refused" if refused else "away", answer.message)
        return None

    def _is(self, state: str, fault: str) -> None:
        self._failures = 0 if state == "connected" else self._failures + 1
        if state != self.state:
            if state == "connected":
                log.info("connected to %s", self._client.url)
                self._push.retry()
            else:
                log.warning("the console %s: %s", {"away": "is away"}.get(state, "refuses this agent"), fault)
        self.state, self.fault = state, fault


def cached_config(state_dir: Path, agent: str) -> AgentConfig | None:
    """The configuration of the last run, to begin with before the console has answered."""
    try:
        document = json.loads((state_dir / _CACHE).read_text())
        return _read(document, agent)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, DocumentError) as error:
        log.warning("the configuration of the last run cannot be used: %s", error)
        return None


def _read(document: Any, agent: str) -> AgentConfig:
    config = AgentConfig.parse(document)
    if config.agent != agent:
        raise DocumentError(
            [Fault("agent", f"agent is {config.agent!r}; allowed: this one, {agent!r}")], "configuration"
        )
    return config
