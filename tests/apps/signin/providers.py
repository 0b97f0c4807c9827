"""Providers of OpenID Connect for tests: a real one in a process of its own, and one that lies on request."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from django.test import Client
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from apps.signin.provider_settings import ProviderSettings
from tests.servers import free_port, wait_until

__all__ = ["LyingProvider", "RealProvider", "lying_provider", "real_provider", "settings_of"]

SECRET = "a-secret-of-this-client-0123456789"
Answer = tuple[int, Mapping[str, Any] | bytes]


def settings_of(issuer: str) -> ProviderSettings:
    return ProviderSettings(name="Keys", issuer=issuer, client_id="sluice", client_secret=SECRET)


class RealProvider:
    """`oidc-provider-mock`, as it is started from a shell."""

    def __init__(self, port: int) -> None:
        self.url = f"http://localhost:{port}"

    def set_person(self, subject: str, **claims: Any) -> None:
        """Set the claims of somebody from now on."""
        requests.put(f"{self.url}/users/{subject}", json=claims, timeout=5).raise_for_status()

    def revoke(self, subject: str) -> None:
        requests.post(f"{self.url}/users/{subject}/revoke-tokens", timeout=5).raise_for_status()

    def sign_in(self, client: Client, subject: str, start: str = "/login/provider/?next=/settings/") -> Any:
        """Go where the console sends the browser, sign in there, and come back."""
        return self.come_back(client, client.get(start)["Location"], subject)

    def come_back(self, client: Client, url: str, subject: str) -> Any:
        answered = requests.post(url, data={"sub": subject}, allow_redirects=False, timeout=5)
        back = urlsplit(answered.headers["Location"])
        return client.get(f"{back.path}?{back.query}")


@contextmanager
def real_provider(folder: Path) -> Iterator[RealProvider]:
    port = free_port()
    command = [sys.executable, "-W", "ignore", "-m", "oidc_provider_mock", "--port", str(port)]
    with (folder / "provider.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        provider = RealProvider(port)
        try:
            wait_until(lambda: _answers(provider.url), what="the provider")
            yield provider
        finally:
            process.terminate()


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/.well-known/openid-configuration", timeout=1).ok
    except requests.RequestException:
        return False


class LyingProvider:
    """A provider whose every answer a test may change before it is sent."""

    def __init__(self) -> None:
        self.url = ""
        self.key = RSAKey.generate_key(2048, {"kid": "1"})
        self.nonce = ""
        self.change_claims: Callable[[dict[str, Any]], object] = lambda claims: None
        self.change_metadata: Callable[[dict[str, Any]], object] = lambda metadata: None
        self.change_userinfo: Callable[[dict[str, Any]], object] = lambda told: None
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "1"}
        self.signed_with: Any = None  #: another key than the one it publishes
        self.delay_s = 0.0
        self.dribble = False

    def metadata(self) -> dict[str, Any]:
        paths = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "userinfo_endpoint": "userinfo",
            "jwks_uri": "jwks",
            "end_session_endpoint": "logout",
        }
        metadata = {"issuer": self.url, **{name: f"{self.url}/{path}" for name, path in paths.items()}}
        metadata["id_token_signing_alg_values_supported"] = ["RS256", "HS256", "none"]
        self.change_metadata(metadata)
        return metadata

    def told(self) -> dict[str, Any]:
        told = {"sub": "ada-1", "preferred_username": "ada", "email": "ada@example.org", "email_verified": True}
        self.change_userinfo(told)
        return told

    def id_token(self) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "sub": "ada-1", "aud": "sluice", "exp": now + 300, "iat": now, "nonce": self.nonce}
        self.change_claims(claims)
        return self.sign({name: value for name, value in claims.items() if value is not None})

    def sign(self, claims: Mapping[str, Any]) -> str:
        if self.header["alg"] == "none":
            parts = [json.dumps(part).encode() for part in (self.header, claims)]
            return ".".join([*(_base64(part) for part in parts), ""])
        key = OctKey.import_key(SECRET) if self.header["alg"].startswith("HS") else self.signed_with or self.key
        return jwt.encode(self.header, dict(claims), key)

    def answer(self, method: str, path: str) -> Answer:
        time.sleep(self.delay_s)
        if path == "/.well-known/openid-configuration":
            return 200, self.metadata()
        if path == "/jwks":
            return 200, {"keys": [self.key.as_dict(private=False)]}
        if path == "/token" and method == "POST":
            return 200, {"access_token": "a", "token_type": "Bearer", "expires_in": 300, "id_token": self.id_token()}
        return (200, self.told()) if path == "/userinfo" else (404, {})

    def sign_in(self, client: Client) -> Any:
        """As a browser that was sent to it, and is sent back at once."""
        location = client.get("/login/provider/").headers.get("Location")
        assert location, "the console did not begin a sign-in"
        asked = parse_qs(urlsplit(location).query)
        assert asked["code_challenge_method"] == ["S256"]
        self.nonce = asked["nonce"][0]
        return client.get("/login/provider/answer/", {"state": asked["state"][0], "code": "c"})


@contextmanager
def lying_provider() -> Iterator[LyingProvider]:
    provider = LyingProvider()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, content = provider.answer(self.command, self.path.partition("?")[0])
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not provider.dribble:
                self.wfile.write(body)
                return
            for number in body:
                self.wfile.write(bytes([number]))
                time.sleep(0.05)

        do_GET = do_POST = _answer  # noqa: N815 - the names that http.server calls

        def log_message(self, *args: Any) -> None:
            """Not to the test's output."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    provider.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()


def _base64(data: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(data).rstrip(b"=").decode()
