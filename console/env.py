"""The one module that reads the environment. Every setting of Sluice is an attribute of `ENV`."""

from __future__ import annotations

import ipaddress
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from apps.signin.provider_settings import ProviderSettings
from engine.redaction import LOG_FORMATS

__all__ = ["BASE_DIR", "ENV", "Env", "EnvError", "variable_of"]

BASE_DIR = Path(__file__).resolve().parent.parent
_SHARED = {"database_url": "DATABASE_URL", "redis_url": "REDIS_URL"}  # names that other tools know, too
_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


_ROLES = ("viewer", "author", "operator", "admitter", "admin")
_LOOPBACK = "127.0.0.0/8,::1"
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\Z", re.IGNORECASE)
_ORIGIN = re.compile(r"https?://(\*\.)?[a-z0-9_.-]{1,253}(:[0-9]{1,5})?\Z", re.IGNORECASE)


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_network(text)
        return True
    except ValueError:
        return "/" not in text and _HOST_NAME.match(text) is not None


class EnvError(ValueError):
    """Variables have values that Sluice cannot use; the message names each, its value and what is allowed."""


def variable_of(field: str) -> str:
    """Name of the environment variable behind an attribute of `Env`."""
    return _SHARED.get(field, f"SLUICE_{field.upper()}")


class _Reader:
    """Reads fields from an environment and collects every fault on the way."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.faults: list[str] = []

    def text(self, field: str, default: str = "") -> str:
        return self._environ.get(variable_of(field), "").strip() or default

    def words(self, field: str, default: str = "") -> list[str]:
        return [part.strip() for part in self.text(field, default).split(",") if part.strip()]

    def hosts(self, field: str, default: str) -> list[str]:
        """Names of hosts, addresses, and networks such as 10.1.0.0/16; `none` for an empty list."""
        hosts = [] if self.text(field, default).lower() == "none" else self.words(field, default)
        if not all(map(_is_host, hosts)):
            self._fault(
                field, "names of hosts, addresses and networks such as 10.1.0.0/16, with commas between; or none"
            )
        return [host.lower() for host in hosts]

    def networks(self, field: str) -> list[str]:
        """Addresses and networks such as 10.1.0.0/16; none unless given."""
        networks = []
        for word in self.words(field):
            try:
                networks.append(str(ipaddress.ip_network(word, strict=False)))
            except ValueError:
                self._fault(field, "addresses and networks such as 10.1.0.5 or 10.1.0.0/16, with commas between")
                return []
        return networks

    def origins(self, field: str) -> list[str]:
        """Origins such as https://grafana.example.org; they stand in a header, and hold nothing else."""
        origins = self.words(field)
        if not all(map(_ORIGIN.match, origins)):
            self._fault(field, "origins such as https://grafana.example.org, with commas between")
            return []
        return [origin.lower() for origin in origins]

    def flag(self, field: str) -> bool:
        text = self.text(field, "0").lower()
        if text not in _TRUE + _FALSE:
            self._fault(field, f"{'/'.join(_TRUE)} or {'/'.join(_FALSE)}")
        return text in _TRUE

    def number(self, field: str, default: float, low: float, high: float) -> float:
        text = self.text(field)
        try:
            value = float(text) if text else default
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            self._fault(field, f"a number from {low:g} to {high:g}")
        return value

    def whole(self, field: str, default: int, low: int, high: int) -> int:
        text = self.text(field) or str(default)
        if not text.isdecimal() or not low <= int(text) <= high:
            self._fault(field, f"a whole number from {low} to {high}")
            return default
        return int(text)

    def level(self, field: str, default: str) -> str:
        name = self.text(field, default).upper()
        if name not in _LEVELS:
            self._fault(field, f"one of {', '.join(_LEVELS)}")
        return name

    def url(self, field: str, schemes: tuple[str, ...], default: str = "") -> str:
        text = self.text(field, default)
        if text and not text.startswith(tuple(f"{scheme}:" for scheme in schemes)):
            # the value itself is not repeated: it may hold a password
            self.faults.append(f"{variable_of(field)}: allowed is a URL that begins with one of {', '.join(schemes)}")
        return text

    def server(self, field: str, schemes: tuple[str, ...]) -> str:
        """A URL that names a host, with a port that is one."""
        text = self.url(field, schemes)
        try:
            usable = not text or (bool(urlsplit(text).hostname) and urlsplit(text).port != 0)
        except ValueError:
            usable = False
        if not usable:
            self.faults.append(f"{variable_of(field)}: allowed is a URL with a host, such as {schemes[0]}://host:port")
        return text if usable else ""

    def collector(self, field: str) -> str:
        """A server of HTTP that traces go to, if there are the packages that send them."""
        text = self.server(field, ("http", "https"))
        if "?" in text or "#" in text:
            self.faults.append(f"{variable_of(field)}: allowed is a URL without a query, such as http://collector:4318")
        if text:
            try:
                version("opentelemetry-exporter-otlp-proto-http")
            except PackageNotFoundError:
                self.faults.append(
                    f"{variable_of(field)}: traces need packages that are not installed: "
                    ".venv/bin/python -m pip install -r deploy/traces.txt"
                )
        return text

    def secret_file(self, field: str) -> str:
        """Path of a file that holds a secret and can be read; neither is repeated where it does not."""
        path = self.text(field)
        try:
            if path and not Path(path).read_text().strip():
                self.faults.append(f"{variable_of(field)}: the file is empty")
        except (OSError, UnicodeError) as error:
            self.faults.append(f"{variable_of(field)}: the file cannot be read: {type(error).__name__}")
        return path

    def issuer(self, field: str) -> str:
        """A provider of OpenID Connect: encrypted, but on this machine."""
        text = self.server(field, ("https", "http"))
        if text and urlsplit(text).scheme != "https" and urlsplit(text).hostname not in _LOCAL_HOSTS:
            self.faults.append(f"{variable_of(field)}: allowed is https, and http on this machine alone")
        if "?" in text or "#" in text:
            self.faults.append(f"{variable_of(field)}: allowed is a URL without a query")
        return text

    def roles(self, field: str) -> list[str]:
        names = self.words(field)
        if not set(names) <= set(_ROLES):
            self._fault(field, f"of {', '.join(_ROLES)}, with commas between")
        return names

    def choice(self, field: str, default: str, allowed: tuple[str, ...]) -> str:
        text = self.text(field, default)
        if text not in allowed:
            self._fault(field, f"one of {', '.join(allowed)}")
        return text

    def all_or_none(self, *fields: str) -> None:
        """Variables that mean nothing without each other."""
        lacking = [variable_of(field) for field in fields if not self.text(field)]
        if 0 < len(lacking) < len(fields):
            together = ", ".join(map(variable_of, fields))
            self.faults.append(f"{', '.join(lacking)}: not given, and {together} go together")

    def _fault(self, field: str, allowed: str) -> None:
        self.faults.append(f"{variable_of(field)}={self.text(field)!r}: allowed is {allowed}")


@dataclass(frozen=True)
class Env:
    """Settings read once at start.

    Attributes name the variable in lower case without the `SLUICE_` prefix; docs/operations.md lists them all.
    """

    debug: bool
    secret_key: str
    secret_key_fallbacks: list[str]
    allowed_hosts: list[str]
    trusted_origins: list[str]
    trusted_proxies: list[str]
    database_url: str
    database_connections: int
    redis_url: str
    var_dir: Path
    log_level: str
    log_format: str
    demo: bool
    https: bool
    upload_max_mb: float
    stream_max_mb: float
    bases_max_mb: float
    worker_concurrency: int
    task_visibility_s: float
    plans_every_h: float
    undo_days: int
    ledger_days: int
    ledger_syslog: str
    ledger_webhook: str
    ledger_webhook_secret_file: str
    email_url: str
    email_from: str
    public_url: str
    webhook_private: bool
    connect_hosts: list[str]
    metrics_networks: list[str]
    metrics_listed: int
    embed_origins: list[str]
    otlp_endpoint: str
    oidc_issuer: str
    oidc_client_id: str
    oidc_client_secret_file: str
    oidc_name: str
    oidc_scopes: str
    oidc_groups_claim: str
    oidc_username_claim: str
    oidc_role: str
    local_accounts: list[str]
    second_factor_roles: list[str]

    @classmethod
    def read(cls, environ: Mapping[str, str] = os.environ) -> Env:
        """Read all variables.

        Raises
        ------
        EnvError
            With every value that is not allowed, one line each.
        """
        reader = _Reader(environ)
        env = cls(
            debug=reader.flag("debug"),
            secret_key=reader.text("secret_key"),
            secret_key_fallbacks=reader.words("secret_key_fallbacks"),
            allowed_hosts=reader.words("allowed_hosts", "localhost,127.0.0.1,[::1]"),
            trusted_origins=reader.words("trusted_origins"),
            trusted_proxies=reader.networks("trusted_proxies"),
            database_url=reader.url("database_url", ("postgres", "postgresql", "sqlite")),
            database_connections=reader.whole("database_connections", 20, 2, 500),
            redis_url=reader.url("redis_url", ("redis", "rediss", "unix"), "redis://127.0.0.1:6399/0"),
            var_dir=Path(reader.text("var_dir", str(BASE_DIR / "var"))),
            log_level=reader.level("log_level", "INFO"),
            log_format=reader.choice("log_format", LOG_FORMATS[0], LOG_FORMATS),
            demo=reader.flag("demo"),
            https=reader.flag("https"),
            upload_max_mb=reader.number("upload_max_mb", 20, 1, 1024),
            stream_max_mb=reader.number("stream_max_mb", 256, 64, 1_048_576),
            bases_max_mb=reader.number("bases_max_mb", 2048, 0, 1_048_576),
            worker_concurrency=reader.whole("worker_concurrency", 2, 1, 64),
            task_visibility_s=reader.number("task_visibility_s", 900, 10, 86400),
            plans_every_h=reader.number("plans_every_h", 24, 0, 8760),
            undo_days=reader.whole("undo_days", 30, 1, 3650),
            ledger_days=reader.whole("ledger_days", 400, 1, 36500),
            ledger_syslog=reader.server("ledger_syslog", ("tcp", "tls")),
            ledger_webhook=reader.server("ledger_webhook", ("https", "http")),
            ledger_webhook_secret_file=reader.secret_file("ledger_webhook_secret_file"),
            email_url=reader.server("email_url", ("smtp", "smtps", "smtp+tls")),
            email_from=reader.text("email_from", "sluice@localhost"),
            public_url=reader.server("public_url", ("http", "https")),
            webhook_private=reader.flag("webhook_private"),
            connect_hosts=reader.hosts(
                "connect_hosts", _LOOPBACK if reader.flag("demo") or reader.flag("debug") else ""
            ),
            metrics_networks=reader.networks("metrics_networks"),
            embed_origins=reader.origins("embed_origins"),
            otlp_endpoint=reader.collector("otlp_endpoint"),
            metrics_listed=reader.whole("metrics_listed", 1000, 1, 20_000),
            oidc_issuer=reader.issuer("oidc_issuer"),
            oidc_client_id=reader.text("oidc_client_id"),
            oidc_client_secret_file=reader.secret_file("oidc_client_secret_file"),
            oidc_name=reader.text("oidc_name", "single sign-on"),
            oidc_scopes=reader.text("oidc_scopes", "openid profile email"),
            oidc_groups_claim=reader.text("oidc_groups_claim", "groups"),
            oidc_username_claim=reader.text("oidc_username_claim", "preferred_username"),
            oidc_role=reader.choice("oidc_role", "viewer", ("none", *_ROLES)),
            local_accounts=reader.words("local_accounts"),
            second_factor_roles=reader.roles("second_factor_roles"),
        )
        reader.all_or_none("ledger_webhook", "ledger_webhook_secret_file")
        reader.all_or_none("oidc_issuer", "oidc_client_id", "oidc_client_secret_file")
        if env.local_accounts and not env.oidc_issuer:
            reader.faults.append("SLUICE_LOCAL_ACCOUNTS: without SLUICE_OIDC_ISSUER nobody else could sign in")
        if reader.faults:
            raise EnvError("\n".join(reader.faults))
        return env

    @property
    def provider(self) -> ProviderSettings | None:
        """The provider of OpenID Connect, if one is configured."""
        if not self.oidc_issuer:
            return None
        return ProviderSettings(
            name=self.oidc_name,
            issuer=self.oidc_issuer,
            client_id=self.oidc_client_id,
            client_secret=Path(self.oidc_client_secret_file).read_text().strip(),
            scopes=self.oidc_scopes,
            groups_claim=self.oidc_groups_claim,
            username_claim=self.oidc_username_claim,
        )


def _read_or_leave() -> Env:
    """A wrong variable ends any command with a sentence, not with a stack trace."""
    try:
        return Env.read()
    except EnvError as error:
        sys.exit(f"sluice: the environment is not usable:\n{error}")


ENV = _read_or_leave()
