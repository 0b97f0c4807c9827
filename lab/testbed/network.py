"""Networks of hosts by ``ip`` and ``tc``: a namespace for each, joined by a bridge, with rates in both directions."""

from __future__ import annotations

import ipaddress
import json
import subprocess
from collections.abc import Sequence
from typing import Any

__all__ = [
    "NetworkFault",
    "add_bridge",
    "add_host",
    "bridges",
    "free_network",
    "namespaces",
    "remove_bridge",
    "remove_namespace",
    "set_rate",
]

#: Addresses that are kept for measurements of networks (RFC 2544); each testbed has 256 of them.
_ADDRESSES = ipaddress.IPv4Network("198.18.0.0/15")
_MIN_BURST_BYTES = 5_000  # three packets
_BURST_S = 0.004  # of a link's rate that may go at once; the clock of the kernel ticks every 4 ms or faster
_QUEUE_S = 0.2  # longest wait at a link, after which packets are dropped
_INSIDE = "eth0"


class NetworkFault(Exception):
    """``ip`` or ``tc`` refused something; the message has its words."""


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NetworkFault(f"{' '.join(words)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _rows(*words: str) -> list[dict[str, Any]]:
    return [row for row in json.loads(_call("ip", "-j", *words) or "[]") if row]


def bridges(prefix: str) -> list[str]:
    """Bridges whose name begins so."""
    names = [str(row["ifname"]) for row in _rows("link", "show", "type", "bridge")]
    return sorted(name for name in names if name.startswith(prefix))


def namespaces(prefix: str) -> list[str]:
    """Network namespaces whose name begins so."""
    return sorted(name for row in _rows("netns", "list") if (name := str(row["name"])).startswith(prefix))


def free_network() -> ipaddress.IPv4Network:
    """First network of 256 addresses that this machine has no address in. Raises `NetworkFault`."""
    taken = [
        ipaddress.ip_interface(f"{address['local']}/{address['prefixlen']}").network
        for row in _rows("-4", "address", "show")
        for address in row.get("addr_info", ())
        if "local" in address
    ]
    for network in _ADDRESSES.subnets(new_prefix=24):
        if not any(network.overlaps(other) for other in taken):
            return network
    raise NetworkFault(f"no network of {_ADDRESSES} is free")


def add_bridge(name: str, address: str) -> None:
    """A bridge that is this machine's own end, with its address such as ``198.18.0.1/24``."""
    _call("ip", "link", "add", name, "type", "bridge")
    _call("ip", "address", "add", address, "dev", name)
    _call("ip", "link", "set", name, "up")


def add_host(bridge: str, namespace: str, cable: str, address: str, mbit_s: float | None) -> None:
    """A namespace with one link to the bridge. `cable`: name of the link's outer end."""
    _call("ip", "netns", "add", namespace)
    _call("ip", "link", "add", cable, "type", "veth", "peer", "name", _INSIDE, "netns", namespace)
    _call("ip", "link", "set", cable, "master", bridge, "up")
    _call("ip", "-n", namespace, "link", "set", "lo", "up")
    _call("ip", "-n", namespace, "address", "add", address, "dev", _INSIDE)
    _call("ip", "-n", namespace, "link", "set", _INSIDE, "up")
    set_rate(namespace, cable, mbit_s)


def set_rate(namespace: str, cable: str, mbit_s: float | None) -> None:
    """Rate of a link in each direction, Mbit/s, from now on; None for as fast as it goes."""
    for words in (["tc", "-n", namespace, "qdisc"], ["tc", "qdisc"]):
        device = _INSIDE if len(words) > 2 else cable
        if mbit_s is not None:
            _call(*words, "replace", "dev", device, "root", *_filter(mbit_s))
        elif '"tbf"' in _call(*words[:1], "-j", *words[1:], "show", "dev", device):
            _call(*words, "del", "dev", device, "root")


def _filter(mbit_s: float) -> Sequence[str]:
    bits_s = round(mbit_s * 1e6)
    burst = max(_MIN_BURST_BYTES, round(bits_s / 8 * _BURST_S))
    queue = burst + max(2 * _MIN_BURST_BYTES, round(bits_s / 8 * _QUEUE_S))
    return ("tbf", "rate", f"{bits_s}bit", "burst", str(burst), "limit", str(queue))


def remove_namespace(name: str) -> None:
    """Remove a namespace with its link."""
    _call("ip", "netns", "del", name)


def remove_bridge(name: str) -> None:
    """Remove a bridge and what still hangs on it: the kernel may be slow to take links with their namespace."""
    for row in _rows("link", "show", "master", name):
        subprocess.run(["ip", "link", "del", str(row["ifname"])], capture_output=True, check=False)
    _call("ip", "link", "del", name)
