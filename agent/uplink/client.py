"""HTTP client of the console or a relay: one connection, kept open, used by one thread at a time."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from agent import VERSION

__all__ = ["Client", "ConsoleAnswer", "ConsoleUnreachable"]

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

    def config(self, agent: str, etag: str | None) -> ConsoleAnswer:
        """The configuration; status 304 when it is still the one that the etag names."""
        headers = {"If-None-Match": etag} if etag else {}
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
