"""Ports of servers."""

from __future__ import annotations

import socket

from launcher.places import LOOPBACK, free_port


def test_preferred_port_is_taken_while_it_is_free() -> None:
    wanted = free_port()
    assert free_port(wanted) == wanted
    with socket.create_server((LOOPBACK, wanted)):
        assert free_port(wanted) != wanted


def test_free_port_is_none_of_an_outgoing_connection() -> None:
    assert all(1024 < free_port() < 32_768 for _ in range(20)), "Linux gives connections those from there on"
