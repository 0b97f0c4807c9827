"""Questions to engines over HTTP: to checked addresses alone, within limits, with faults in clear words."""

from __future__ import annotations

import ipaddress
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
from django.conf import settings

from apps.core.addresses import IPAddress, PrivateAddress, UnknownHost, is_public, resolve_host, server_of, split_url
from apps.core.errors import Fault
from engine.redaction import redact_text

__all__ = [
    "ALLOWED_ADDRESSES",
    "MAX_ANSWER_BYTES",
    "MAX_DURATION_S",
    "EngineAway",
    "EngineClient",
    "EngineRefused",
    "PathMissing",
    "ca_faults",
    "is_allowed",
    "is_listed",
    "is_listed_host",
    "ssl_context",
    "url_faults",
]

MAX_ANSWER_BYTES = 32 * 2**20  # of one answer; a job of 10,000 vertices has about 8 MB
MAX_DURATION_S = 20.0  # of one question, however it drips in
_TIMEOUT_S = 8.0  # of a connection, and of each wait for more
_MAX_REDIRECTS = 3
_ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)
_MAX_CA_BYTES = 100_000
_NOT_JSON = 120  # characters of an answer that are quoted


class EngineAway(Exception):
    """Nothing answers; a later question may be answered."""


class EngineRefused(Exception):
    """It answers, but not with what can be read, or may not be asked. Somebody has to mend it.

    `code` is a stable name: private_address, tls, unauthorised, forbidden, redirect, html, not_json, too_large,
    wrong_answer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class PathMissing(Exception):
    """It answers 404 or 400 for one path: that metric, job or vertex is not there. `answer` is what it says."""

    def __init__(self, message: str, answer: Any = None) -> None:
        super().__init__(message)
        self.answer = answer if isinstance(answer, dict) and answer else {"errors": [message]}


def url_faults(url: object, path: str) -> list[Fault]:
    """Faults of a URL as it is written; where its name leads is checked whenever it is asked."""
    parts = split_url(url)
    if parts is None or parts.scheme not in {"http", "https"} or not parts.hostname:
        return [Fault(path, f"{url!r} cannot be used; allowed is an address that begins with http:// or https://")]
    if parts.username or parts.password:
        return [Fault(path, "It holds a name or password; give a token instead.")]
    if parts.query or parts.fragment:
        return [Fault(path, f"{path} has a part after ? or #; allowed: the address below which the API lies")]
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return []
    if not is_allowed(parts.hostname)(address):
        return [Fault(path, f"{PrivateAddress(parts.hostname)}; allowed: {ALLOWED_ADDRESSES}")]
    return []


def is_listed(url: str) -> bool:
    """Whether the host of a URL, as it is written, is allowed by `SLUICE_CONNECT_HOSTS`."""
    parts = split_url(url)
    return is_listed_host((parts.hostname or "") if parts is not None else "")


def is_listed_host(host: str) -> bool:
    """Whether a host, by its name or its address, is allowed by `SLUICE_CONNECT_HOSTS`."""
    with suppress(ValueError):
        return _is_in_networks(ipaddress.ip_address(host))
    return host.lower() in settings.CONNECT_HOSTS or (host.lower() == "localhost" and _is_in_networks(_LOOPBACK))


def ca_faults(pem: str, path: str = "ca_pem") -> list[Fault]:
    """Fault of certificates that an engine's own has to be signed by."""
    if not pem:
        return []
    if len(pem) > _MAX_CA_BYTES:
        return [Fault(path, f"{path} has {len(pem):,} characters; allowed: up to {_MAX_CA_BYTES:,}")]
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError, TypeError):  # of the last for what is no ASCII
        return [Fault(path, f"{path} holds no certificate; allowed: certificates as PEM, -----BEGIN CERTIFICATE-----")]
    return []


_LOOPBACK = ipaddress.ip_address("127.0.0.1")


def _is_in_networks(address: IPAddress) -> bool:
    for entry in settings.CONNECT_HOSTS:
        with suppress(ValueError):
            if address in ipaddress.ip_network(entry, strict=False):
                return True
    return False


def is_allowed(host: str) -> Callable[[IPAddress], bool]:
    """Whether an address of a host may be asked: it is public, or allowed by name or by network."""
    is_named = host.lower() in settings.CONNECT_HOSTS
    return lambda address: is_named or is_public(address) or _is_in_networks(address)


ALLOWED_ADDRESSES = "public addresses, and hosts listed in SLUICE_CONNECT_HOSTS"


class _PinnedTransport(httpx.HTTPTransport):
    """Connects to the address that was checked: the name is not looked up a second time."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.host
        port = request.url.port or (443 if request.url.scheme == "https" else 80)
        address = resolve_host(host, port, is_allowed(host))
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)  # the Host header was made of the name already
        return super().handle_request(request)


_ERRNO = re.compile(r"^\[Errno -?[0-9]+\] ")  # a number that tells people nothing


class EngineClient:
    """Client of one engine: keeps its connection open, and counts what it asks.

    `url`: address below which the API lies, such as `http://flink:8081` or `https://proxy/flink/v1`. `token`: sent as
    `Authorization: Bearer`.

    Attributes
    ----------
    requests, bytes : int
        Questions so far, and bytes of answers.
    seconds : float
        Time that they took.
    """

    def __init__(self, url: str, *, token: str = "", verify_tls: bool = True, ca_pem: str = "") -> None:
        self.host = server_of(url)
        self._base = url.rstrip("/")
        self._headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "Sluice"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        transport = _PinnedTransport(verify=ssl_context(verify_tls, ca_pem), trust_env=False, limits=_ONE)
        self._client = httpx.Client(
            transport=transport, timeout=_TIMEOUT_S, follow_redirects=False, trust_env=False, headers=self._headers
        )
        self._watch = _Watch()
        self.requests, self.bytes, self.seconds = 0, 0, 0.0

    def __enter__(self) -> EngineClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get_json(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        """The answer to a GET, read as JSON. NaN and Infinity become texts, which readers take as not known.

        Raises
        ------
        PathMissing
            404 or 400: there is no such thing.
        EngineAway
            No answer, half of one, or 5xx.
        EngineRefused
            Any other answer, or an address that may not be asked.
        """
        body, kind = self._get(path, params)
        try:
            return json.loads(body, parse_constant=str)
        except (ValueError, RecursionError):
            raise self._unreadable(path, body, kind) from None

    def get_text(self, path: str, params: Mapping[str, str] | None = None) -> str:
        """The answer to a GET as text. Raises as `get_json` does."""
        body, kind = self._get(path, params)
        if _is_html(body, kind):
            raise self._unreadable(path, body, kind)
        return body.decode("utf-8", "replace")

    def _get(self, path: str, params: Mapping[str, str] | None) -> tuple[bytes, str]:
        url = self._base + path
        for _ in range(_MAX_REDIRECTS + 1):
            status, headers, body = self._exchange(url, params)
            if 300 <= status < 400 and headers.get("location"):
                url, params = self._redirected(url, headers["location"]), None
                continue
            return self._checked(path, status, headers.get("content-type", ""), body)
        raise EngineRefused("redirect", f"{self.host} redirects {self._named(path)} more than {_MAX_REDIRECTS} times")

    def _redirected(self, url: str, location: str) -> str:
        """The target of a redirect within the same host, which is checked as any address is."""
        target = urljoin(url, location)
        before, after = split_url(url), split_url(target)
        if after is None or before is None or not after.hostname or after.scheme not in {"http", "https"}:
            raise EngineRefused("redirect", f"{self.host} redirects to {location[:200]!r}, which is no address")
        if after.hostname != before.hostname or after.port != before.port or after.scheme != before.scheme:
            where = f"{after.scheme}://{after.netloc}"
            raise EngineRefused(
                "redirect", f"{self.host} redirects to {where}; another host is not followed: connect to that instead"
            )
        return target

    def _exchange(self, url: str, params: Mapping[str, str] | None) -> tuple[int, httpx.Headers, bytes]:
        self.requests += 1
        began = time.monotonic()
        self._watch.begin()
        try:
            request = self._client.build_request("GET", url, params=params, extensions={"trace": self._watch.trace})
            response = self._client.send(request, stream=True)
            try:
                return response.status_code, response.headers, self._body(response)
            finally:
                response.close()
        except PrivateAddress as error:
            raise EngineRefused("private_address", f"{error}; allowed: {ALLOWED_ADDRESSES}") from None
        except UnknownHost as error:
            raise EngineAway(str(error)) from None
        except httpx.TimeoutException:
            raise EngineAway(f"{self.host} did not answer within {_TIMEOUT_S:g} s") from None
        except httpx.HTTPError as error:
            raise self._transport_fault(error) from None
        except (httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise EngineRefused("wrong_answer", f"{url[:200]} cannot be asked: {error}") from None
        finally:
            self._watch.end()
            self.seconds += time.monotonic() - began

    def _body(self, response: httpx.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() not in {"", "identity"}:
            raise EngineRefused("wrong_answer", f"{self.host} answers packed as {encoding[:20]!r}, which was not asked")
        content = bytearray()
        for chunk in response.iter_raw():
            content += chunk
            self.bytes += len(chunk)
            if len(content) > MAX_ANSWER_BYTES:
                limit = f"{MAX_ANSWER_BYTES / 2**20:g} MiB"
                raise EngineRefused("too_large", f"{self.host} answers {response.url.path} with more than {limit}")
        return bytes(content)

    def _transport_fault(self, error: httpx.HTTPError) -> Exception:
        text = str(error) or type(error).__name__
        if self._watch.is_over:
            return EngineAway(f"{self.host} took longer than {MAX_DURATION_S:g} s for one answer")
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLCertVerificationError):
                return EngineRefused("tls", f"the certificate of {self.host} is not trusted: {cause.verify_message}")
            if isinstance(cause, ssl.SSLError):
                return EngineRefused("tls", f"{self.host} speaks no TLS that fits: {cause.reason or text}")
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, httpx.RemoteProtocolError) and "location header" in text:  # httpx reads it in any case
            return EngineRefused("redirect", f"{self.host} redirects to what is no address: {text}")
        if isinstance(error, httpx.RemoteProtocolError):
            return EngineAway(f"{self.host} broke off in the middle of an answer, or speaks no HTTP: {text}")
        return EngineAway(f"{self.host} does not answer: {_ERRNO.sub('', text)}")

    def _checked(self, path: str, status: int, kind: str, body: bytes) -> tuple[bytes, str]:
        """The body of a 2xx answer; another status in words."""
        path = self._named(path)
        if 200 <= status < 300:
            return body, kind
        if status == 401:
            raise EngineRefused("unauthorised", f"{self.host} answers 401: it wants a token, or another one")
        if status in {403, 407}:
            raise EngineRefused("forbidden", f"{self.host} answers {status}: what was sent may not read {path}")
        if status in {400, 404, 422}:
            said = _said(body)
            if "bad-request" in said:
                raise PathMissing(f"{path} is longer than the engine takes (404 bad-request)", _json(body))
            raise PathMissing(f"{self.host} answers {status} for {path}{said and f': {said}'}", _json(body))
        if status >= 500 or status == 429:
            raise EngineAway(f"{self.host} answers {status}{(said := _said(body)) and f': {said}'}")
        raise EngineRefused("wrong_answer", f"{self.host} answers {status} for {path}")

    def _named(self, path: str) -> str:
        """A path in words: where the address itself is asked, the one that it has."""
        return (path or urlsplit(self._base).path or "/")[:200]

    def _unreadable(self, path: str, body: bytes, kind: str) -> EngineRefused:
        path = self._named(path)
        if _is_html(body, kind):
            asks = "is this the web page of a proxy or of a login?"
            return EngineRefused("html", f"{self.host} answers {path} with HTML; {asks}")
        start = redact_text(body[:_NOT_JSON].decode("utf-8", "replace"))  # some repeat the headers they were sent
        if body.lstrip()[:1] in (b"{", b"["):
            words = f"JSON that is broken or ends too early, after {len(body):,} bytes"
        else:
            words = f"something other than JSON: {start!r}" if body.strip() else "nothing"
        return EngineRefused("not_json", f"{self.host} answers {path} with {words}")


class _Watch:
    """Cuts a question off after `MAX_DURATION_S`: a server may send a byte at a time."""

    def __init__(self) -> None:
        self.is_over = False
        self._socket: socket.socket | None = None  # of the connection in use, which outlives a question
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        self.is_over = False
        self._timer = threading.Timer(MAX_DURATION_S, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Callback of httpcore, which tells of each connection that it makes."""
        if event == "connection.connect_tcp.complete":
            self._socket = info["return_value"].get_extra_info("socket")
            if self.is_over:
                self._cut()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        self.is_over = True
        if self._socket is not None:
            with suppress(OSError):  # it has ended by itself
                self._socket.shutdown(socket.SHUT_RDWR)


def ssl_context(verify_tls: bool, ca_pem: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=ca_pem or None)
    if not verify_tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _is_html(body: bytes, kind: str) -> bool:
    return "html" in kind.lower() or body.lstrip()[:9].lower().startswith((b"<!doctype", b"<html"))


def _json(body: bytes) -> Any:
    with suppress(ValueError, RecursionError):
        return json.loads(body[:100_000])
    return None


def _said(body: bytes) -> str:
    """First words of an error's answer: Flink's `errors`, Prometheus' `error`, or the text."""
    text, answer = body[:2000].decode("utf-8", "replace"), _json(body)
    if isinstance(answer, dict):
        said = answer.get("errors") or answer.get("error") or answer.get("message") or ""
        text = str(said[0] if isinstance(said, list) and said else said)
    if text.lstrip().startswith("<"):
        return ""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line.strip()[:200]
