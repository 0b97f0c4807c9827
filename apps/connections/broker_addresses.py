"""Addresses of brokers as connections have them: servers, TLS, user and mechanism; the token is the password.

``kafka://host:port,host:port``, with TLS ``kafka+ssl://…``; with SASL the user stands before the hosts, and
``?sasl=SCRAM-SHA-512`` behind them.
"""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote

from apps.connections.transport import ALLOWED_ADDRESSES, is_allowed, is_listed_host
from apps.core.addresses import PrivateAddress
from apps.core.errors import Fault

__all__ = ["SASL_MECHANISMS", "BrokerAddress", "broker_faults", "is_broker_url"]

SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_SCHEMES = {"kafka": False, "kafka+ssl": True}
_URL = re.compile(r"(?P<scheme>[a-z+]+)://(?:(?P<user>[^@/?#]*)@)?(?P<hosts>[^@/?#]*)/?(?:\?(?P<query>[^#]*))?", re.I)
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})")


def is_broker_url(url: object) -> bool:
    """Whether an address is of a broker's own protocol."""
    return isinstance(url, str) and url.partition("://")[0].lower() in _SCHEMES


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Servers to begin with as (host, port), and settings of the connection to all brokers; without the password."""

    servers: tuple[tuple[str, int], ...]
    has_tls: bool
    user: str
    mechanism: str  #: of SASL; empty: none

    @classmethod
    def parse(cls, url: str, path: str, faults: list[Fault]) -> BrokerAddress | None:
        """An address as it is written. Adds what is wrong with it to `faults`."""
        found = _URL.fullmatch(url) if url.isprintable() and " " not in url else None
        if found is None or found["scheme"].lower() not in _SCHEMES:
            allowed = "kafka://host:port,host:port or kafka+ssl://user@host:port?sasl=SCRAM-SHA-512"
            shown = path if "@" in url else repr(url[:200])  # a password is not shown
            faults.append(Fault(path, f"{shown} cannot be used as a broker's address; allowed: {allowed}"))
            return None
        before, user = len(faults), unquote(found["user"] or "")
        if ":" in (found["user"] or ""):
            faults.append(Fault(path, f"{path} holds a password; give it as the token instead."))
        servers = []
        for part in found["hosts"].split(","):
            server = _HOST.fullmatch(part)
            if server is None or not 0 < int(server["port"]) < 65536:
                faults.append(Fault(path, f"{part!r} of {path} is no server; allowed: host:port, several with commas"))
            else:
                servers.append((server["host"].strip("[]"), int(server["port"])))
        options = parse_qsl(found["query"] or "", keep_blank_values=True)
        if unknown := sorted({name for name, _ in options} - {"sasl"}):
            faults.append(Fault(path, f"{path} has {', '.join(unknown)} after ?; allowed: sasl"))
        mechanism = dict(options).get("sasl", "PLAIN" if user else "").upper()
        if (mechanism or "sasl" in dict(options)) and mechanism not in SASL_MECHANISMS:
            allowed = ", ".join(SASL_MECHANISMS)
            faults.append(Fault(path, f"sasl of {path} is {mechanism or 'empty'}; allowed: {allowed}"))
        if mechanism and not user:
            faults.append(Fault(path, f"the user is missing in {path}; allowed: kafka+ssl://user@host:port?sasl=…"))
        if len(faults) > before:
            return None
        return cls(tuple(servers), _SCHEMES[found["scheme"].lower()], user, mechanism)

    @property
    def is_safe(self) -> bool:
        """Whether a password may be sent: within TLS, or to hosts that the administrator lists."""
        return self.has_tls or all(is_listed_host(host) for host, _ in self.servers)

    @property
    def protocol(self) -> str:
        """Name of the combination, as clients of Kafka have it."""
        return ("SASL_" if self.mechanism else "") + ("SSL" if self.has_tls else "PLAINTEXT")


def broker_faults(url: str, *, token: str, has_token: bool, path: str = "url") -> list[Fault]:
    """Faults of a broker's address and of the password for it; where its names lead is checked when it is asked."""
    faults: list[Fault] = []
    address = BrokerAddress.parse(url, path, faults)
    if address is None:
        return faults
    for host, _ in address.servers:
        with suppress(ValueError):
            if not is_allowed(host)(ipaddress.ip_address(host)):
                faults.append(Fault(path, f"{PrivateAddress(host)}; allowed: {ALLOWED_ADDRESSES}"))
    if address.user and not has_token:
        faults.append(Fault("token", f"token is missing; it is the password of the user {address.user!r}"))
    if token and not address.user:
        message = "token is a password without a user; allowed: kafka+ssl://user@host:port?sasl=SCRAM-SHA-512"
        faults.append(Fault("token", message))
    if token and not address.is_safe:
        message = "a password is not sent in the clear; allowed: with kafka+ssl, or to hosts in SLUICE_CONNECT_HOSTS"
        faults.append(Fault("token", message))
    return faults
