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
    "server_of",
    "split_url",
]

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_UNICAST = ipaddress.IPv6Network("2000::/3")  # all that the public internet has of IPv6 so far
_NOT_ROUTED = ipaddress.IPv6Network("3fff::/20")  # for documentation
#: For protocols between gateways, and relays of 6to4, which lead anywhere.
_GATEWAYS = (ipaddress.IPv4Network("192.0.0.0/24"), ipaddress.IPv4Network("192.88.99.0/24"))
#: Networks whose addresses end in an IPv4 one: mapped, translated, compatible, and behind a gateway of NAT64.
_ENDING_IN_IPV4 = [ipaddress.IPv6Network(net) for net in ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96")]
_ISATAP = (0x00005EFE, 0x02005EFE)  # before the IPv4 address in the lower half


class UnknownHost(Exception):
    """A name that leads nowhere now."""


class PrivateAddress(Exception):
    """A name that leads to an address which requests may not go to. It does not tell which: who asks may not know."""

    def __init__(self, host: str) -> None:
        super().__init__(f"{host} is in a private network")


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


def server_of(url: str) -> str:
    """Host and port of a URL, several with commas where it names several; without a user, so that all may see it."""
    try:
        return urlsplit(url).netloc.rpartition("@")[2]
    except ValueError:
        return ""


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
        raise UnknownHost(f"{host} is not known: {getattr(error, 'strerror', None) or error}") from None
    addresses = [str(entry[4][0]) for entry in entries]
    for address in addresses:
        if not is_allowed(ipaddress.ip_address(address.partition("%")[0])):
            raise PrivateAddress(host)
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
    """Whether an address, and the IPv4 one that it stands for, is of the public internet and of one machine."""
    inner = _embedded_address(address)
    if inner is not None and not is_public(inner):
        return False
    if isinstance(address, ipaddress.IPv6Address):
        is_routed = address in _UNICAST and address not in _NOT_ROUTED
        # what stands for an IPv4 address is as public as that, though its own network is none of the internet's
        return inner is not None or (is_routed and address.is_global and not address.is_multicast)
    return address.is_global and not address.is_multicast and not any(address in network for network in _GATEWAYS)


def _embedded_address(address: IPAddress) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one stands for or leads to."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    number = int(address)
    if any(address in network for network in _ENDING_IN_IPV4) or (number >> 32) & 0xFFFFFFFF in _ISATAP:
        return ipaddress.IPv4Address(number & 0xFFFFFFFF)
    return address.sixtofour
