"""Addresses of the public internet, and those that only look so."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest

from apps.core.addresses import PrivateAddress, is_public, resolve_host


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "2606:2800:220:1:248:1893:25c8:1946",
        "::ffff:93.184.216.34",
        "64:ff9b::93.184.216.34",
        "2002:5db8:d822::1",
    ],
)
def test_public_address_is_public(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *["0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "169.254.169.254", "172.16.0.1", "192.168.1.1"],
        *["192.0.0.8", "192.0.2.1", "192.88.99.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"],
        *["::", "::1", "fe80::1", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "ff0e::1"],
        *["::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "::127.0.0.1", "::10.0.0.1"],
        *["64:ff9b::10.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::10.0.0.1", "64:ff9b:1::1"],
        *["2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::", "2001::1", "2001:0:5db8:d822::f5ff:fffe"],
        *["2606:2800::5efe:10.0.0.1", "2606:2800::200:5efe:127.0.0.1"],
        *["2001:db8::1", "3fff::1", "100::1", "5f00::1", "4000::1", "e000::1", "2001:2::1", "2001:10::1"],
    ],
)
def test_address_that_leads_elsewhere_is_not_public(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


def test_refusal_does_not_tell_where_a_name_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: Any, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.11.12.13", 80))]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with pytest.raises(PrivateAddress) as refused:
        resolve_host("db.corp.example", 80, is_public)
    assert "10.11" not in str(refused.value) and "10.11" not in str(vars(refused.value))
