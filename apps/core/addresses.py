"""Addresses that requests may go to: URLs as written, and where their names lead."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

__all__ = [
    "IPAddress",
    "PrivateAddress",
    "UnknownHost",
    "host_of",
    "is_public",
    "is_within",
    "resolve_host",
    "split_url",
]

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class UnknownHost(Exception):
    """A name that leads nowhere now."""


class PrivateAddress(Exception):
    """A name that leads to an address which requests may not go to; `address` is it."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(f"{host} is {address}, in a private network")
        self.address = address


def split_url(url: object) -> SplitResult | None:
    """Parts of a URL; None for what is none."""
    try:
        parts = urlsplit(url) if isinstance(url, str) and url.isprintable() and " " not in url else None
        if parts is not None:
            _ = parts.port  # raises for a port that is none
        return parts
    except ValueError:
        return None


def host_of(url: str) -> str:
    """Part of an address that may be shown to everybody: the rest often holds a secret."""
    parts = split_url(url)
    return (parts.hostname if parts is not None else None) or ""


def resolve_host(host: str, port: int, is_allowed: Callable[[IPAddress], bool]) -> str:
    """The first address of a host, to connect to without looking the name up a second time.

    Raises
    ------
    UnknownHost
        The name leads nowhere.
    PrivateAddress
        Any of its addresses is not allowed.
    """
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnknownHost(f"{host} is not known: {error}") from None
    addresses = [str(entry[4][0]) for entry in entries]
    for address in addresses:
        if not is_allowed(ipaddress.ip_address(address.partition("%")[0])):
            raise PrivateAddress(host, address)
    return addresses[0]


def is_within(address: str, networks: Iterable[str]) -> bool:
    """Whether the address that somebody asks from is in one of these networks; what is no address is in none.

    >>> is_within("::ffff:10.1.2.3", ["10.0.0.0/8"]), is_within("10.1.2.3, 8.8.8.8", ["10.0.0.0/8"])
    (True, False)
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return any((mapped or parsed) in ipaddress.ip_network(network) for network in networks)


def is_public(address: IPAddress) -> bool:
    """Whether an address, or the IPv4 one that it stands for, is of the public internet and of one machine."""
    inner = _embedded_address(address)
    return inner.is_global and not inner.is_multicast


def _embedded_address(address: IPAddress) -> IPAddress:
    """The IPv4 address that an IPv6 one stands for: mapped, 6to4, or behind a NAT64 gateway."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
