"""Console or relay as an agent meets it: an HTTP client of one connection, and enrolment with it."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from agent import VERSION
from agent.settings import AgentSettings
from engine.backoff import Backoff
from engine.files import replace_file

__all__ = [
    "Client",
    "ConsoleAnswer",
    "ConsoleUnreachable",
    "EnrolmentRefused",
    "Identity",
    "enrol",
    "wait_for_enrolment",
]

_TIMEOUT_S = 15.0
_MAX_ANSWER_BYTES = 64 * 2**20


class ConsoleUnreachable(Exception):
    """No answer, or one that is not the console's."""


@dataclass(frozen=True)
class ConsoleAnswer:
    """An answer: status, document, and the pause it asks for."""

    status: int
    document: Mapping[str, Any] = field(default_factory=dict)
    retry_after_s: float | None = None
    etag: str | None = None

    @property
    def message(self) -> str:
        """Why not, in the console's words."""
        faults = self.document.get("faults") or []
        message = str(self.document.get("detail") or f"status {self.status}")
        texts = [
            f"{fault.get('path', '')}: {fault.get('message', '')}" for fault in faults[:5] if isinstance(fault, Mapping)
        ]
        return "; ".join([message, *texts])


class Client:
    """Requests to one console or relay."""

    def __init__(self, url: str, *, secret: str = "", ca_file: str | None = None) -> None:
        self.url = url.rstrip("/")
        self.secret = secret
        self._parts = urlsplit(self.url)
        self.context = _trusting(ca_file) if self._parts.scheme == "https" else None
        self._connection: http.client.HTTPConnection | None = None

    def enrol(self, document: Mapping[str, Any]) -> ConsoleAnswer:
        return self._send("POST", "/api/v1/agents/enrol", document)

    def heartbeat(self, agent: str, document: Mapping[str, Any]) -> ConsoleAnswer:
        return self._send("POST", f"/api/v1/agents/{agent}/heartbeat", document)

    def config(self, agent: str, etag: str | None, request_id: str = "") -> ConsoleAnswer:
        """The configuration; status 304 when it is still the one that the etag names.

        The console's lines of it name the request that the configuration comes of, if that is known.
        """
        headers = {"If-None-Match": etag} if etag else {}
        if request_id:
            headers["X-Request-ID"] = request_id
        return self._send("GET", f"/api/v1/agents/{agent}/config", headers=headers)

    def frames(self, data: bytes) -> ConsoleAnswer:
        return self._send("POST", "/api/v1/telemetry/batches", data)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None, headers: Mapping[str, str] = {}
    ) -> ConsoleAnswer:
        sent = {"Accept": "application/json", "User-Agent": f"sluice-agent/{VERSION}", **headers}
        if self.secret:
            sent["Authorization"] = f"Bearer {self.secret}"
        data: bytes | None = None
        if isinstance(body, bytes):
            data, sent["Content-Type"] = body, "application/vnd.sluice.frames"
        elif body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        return self._exchange(method, self._parts.path + path, data, sent)

    def _exchange(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> ConsoleAnswer:
        """A kept connection may have been closed by the other side meanwhile: then once more on a new one.

        Whatever is asked may be asked twice: frames are numbered, the rest only reads or replaces.
        """
        kept = self._connection is not None
        try:
            return self._once(method, path, data, headers)
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
            self.close()
            if not kept:
                raise ConsoleUnreachable(f"{self.url} hung up: {error}") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConsoleUnreachable(f"{self.url} does not answer: {error or type(error).__name__}") from error
        try:
            return self._once(method, path, data, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConsoleUnreachable(f"{self.url} does not answer: {error or type(error).__name__}") from error

    def _once(self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]) -> ConsoleAnswer:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, path, body=data, headers=dict(headers))
        answer = self._connection.getresponse()
        text = answer.read(_MAX_ANSWER_BYTES)
        if answer.length:  # cut off, or too long; http.client says so only where everything is read
            raise http.client.IncompleteRead(text, answer.length)
        if answer.will_close:
            self.close()
        return ConsoleAnswer(answer.status, _document(text), _retry_after(answer), answer.getheader("ETag"))

    def _connect(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self.context is not None:
            return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=self.context)
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    """The system's certificates, and those of a file."""
    context = ssl.create_default_context()
    if ca_file is not None:
        context.load_verify_locations(ca_file)
    return context


def _document(text: bytes) -> Mapping[str, Any]:
    with contextlib.suppress(ValueError):
        document = json.loads(text)
        if isinstance(document, dict):
            return document
    return {}


def _retry_after(answer: http.client.HTTPResponse) -> float | None:
    try:
        return max(float(answer.getheader("Retry-After") or ""), 0.0)
    except ValueError:  # none, or a date, which the console does not send
        return None


log = logging.getLogger(__name__)

_FILE = "identity.json"
_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.5, 15.0
_DEFAULT_CPS = 2.5e9  # where the processor's clock rate is unknown


class EnrolmentRefused(Exception):
    """The console does not want this agent, and trying again would not change that."""


@dataclass(frozen=True)
class Identity:
    """Id and secret of this agent at the console."""

    agent: str
    secret: str
    cluster: str
    heartbeat_s: float = 2.0


def known_identity(settings: AgentSettings) -> Identity | None:
    """The identity of an earlier enrolment, or the settings' own."""
    if settings.secret:
        return Identity(settings.agent, settings.secret, "")
    try:
        return Identity(**json.loads((settings.state_dir / _FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def wait_for_enrolment(settings: AgentSettings, stopping: threading.Event) -> Identity | None:
    """The agent's identity; enrols at the first start, with retries while there is no answer. None when stopped before.

    Raises
    ------
    Refused
        There is no token, or the console does not take it.
    """
    backoff = Backoff(_FIRST_PAUSE_S, _MAX_PAUSE_S)
    while not stopping.is_set():
        if (identity := known_identity(settings)) is not None:
            return identity
        try:
            return enrol(settings)
        except ConsoleUnreachable as away:
            pause_s = backoff.next_s()
            log.warning("not enrolled yet: %s; trying again in %.0f s", away, pause_s)
            stopping.wait(pause_s)
    return None


def enrol(settings: AgentSettings) -> Identity:
    """Enrol with the settings' token and store the identity. One that is known already shows its present secret.

    Raises
    ------
    Away
        Nobody answers, or the console is busy.
    Refused
        There is no token, or the console does not take it.
    """
    client = Client(settings.url, ca_file=settings.ca_file)
    facts = {"host": socket.gethostname(), "version": VERSION, "cores": os.cpu_count() or 1, "capacity_cps": _cps()}
    known = known_identity(settings)
    shown = {"old_secret": known.secret} if known is not None else {}
    try:
        answer = client.enrol({"token": _token(settings), "name": settings.name, **shown, **facts})
    finally:
        client.close()
    if answer.status == 429 or answer.status >= 500:
        raise ConsoleUnreachable(answer.message)
    if answer.status != 201:
        raise EnrolmentRefused(f"{settings.url} does not enrol {settings.name!r}: {answer.message}")
    document = answer.document
    try:
        identity = Identity(
            document["agent"], document["secret"], document["cluster"], float(document.get("heartbeat_s", 2.0))
        )
    except (KeyError, TypeError, ValueError):
        raise EnrolmentRefused(f"{settings.url} answers as no console does: {sorted(document)}") from None
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(settings.state_dir / _FILE, json.dumps(asdict(identity)).encode())
    log.info("enrolled as %r in cluster %r", settings.name, identity.cluster)
    return identity


def _token(settings: AgentSettings) -> str:
    if settings.token:
        return settings.token
    if settings.token_file is None:
        raise EnrolmentRefused(
            "token is missing: make one on the console's page Sources and give it as token or token_file"
        )
    try:
        token = Path(settings.token_file).read_text().strip()
    except OSError as error:
        raise EnrolmentRefused(f"token_file is {str(settings.token_file)!r}: {error.strerror}") from None
    if not token:
        raise EnrolmentRefused(f"token_file is {str(settings.token_file)!r}: it is empty")
    return token


def _cps() -> float:
    """Cycles per second of one core."""
    try:
        clock = psutil.cpu_freq()
    except (OSError, RuntimeError, NotImplementedError):
        clock = None
    mhz = (clock.max or clock.current) if clock else 0.0
    return mhz * 1e6 if mhz > 0 else _DEFAULT_CPS
