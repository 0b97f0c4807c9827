"""Client-side ledger: what clients asked a console for, what it acknowledged, and all else that they saw of it."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

__all__ = ["ClientLedger", "RestCaller", "Write"]

#: Answers that say "not now": the same is asked again.
_NOT_NOW = (429, 502, 503, 504)
_PAUSE_S = 0.5


@dataclass
class Write:
    """A change that one client asked for, in as many attempts as it took.

    `status` is None while no attempt had a definite answer: then both outcomes are allowed, but never two effects.
    """

    kind: str
    subject: str
    value: Any = None
    number: int = 0
    request_ids: list[str] = field(default_factory=list)
    status: int | None = None
    answer: dict[str, Any] = field(default_factory=dict)
    key: str = ""

    @property
    def is_acknowledged(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class ClientLedger:
    """All writes, answers and faults that clients saw; shared by their threads."""

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.statuses: Counter[str] = Counter()
        self.faults: list[str] = []
        self.slowest_s = 0.0
        self.received: Counter[str] = Counter()  # deliveries of webhooks, by their number
        self.socket_messages = 0
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)

    def begin(self, write: Write) -> Write:
        """Note a write before it is sent; its number is the order in which they began."""
        with self._lock:
            write.number = next(self._numbers)
            self.writes.append(write)
        return write

    def note_answer(self, asked: str, response: httpx.Response | None, took_s: float) -> None:
        """Count an answer, or that there was none; one of 500 is a fault."""
        status = "no answer" if response is None else str(response.status_code)
        with self._lock:
            self.statuses[status] += 1
            self.slowest_s = max(self.slowest_s, took_s)
            if response is not None and response.status_code == 500:
                self.faults.append(f"{asked} was answered with 500: {response.text[:200]}")

    def note_fault(self, text: str) -> None:
        with self._lock:
            self.faults.append(text)

    def note_received(self, delivery: str) -> None:
        with self._lock:
            self.received[delivery] += 1

    def note_socket_message(self) -> None:
        with self._lock:
            self.socket_messages += 1

    def acknowledged(self, kind: str) -> list[Write]:
        """Acknowledged writes of a kind, in the order in which they began."""
        with self._lock:
            return [write for write in self.writes if write.kind == kind and write.is_acknowledged]


class RestCaller:
    """A client of one console with a token: asks again with the same key until an answer is definite."""

    def __init__(
        self, url: str, token: str, ledger: ClientLedger, given_up: threading.Event, *, timeout_s: float = 40.0
    ) -> None:
        self.ledger = ledger
        self._given_up = given_up
        self._http = httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=timeout_s, trust_env=False
        )

    def close(self) -> None:
        self._http.close()

    def read(self, path: str, *, wait_s: int = 0) -> dict[str, Any] | None:
        """The JSON object of a GET; None where the console does not answer it with one now."""
        headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
        response = self._send("GET", path, None, headers)
        return response.json() if response is not None and response.status_code == 200 else None

    def etag(self, path: str) -> str | None:
        """The ETag of a resource; None where the console does not answer now."""
        response = self._send("GET", path, None, {})
        return response.headers.get("etag") if response is not None and response.status_code == 200 else None

    def post(self, path: str, body: Mapping[str, Any], write: Write, *, wait_s: int = 0) -> Write:
        """POST with a key of its own, until the answer is definite or the soak gives up."""
        write.key = write.key or uuid.uuid4().hex
        self.ledger.begin(write)
        headers = {"Idempotency-Key": write.key} | ({"Prefer": f"wait={wait_s}"} if wait_s else {})
        while not self._attempt("POST", path, body, headers, write):
            if self._given_up.wait(_PAUSE_S):
                break
        return write

    def post_again(self, path: str, body: Mapping[str, Any], write: Write) -> None:
        """Repeat an acknowledged POST with its key: the first answer has to come back, and nothing is done."""
        again = Write(write.kind, write.subject)
        if not self._attempt("POST", path, body, {"Idempotency-Key": write.key}, again):
            return
        write.request_ids += again.request_ids
        if again.status != write.status or again.answer.get("id") != write.answer.get("id"):
            self.ledger.note_fault(
                f"POST {path} repeated with its key: {again.status} {again.answer.get('id')} "
                f"in place of {write.status} {write.answer.get('id')}"
            )

    def change(self, method: str, path: str, body: Mapping[str, Any], write: Write, *, etag: str = "") -> Write:
        """PATCH or PUT once: without a key, what had no definite answer is not known."""
        self.ledger.begin(write)
        self._attempt(method, path, body, {"If-Match": etag} if etag else {}, write)
        return write

    def _attempt(
        self, method: str, path: str, body: Mapping[str, Any], headers: Mapping[str, str], write: Write
    ) -> bool:
        """Send once; whether the answer is definite."""
        request_id = uuid.uuid4().hex
        write.request_ids.append(request_id)
        response = self._send(method, path, body, {**headers, "X-Request-ID": request_id})
        if response is None or response.status_code in _NOT_NOW or response.status_code >= 500:
            return False
        answer = response.json() if response.content else {}
        if answer.get("code") == "conflict" and response.headers.get("retry-after"):
            return False
        write.status, write.answer = response.status_code, answer
        return True

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]
    ) -> httpx.Response | None:
        response, began = None, time.monotonic()
        with suppress(httpx.HTTPError):
            response = self._http.request(method, path, json=body, headers=dict(headers))
        self.ledger.note_answer(f"{method} {path}", response, time.monotonic() - began)
        return response
