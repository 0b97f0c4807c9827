"""HTTP to the console: the plan comes from there, results and statistics go there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, cast
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

__all__ = ["FRAMES_TYPE", "ConsoleAway", "ConsoleClient", "ConsoleFailed", "ConsoleRefused"]

FRAMES_TYPE = "application/vnd.sluice.frames"
_BASE = "/api/v1/stream-processor"
_SHOWN_CHARACTERS = 300
#: Answers that say nothing of what was sent: the same request may do later.
_PASSING = frozenset({401, 403, 408, 409, 425, 429})
#: Those of a console, or of a proxy before it, that is not there.
_ABSENT = frozenset({502, 503, 504})


class ConsoleAway(RuntimeError):
    """No answer of the console, or one that a later request may change; the text says which."""


class ConsoleFailed(ConsoleAway):
    """The console failed at this request, by fault of the data or of the console."""


class ConsoleRefused(RuntimeError):
    """The console takes no such thing, today or later."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the console answered {status}: {message}")
        self.status = status


class ConsoleClient:
    """The stream processor's end of the REST API."""

    def __init__(self, url: str, token: str, timeout_s: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._base, self._token, self._timeout_s = self._url + _BASE, token, timeout_s
        self._etag: str | None = None

    def plan(self) -> dict[str, Any] | None:
        """The queries that are live; None when nothing changed since the last call.

        Raises
        ------
        ConsoleAway, Refused
        """
        more = {"If-None-Match": self._etag} if self._etag else {}
        status, headers, body = self._ask("GET", "/plan", more)
        if status == 304:
            return None
        answer = self._read(body)
        self._etag = headers.get("ETag")
        return answer

    def pipeline(self, digest: str) -> dict[str, Any]:
        """The document of a pipeline that was live once.

        Raises
        ------
        ConsoleAway, Refused
        """
        answer = self._read(self._ask("GET", f"/pipelines/{quote(digest, safe='')}", {})[2])
        return answer.get("pipeline", answer)

    def post(self, frames: bytes) -> None:
        """Hand over RESULT and STATISTICS frames; the console knows those it has.

        Raises
        ------
        ConsoleAway, ConsoleFailed, Refused
        """
        self._ask("POST", "/frames", {"Content-Type": FRAMES_TYPE}, frames)

    def post_progress(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Hand over progress of the streaming query; the answer has the settings that the console asks for.

        Raises
        ------
        ConsoleAway, ConsoleFailed, Refused
        """
        body = json.dumps(document).encode()
        return self._read(self._ask("POST", "/progress", {"Content-Type": "application/json"}, body)[2])

    def is_well(self) -> bool:
        """Whether the console reports itself ready: its database answers and has its tables."""
        try:
            with urlopen(f"{self._url}/healthz", timeout=self._timeout_s) as answer:
                return bool(answer.status == 200)
        except (HTTPException, OSError):
            return False

    def _ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, Mapping[str, str], bytes]:
        says = {"Authorization": f"Bearer {self._token}", "Accept": "application/json", **headers}
        request = Request(self._base + path, data=body, headers=says, method=method)
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:
                return answer.status, cast(Mapping[str, str], answer.headers), answer.read()
        except HTTPError as error:
            with error:
                if error.code == 304:
                    return 304, cast(Mapping[str, str], error.headers), b""
                text = _reason(error.read())[:_SHOWN_CHARACTERS]
            if error.code >= 500 or error.code in _PASSING:
                failed = error.code >= 500 and error.code not in _ABSENT
                away = ConsoleFailed if failed else ConsoleAway
                raise away(f"the console answered {error.code}: {text}") from error
            raise ConsoleRefused(error.code, text) from error
        except (URLError, HTTPException, OSError) as error:
            raise ConsoleAway(f"the console does not answer at {self._base}: {error}") from error

    def _read(self, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise ConsoleAway(f"the console's answer is no JSON: {error}") from error
        if not isinstance(answer, dict):
            raise ConsoleAway(f"the console's answer is a {type(answer).__name__}; allowed: an object")
        return answer


def _reason(body: bytes) -> str:
    """The sentence of a refusal; the body as text where it is no problem of the console's (a proxy's page, say)."""
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")
