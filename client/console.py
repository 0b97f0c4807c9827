"""The console over HTTP: one request at a time, jobs that are waited for, and failures in plain words."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urljoin

from client.errors import ClientError
from client.settings import ClientSettings

__all__ = ["ConsoleConnection"]

_MAX_WAIT_S = 30.0  # that the console waits in one request
_GRACE_S = 10.0  # for the way there and back
_POLL_S = 1.0
_MIN_TIMEOUT_S = 0.5
_MAX_ANSWER_BYTES = 64 * 2**20


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token is sent to the address that was named, to no other."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class ConsoleConnection:
    """Requests to one console, all within `timeout_s` of the first."""

    def __init__(self, settings: ClientSettings, timeout_s: float) -> None:
        self.settings, self.timeout_s = settings, timeout_s
        self._until = time.monotonic() + timeout_s
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if settings.server.startswith("https:"):
            handlers.append(urllib.request.HTTPSHandler(context=_trusting(settings.ca_file)))
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str) -> dict[str, Any]:
        """The document at a path, or at an address that the console gave."""
        return self._send("GET", path)[1]

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a POST, sent so that it takes effect once."""
        return self._send("POST", path, body, {"Idempotency-Key": uuid.uuid4().hex})[1]

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a PATCH."""
        return self._send("PATCH", path, body)[1]

    def put(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a PUT."""
        return self._send("PUT", path, body)[1]

    def post_file(self, path: str, name: str, content: bytes) -> dict[str, Any]:
        """The answer to a POST of one file as a form would send it."""
        boundary = uuid.uuid4().hex
        safe = name.encode("ascii", "replace").decode().translate({34: "_", 13: "_", 10: "_"})
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{safe}"\r\n\r\n'
        data = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        return self._send("POST", path, data, {"Content-Type": f"multipart/form-data; boundary={boundary}"})[1]

    def post_job(
        self, path: str, body: Mapping[str, Any], show: Callable[[Mapping[str, Any]], None] | None = None
    ) -> dict[str, Any]:
        """The result of a request whose work a job does, however long that takes within the time there is.

        `show` is called with the job each second.

        Raises
        ------
        ClientError
            The console refused, the job failed or was cancelled, or the time was up; the job then goes on.
        """
        wait_s = max(1.0, min(_MAX_WAIT_S, self._left_s() - _GRACE_S))
        headers = {"Idempotency-Key": uuid.uuid4().hex} | ({} if show else {"Prefer": f"wait={wait_s:.0f}"})
        status, answer = self._send("POST", path, body, headers)
        if status != 202:
            return answer
        job = self._ended(answer, show)
        return self.get(str(job["result_api_url"])) if job.get("result_api_url") else job

    def get_settled(
        self, path: str, answer: dict[str, Any], is_open: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, Any]:
        """A resource read again until nothing of it is open, or as it is when the time is nearly up."""
        while is_open(answer) and (wait_s := min(_MAX_WAIT_S, self._left_s() - _GRACE_S)) >= 1.0:
            time.sleep(_POLL_S)
            answer = self._send("GET", path, None, {"Prefer": f"wait={wait_s:.0f}"})[1]
        return answer

    def address(self, path: str) -> str:
        """A path of the console as an address that people open."""
        return urljoin(f"{self.settings.server}/", path.lstrip("/"))

    def _ended(self, job: dict[str, Any], show: Callable[[Mapping[str, Any]], None] | None = None) -> dict[str, Any]:
        """The job once it has succeeded."""
        path = str(job.get("url") or "")
        while job.get("state") in {"queued", "running"}:
            if self._left_s() <= _POLL_S:
                message = f"There is no answer after {self.timeout_s:g} s; it goes on as {self.address(path)}"
                raise ClientError("timeout", f"{message}. --timeout waits longer.", problem={"job": path})
            time.sleep(_POLL_S)
            job = self.get(path)
            if show is not None:
                show(job)
        if job.get("state") == "succeeded":
            return job
        error = job.get("error") or {"code": "cancelled", "detail": "The job was cancelled."}
        raise ClientError(str(error.get("code")), str(error.get("detail")), error.get("faults") or (), problem=error)

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | bytes | None = None, headers: Mapping[str, str] = {}
    ) -> tuple[int, dict[str, Any]]:
        sent = {"Accept": "application/json", "Authorization": f"Bearer {self.settings.token}", **headers}
        data = None
        if isinstance(body, bytes):
            data = body
        elif body is not None:
            data, sent["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(self.address(path), data=data, headers=sent, method=method)
        try:
            with self._opener.open(request, timeout=max(_MIN_TIMEOUT_S, self._left_s())) as response:
                return _read(response, self.settings.server)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, HTTPException, ValueError) as error:
            raise self._unreachable(error) from None

    def _left_s(self) -> float:
        return self._until - time.monotonic()

    def _refusal(self, error: urllib.error.HTTPError) -> ClientError:
        """The refusal in the words of the console, or of a proxy before it."""
        where = self.settings.server
        if 300 <= error.code < 400:
            target = error.headers.get("Location", "another address")
            return ClientError("not_a_console", f"{where} leads on to {target}; name that as the server.")
        try:
            problem = json.loads(error.read(_MAX_ANSWER_BYTES))
            detail, code = str(problem["detail"]), str(problem["code"])
        except (ValueError, KeyError, TypeError, OSError, HTTPException):
            return ClientError(
                "not_a_console",
                f"{where} answers {error.code} {error.reason}, in no form of Sluice: is it the address of a console?",
                problem={"status": error.code},
            )
        if error.code == 401:
            detail = f"{where} does not take the token of {self.settings.token_from}: {detail}"
        return ClientError(code, detail, problem.get("faults") or (), problem=problem)

    def _unreachable(self, error: Exception) -> ClientError:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return ClientError("unreachable", f"{self.settings.server} {_failure_words(reason, self.timeout_s)}")


def _failure_words(reason: object, timeout_s: float) -> str:
    """The failure of a connection, for people."""
    match reason:
        case ssl.SSLCertVerificationError():
            return (
                f"has a certificate that is not trusted: {reason.verify_message}. "
                "Name the authority that signed it with --ca-file or SLUICE_CA_FILE."
            )
        case ssl.SSLError():
            return f"does not speak TLS as expected ({reason.reason or reason}): is it an http:// address?"
        case TimeoutError():
            return f"does not answer within {timeout_s:g} s."
        case socket.gaierror():
            return "is not known: its name has no address."
        case ConnectionRefusedError():
            return "refuses the connection: nothing listens there."
    return f"does not answer: {reason or type(reason).__name__}"


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    """The system's authorities, and that of a file."""
    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ClientError("settings", f"ca_file is {ca_file!r}: {error}.") from None
    return context


def _read(response: HTTPResponse, server: str) -> tuple[int, dict[str, Any]]:
    text = response.read(_MAX_ANSWER_BYTES)
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        message = f"{server} answers {response.status} in no form of Sluice: is it the address of a console?"
        raise ClientError("not_a_console", message)
    return response.status, document
