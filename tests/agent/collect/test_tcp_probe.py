"""Probes over real sockets, and figures of this host."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent.collect import Collector
from agent.collect.options import HOST_COLUMNS, PROBE_COLUMNS
from launcher.places import free_port
from tests.agent.collect.collectors import collector_of
from tests.servers import PATIENCE_S, wait_until

COLUMNS = {"ts": "timestamp"} | PROBE_COLUMNS


@contextmanager
def prober(**options: Any) -> Iterator[Collector]:
    given = {"interval_s": 0.05, "timeout_s": 30.0} | options
    source = collector_of("tcp_probe", given, COLUMNS, name="probes")
    try:
        yield source
    finally:
        source.close()


def rows(source: Collector, count: int, **where: Any) -> list[dict[str, Any]]:
    """Records as they come, until there are so many that say `where`."""
    seen: list[dict[str, Any]] = []

    def enough() -> bool:
        for batch in source.poll(time.time_ns() // 1000, 1000):
            assert batch.schema.equals(source.schema)
            seen.extend(batch.to_pylist())
        return len([row for row in seen if where.items() <= row.items()]) >= count

    wait_until(enough, what=f"{count} probes with {where}")
    return seen


def test_two_agents_probe_each_other() -> None:
    ports = [free_port(), free_port()]
    peers = [
        {"address": f"127.0.0.1:{port}", "name": name, "cluster": "eu"} for port, name in zip(ports, "ab", strict=True)
    ]
    with (
        prober(listen=f"127.0.0.1:{ports[0]}", name="a", cluster="eu", peers=peers[1:]) as a,
        prober(listen=f"127.0.0.1:{ports[1]}", name="b", cluster="us", peers=peers[:1]) as b,
    ):
        a.poll(0, 10), b.poll(0, 10)
        from_a, from_b = rows(a, 5, err_code=0), rows(b, 5, err_code=0)
    good = [row for row in from_a if row["err_code"] == 0]
    assert {(row["src_ip"], row["src_cluster"], row["dst_ip"], row["dst_cluster"]) for row in good} == {
        ("a", "eu", "b", "eu")
    }
    assert {row["dst_ip"] for row in from_b} == {"a"}
    assert all(0 < row["rtt_us"] < 30_000_000 for row in good)
    stamps = [row["ts"] for row in from_a]
    assert stamps == sorted(stamps)


def test_dead_and_unanswering_peers_are_reported_with_their_error() -> None:
    silent = socket.create_server(("127.0.0.1", 0))
    try:
        peers = [
            {"address": f"127.0.0.1:{free_port()}", "name": "dead"},
            {"address": f"127.0.0.1:{silent.getsockname()[1]}", "name": "silent"},
        ]
        with prober(peers=peers, timeout_s=1.0) as source:
            seen = rows(source, 2, dst_ip="silent")
    finally:
        silent.close()
    codes = {row["dst_ip"]: row["err_code"] for row in seen}
    assert codes == {"dead": errno.ECONNREFUSED, "silent": errno.ETIMEDOUT}
    assert all(row["rtt_us"] is None for row in seen)


def test_the_watermark_is_below_every_later_record() -> None:
    port = free_port()
    with prober(listen=f"127.0.0.1:{port}", peers=[{"address": f"127.0.0.1:{port}"}], interval_s=0.002) as source:
        mark = 0
        until = time.monotonic() + PATIENCE_S
        while source.report()["records"] < 300:
            assert time.monotonic() < until
            for batch in source.poll(0, 7):
                stamps = batch.column("ts").cast("int64").to_pylist()
                assert min(stamps) >= mark
            assert source.watermark_us() >= mark
            mark = source.watermark_us()


def test_a_full_buffer_sheds_and_says_so() -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    with prober(listen=address, peers=[{"address": address}] * 20, interval_s=0.01, buffer_records=1000) as source:
        source.poll(0, 1)
        wait_until(lambda: source.records_shed > 0, what="a record that is shed")
        assert source.report()["state"] == "shedding"
        assert sum(batch.num_rows for batch in source.poll(0, 5000)) == 1000


def test_taken_port_is_reported_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.collect.tcp_probe._RETRY_S", 0.05)
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with prober(listen=f"127.0.0.1:{port}", peers=[{"address": f"127.0.0.1:{port}"}]) as source:
        source.poll(0, 10)
        report = source.report()
        assert report["state"] == "cannot listen"
        assert report["faults"] == [f"listen is 127.0.0.1:{port}: Address already in use"]
        taken.close()
        rows(source, 1, err_code=0)
        assert source.report()["faults"] == []


def test_foreign_caller_of_the_probe_port_does_no_harm() -> None:
    port = free_port()
    with prober(listen=f"127.0.0.1:{port}", peers=[{"address": f"127.0.0.1:{port}"}]) as source:
        rows(source, 1, err_code=0)
        for noise in (b"", b"GET / HTTP/1.1\r\n\r\n", b"x" * 100_000):
            with socket.create_connection(("127.0.0.1", port)) as caller:
                caller.sendall(noise)
        rows(source, 5, err_code=0)


def test_host_metrics_on_the_grid_of_their_interval() -> None:
    columns = {"ts": "timestamp"} | HOST_COLUMNS
    source = collector_of("host_metrics", {"interval_s": 1.0, "host": "h"}, columns)
    given = [batch for us in range(0, 3_500_000, 100_000) for batch in source.poll(1_000_000_000_250_000 + us, 10)]
    made = [row for batch in given for row in batch.to_pylist()]
    assert [row["ts"].microsecond for row in made] == [250_000, 50_000, 50_000, 50_000]
    assert source.watermark_us() == 1_000_000_003_650_000
    for row in made:
        assert row["host"] == "h"
        assert 0 <= row["memory_percent"] <= 100
        assert row["memory_used_bytes"] > 0
        assert row["processes"] >= 1
        assert row["disk_percent"] is not None
        assert min(row[name] for name in HOST_COLUMNS if name.startswith(("net_", "disk_read", "disk_write"))) >= 0


def test_missing_spool_folder_is_a_fault() -> None:
    columns = {"ts": "timestamp", "disk_percent": "float64"}
    source = collector_of("host_metrics", {"disk": "/no/such/place"}, columns)
    (batch,) = source.poll(1_000_000, 10)
    assert batch.column("disk_percent").to_pylist() == [None]
    assert source.report()["faults"] == ["disk is '/no/such/place': No such file or directory"]
