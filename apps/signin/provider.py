"""The OpenID provider that people sign in with, spoken to by Authlib: authorization code with PKCE, state and nonce.

Nothing of the provider is kept between two sign-ins: its addresses and keys are asked for each time, so that another
key counts from the moment it is published.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.base_client import BaseApp, OAuth2Mixin, OAuthError, OpenIDMixin
from authlib.integrations.requests_client import OAuth2Session
from django.conf import settings
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from apps.core.errors import Forbidden, Unavailable
from apps.signin.provider_settings import ProviderSettings
from engine.redaction import note_secret

__all__ = [
    "AuthorizationRequest",
    "Provider",
    "ProviderAnswer",
    "ProviderAway",
    "ProviderEnded",
    "ProviderUntrusted",
]

TIMEOUT_S = 5.0  #: to connect, and between two bytes
MAX_DURATION_S = 10.0  #: of one answer
MAX_SKEW_S = 60  #: between the provider's clock and the console's
_MAX_BYTES = 1 << 20
#: Signatures with the provider's own key. Others (`none`, and those with the client's secret) anybody could make.
_SIGNATURES = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)] + ["EdDSA"]
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


class ProviderAway(Unavailable):
    """The provider does not answer, or not in time."""

    code = "provider_away"


class ProviderUntrusted(Forbidden):
    """The provider's answer is not one that could be trusted."""

    code = "provider_untrusted"


class ProviderEnded(Forbidden):
    """The provider no longer vouches for a session, or refused the sign-in."""

    code = "provider_refused"


@dataclass(frozen=True)
class AuthorizationRequest:
    """A sign-in that begins: where the browser goes, and what its answer is held against."""

    url: str
    state: str
    nonce: str
    code_verifier: str


@dataclass(frozen=True)
class ProviderAnswer:
    """Claims of the provider about somebody, checked, and the tokens of the session."""

    subject: str
    claims: Mapping[str, Any]
    id_token: str = ""
    refresh_token: str = ""

    @property
    def verified_email(self) -> str:
        """The address, if the provider says that it has checked it; else empty."""
        is_verified = self.claims.get("email_verified") in (True, "true")
        email = self.claims.get("email")
        return email if is_verified and isinstance(email, str) else ""


class _BoundedSession(OAuth2Session):
    """Requests that follow no redirect and take neither long nor much."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, default_timeout=TIMEOUT_S, **options)
        self.max_redirects = 0

    def request(self, method: str, url: str, **options: Any) -> requests.Response:
        until = time.monotonic() + MAX_DURATION_S
        response: requests.Response = super().request(method, url, **{**options, "stream": True})
        body = b""
        try:
            while piece := response.raw.read1(1 << 16, decode_content=True):
                body += piece
                if len(body) > _MAX_BYTES or time.monotonic() > until:
                    raise requests.Timeout(f"an answer of more than {_MAX_BYTES} bytes or {MAX_DURATION_S:g} s")
        except urllib3.exceptions.HTTPError as error:
            raise requests.Timeout(str(error)) from None
        finally:
            response.close()
        response._content = body
        return response


class _Client(OAuth2Mixin, OpenIDMixin, BaseApp):
    client_cls = _BoundedSession

    def _on_update_token(self, *_: object, **__: object) -> None:
        """Nothing: the renewal of a session keeps its tokens itself."""

    def load_server_metadata(self) -> dict[str, Any]:
        """OpenID Connect Discovery 1.0, section 4.3: the issuer is the one that was asked."""
        metadata: dict[str, Any] = self.server_metadata  # type: ignore[has-type] # Authlib has no types
        if metadata:
            return metadata
        with self._get_session() as session:
            response = session.request("GET", self._server_metadata_url, withhold_token=True)
            response.raise_for_status()
            metadata = response.json()
        issuer = self._server_metadata_url.removesuffix(_WELL_KNOWN)
        if metadata["issuer"].rstrip("/") != issuer.rstrip("/"):
            raise ValueError(f"it calls itself {metadata['issuer']!r}, and {issuer!r} was asked")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if urlsplit(metadata[name]).scheme not in ("https", urlsplit(issuer).scheme):
                raise ValueError(f"its {name} is not encrypted")
        offered = metadata.get("id_token_signing_alg_values_supported", ["RS256"])
        metadata["id_token_signing_alg_values_supported"] = [name for name in offered if name in _SIGNATURES]
        metadata.pop("jwks", None)  # keys come from their own address alone
        self.server_metadata = metadata
        return metadata


_WELL_KNOWN = "/.well-known/openid-configuration"


class Provider:
    """The provider for one sign-in, renewal or sign-out.

    Every method raises `ProviderAway` where it does not answer and `ProviderUntrusted` where its answer is not good.
    """

    def __init__(self, options: ProviderSettings) -> None:
        self.options = options
        note_secret(options.client_secret)
        self._client = _Client(
            framework=None,
            name="provider",
            client_id=options.client_id,
            client_secret=options.client_secret,
            server_metadata_url=options.issuer.rstrip("/") + _WELL_KNOWN,
            client_kwargs={"scope": options.scopes, "code_challenge_method": "S256"},
        )

    @classmethod
    def configured(cls) -> Provider | None:
        """The provider of this installation, if it has one."""
        return cls(settings.PROVIDER) if settings.PROVIDER else None

    def ask(self) -> None:
        """Whether it answers, as it should."""
        with self._trust():
            self._client.load_server_metadata()

    def begin(self, redirect_uri: str) -> AuthorizationRequest:
        """A new sign-in at the provider, which sends the browser back to `redirect_uri`."""
        with self._trust():
            started = self._client.create_authorization_url(redirect_uri)
            return AuthorizationRequest(started["url"], started["state"], started["nonce"], started["code_verifier"])

    def finish(self, redirect_uri: str, code: str, nonce: str, code_verifier: str) -> ProviderAnswer:
        """Take a code for what the provider says of somebody.

        The token of identity has to be signed with a key of the provider, for us, now, and for this sign-in's nonce
        (OpenID Connect Core 1.0, section 3.1.3.7).
        """
        with self._trust():
            token = self._client.fetch_access_token(redirect_uri, code=code, code_verifier=code_verifier)
            answer = self._answer(token, nonce)
            if answer is None:
                raise ValueError("it gave no token of identity")
            return answer

    def renew(self, refresh_token: str, subject: str) -> ProviderAnswer:
        """Ask what the provider says of somebody now.

        Raises
        ------
        ProviderEnded
            It no longer vouches for the session.
        """
        with self._trust():
            metadata = self._client.load_server_metadata()
            with self._client._get_oauth_client(**metadata) as session:
                session.token = {"refresh_token": refresh_token}
                token = session.refresh_token(metadata["token_endpoint"], refresh_token=refresh_token)
            answer = self._answer(token, None) or ProviderAnswer(subject, self._userinfo(token, subject))
            if answer.subject != subject:
                raise ValueError("it speaks of somebody else than before")
            # one that gives no other goes on taking the one that it gave
            return ProviderAnswer(subject, answer.claims, answer.id_token, token.get("refresh_token") or refresh_token)

    def logout_url(self, id_token: str, back_to: str) -> str:
        """Where a browser ends the provider's session as well; empty where the provider has no such address."""
        with self._trust():
            if "end_session_endpoint" not in self._client.load_server_metadata():
                return ""
            url = self._client.create_logout_url(back_to, id_token, client_id=self.options.client_id)["url"]
            return str(url)

    def read_logout(self, logout_token: str) -> tuple[str, str]:
        """The subject and the session that the provider ended, either may be empty (Back-Channel Logout 1.0, 2.6)."""
        with self._trust():
            registry = JWSRegistry(algorithms=self._algorithms(), strict_check_header=False)
            token = jwt.decode(logout_token, KeySet.import_key_set(self._client.fetch_jwk_set()), registry=registry)
            jwt.JWTClaimsRegistry(
                leeway=MAX_SKEW_S,
                iss={"essential": True, "value": self._client.load_server_metadata()["issuer"]},
                aud={"essential": True, "value": self.options.client_id},
                iat={"essential": True},
                exp={"essential": True},
                jti={"essential": True},
            ).validate(token.claims)
            claims = token.claims
            if not isinstance(claims.get("events", {}).get(_LOGOUT_EVENT), dict) or "nonce" in claims:
                raise ValueError("this is no token of a sign-out")
            if not claims.get("sub") and not claims.get("sid"):
                raise ValueError("it names neither a person nor a session")
            return str(claims.get("sub") or ""), str(claims.get("sid") or "")

    def _answer(self, token: Mapping[str, Any], nonce: str | None) -> ProviderAnswer | None:
        for secret in (token.get("id_token"), token.get("refresh_token"), token.get("access_token")):
            note_secret(secret)
        if not token.get("id_token"):
            return None
        if not self._algorithms():
            raise ValueError("it offers no signature with a key of its own")
        needed = {
            "iss": {"essential": True, "value": self._client.load_server_metadata()["issuer"]},
            "aud": {"essential": True, "value": self.options.client_id},
        }
        claims = dict(self._client.parse_id_token(token, nonce, claims_options=needed, leeway=MAX_SKEW_S))
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 255:
            raise ValueError("it names nobody")
        # what is signed goes before what is only told
        told = {**self._userinfo(token, subject), **claims}
        return ProviderAnswer(subject, told, token["id_token"], token.get("refresh_token") or "")

    def _userinfo(self, token: Mapping[str, Any], subject: str) -> dict[str, Any]:
        """Claims that it tells of somebody, of whom the answer has to be (OpenID Connect Core 1.0, section 5.3.2)."""
        if "userinfo_endpoint" not in self._client.load_server_metadata() or "access_token" not in token:
            return {}
        told = dict(self._client.userinfo(token=dict(token)))
        if told.get("sub") != subject:
            raise ValueError("it tells of somebody else than it signed for")
        return told

    def _algorithms(self) -> list[str]:
        algorithms: list[str] = self._client.load_server_metadata()["id_token_signing_alg_values_supported"]
        return algorithms

    def _trust(self) -> _Trust:
        return _Trust(self.options.name)


class _Trust:
    """Faults of a provider, in our words; none of its own get to people."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        name = self._name
        if isinstance(error, OAuthError) and error.error == "invalid_grant":
            raise ProviderEnded(f"{name} does not vouch for this session any more. Sign in again.") from None
        # a body that is not JSON is an error of both kinds: the provider's, not the network's
        if isinstance(error, requests.RequestException) and not isinstance(error, ValueError):
            what = "did not answer in time" if isinstance(error, requests.Timeout) else "does not answer"
            instead = "Try again in a minute, or use the password of a local account."
            raise ProviderAway(f"{name} {what}. {instead}") from None
        faults = (AuthlibBaseError, JoseError, ValueError, LookupError, TypeError, AttributeError)
        if isinstance(error, faults):
            raise ProviderUntrusted(f"What {name} answered cannot be trusted: {_reason(error)}.") from None


def _reason(error: BaseException) -> str:
    return str(getattr(error, "error", "") or error or type(error).__name__)[:200]
