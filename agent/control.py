"""The agent's talk with its console: heartbeats, and the configuration when the console names a new one.

It names it in the answers to heartbeats and, without waiting for one, over a WebSocket.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.client import Answer, Away, Client
from agent.config import AgentConfig
from agent.files import write_whole
from agent.identity import Identity
from agent.push import Push
from engine.errors import DocumentError, Fault

__all__ = ["Control", "cached_config"]

log = logging.getLogger(__name__)

_CACHE = "config.json"
_REFUSED_PAUSE_S = 15.0
_LONGEST_PAUSE_S = 10.0
_LEAST_PAUSE_S = 0.02  # however often it is asked to
_TOLD_FAULTS = 5


class Control:
    """A thread that says how the agent is, and hears what it is to do.

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
        quiet: Callable[[], int | None],
        adopt: Callable[[AgentConfig], None],
    ) -> None:
        self._client = client
        self._identity = identity
        self._cache = state_dir / _CACHE
        self._report, self._progress, self._quiet, self._adopt = report, progress, quiet, adopt
        self._stopping = threading.Event()
        self._wakened = threading.Event()
        self._push = Push(client, self._hear_version)
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._etag: str | None = None
        self._version: int | None = None  # of the configuration that was fetched last
        self._told: int | None = None  # the version that was named over the WebSocket, until it is fetched
        self._failures = 0
        self.state = "connecting"
        self.fault = ""
        self.config_faults: list[str] = []

    def start(self) -> None:
        self._thread.start()
        self._push.start()

    @property
    def push_state(self) -> str:
        """Whether the console can say what changed without being asked: the state of `Push`."""
        return self._push.state

    def wake(self) -> None:
        """Talk now instead of at the next heartbeat. From any thread."""
        self._wakened.set()

    def stop(self) -> None:
        """Say goodbye: a last heartbeat, if the console answers at once."""
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
            if self._stopping.wait(_LEAST_PAUSE_S):
                return
            self._wakened.clear()
            try:
                self._talk()
            except Exception as error:  # a fault of ours must be seen, and must not end the talk for good
                log.exception("the talk with the console failed")
                self._is("failed", f"{type(error).__name__}: {error}")
            wait_s = self._pause_s()

    def _pause_s(self) -> float:
        if self.state == "refused":
            return _REFUSED_PAUSE_S
        longest_s = max(self._identity.heartbeat_s, _LONGEST_PAUSE_S)
        return min(self._identity.heartbeat_s * (1 + self._failures // 3), longest_s)

    def _talk(self) -> None:
        told, self._told = self._told, None
        if self._version is None or told not in (None, self._version):
            self._fetch()
        says = self._beat()
        if says is not None and says.get("config_version") != self._version:
            self._fetch()

    def _hear_version(self, version: int) -> None:
        """Called by the thread that listens."""
        if version != self._version:
            self._told = version
            self.wake()

    def _beat(self) -> Mapping[str, Any] | None:
        """One heartbeat; its answer when it was taken."""
        document, since = self._report(), self._quiet()
        answer = self._ask(lambda: self._client.heartbeat(self._identity.agent, document))
        if answer is None:
            return None
        self._progress(document, answer.document, since)
        return answer.document

    def _fetch(self) -> None:
        answer = self._ask(lambda: self._client.config(self._identity.agent, self._etag))
        if answer is None or answer.status == 304:
            return
        document = answer.document
        try:
            config = _read(document, self._identity.agent)
        except DocumentError as error:
            told = [str(fault) for fault in error.faults]
            version = document.get("version")
            self.config_faults = [f"configuration {version} is not taken: {fault}" for fault in told[:_TOLD_FAULTS]]
            if version != self._version:
                log.error("configuration %s is not taken; %d faults: %s", version, len(told), "; ".join(told[:20]))
            self._version, self._etag = version if isinstance(version, int) else self._version, answer.etag
            return
        self.config_faults = []
        self._etag, self._version = answer.etag, config.version
        self._push.retry()  # it may have been refused until now
        write_whole(self._cache, json.dumps(document).encode())
        self._adopt(config)

    def _ask(self, request: Callable[[], Answer]) -> Answer | None:
        try:
            answer = request()
        except Away as away:
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
