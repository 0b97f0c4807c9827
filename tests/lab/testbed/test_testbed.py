"""Hosts that are several, for real: what they have is held to, they reach each other, and nothing of them stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import DocumentError
from lab.testbed import network
from lab.testbed import testbed as testbeds
from lab.testbed.command import main
from lab.testbed.cpu_groups import find_mounts
from lab.testbed.testbed import Host, Testbed, TestbedMissing, missing_needs, remove_testbeds

pytestmark = pytest.mark.process
needs_testbed = pytest.mark.skipif(bool(missing_needs()), reason=f"no testbed: {'; '.join(missing_needs())}")

_PYTHON = sys.executable
_LISTEN = """
import socket
server = socket.create_server(("", 7000))
print("ready", flush=True)
other, _ = server.accept()
count = 0
while part := other.recv(65536):
    count += len(part)
other.sendall(str(count).encode())
"""
_SEND = """
import socket, sys, time
other = socket.create_connection((sys.argv[1], 7000), timeout=30)
begin = time.monotonic()
other.sendall(bytes(int(sys.argv[2])))
other.shutdown(socket.SHUT_WR)
print(other.recv(100).decode(), time.monotonic() - begin)
"""
_BUSY = "while True: pass"
_OWNER = """
import sys, time
from lab.testbed.testbed import Host, Testbed
with Testbed([Host("alone", 0.1)], name=sys.argv[1]) as bed:
    bed.start("alone", ["sleep", "600"])
    print("made", flush=True)
    time.sleep(600)
"""


def left_behind(name: str) -> list[str]:
    """All that this machine has of a testbed, looked for beside the code that makes it."""
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout.split()
    found = [word for word in links if word.startswith(f"slt-{name}")]
    found += [str(path) for path in Path("/run/netns").glob(f"slt-{name}*")]
    mounts = find_mounts()
    assert mounts is not None
    found += [str(path) for root in mounts.roots for path in root.glob(f"slt-{name}*")]
    return found + [str(path) for path in Path("/run/sluice-testbed").glob(f"{name}.*")]


def send(bed: Testbed, to: str, count: int) -> tuple[int, float]:
    """Send bytes from host a to another; what it says it got, and seconds."""
    with bed.start(to, [_PYTHON, "-c", _LISTEN], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        done = bed.run(
            "a", [_PYTHON, "-c", _SEND, bed.address(to), str(count)], capture_output=True, text=True, check=True
        )
    got, seconds = done.stdout.split()
    return int(got), float(seconds)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed([Host("a"), Host("slow", mbit_s=8.0), Host("small", cores=0.2), Host("free")]) as made:
        yield made


@needs_testbed
def test_hosts_reach_each_other_by_their_addresses(bed: Testbed) -> None:
    assert send(bed, "free", 1000)[0] == 1000
    assert len({bed.address(host.name) for host in bed.hosts}) == 4


@needs_testbed
def test_transfer_takes_what_the_rate_of_the_link_says(bed: Testbed) -> None:
    got, seconds = send(bed, "slow", 2_000_000)
    assert got == 2_000_000
    assert seconds == pytest.approx(2.0, rel=0.15)  # 16 Mbit at 8 Mbit/s


@needs_testbed
def test_changed_rate_holds_from_then_on(bed: Testbed) -> None:
    bed.limit("slow", mbit_s=32.0)
    try:
        assert send(bed, "slow", 4_000_000)[1] == pytest.approx(1.0, rel=0.15)
    finally:
        bed.limit("slow", mbit_s=8.0)


def used_cores(bed: Testbed, host: str, seconds: float) -> float:
    with bed.start(host, [_PYTHON, "-c", _BUSY]) as process:
        time.sleep(0.3)
        used_s, begin = bed.used_s(host), time.monotonic()
        time.sleep(seconds)
        used_s, passed_s = bed.used_s(host) - used_s, time.monotonic() - begin
        process.kill()
    return used_s / passed_s


@needs_testbed
def test_busy_loop_gets_its_share_of_the_cores_and_no_more(bed: Testbed) -> None:
    # others may use the machine meanwhile: no less than a part of it, and never more
    assert 0.08 < used_cores(bed, "small", 2.0) < 0.27
    assert bed.throttled_s("small") > 0.1
    bed.limit("small", cores=0.05)
    assert 0.02 < used_cores(bed, "small", 2.0) < 0.07


@needs_testbed
def test_unknown_host_is_refused_with_those_that_are_there(bed: Testbed) -> None:
    with pytest.raises(DocumentError, match="host is 'nobody'; allowed: a, slow, small, free"):
        bed.start("nobody", ["true"])


@needs_testbed
def test_second_testbed_stands_beside_the_first(bed: Testbed) -> None:
    with Testbed([Host("a")]) as other:
        assert other.address("a") not in {bed.address(host.name) for host in bed.hosts}
        assert {bed.name, other.name} <= set(testbeds.testbed_names())
    assert left_behind(other.name) == []
    assert left_behind(bed.name)


@needs_testbed
def test_nothing_stays_after_leaving_though_processes_ran() -> None:
    with Testbed([Host("a", 0.1, 10.0), Host("b")]) as made:
        process = made.start("a", ["sleep", "600"])
        made.start("a", ["sh", "-c", "sleep 600 & sleep 600"]).poll()
    assert process.wait(5) == -signal.SIGKILL
    assert left_behind(made.name) == []


@needs_testbed
def test_nothing_stays_after_an_exception() -> None:
    with pytest.raises(ValueError, match="of the caller"), Testbed([Host("a", 0.1)]) as made:
        raise ValueError("of the caller")
    assert left_behind(made.name) == []


@needs_testbed
def test_fault_while_it_is_made_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(namespace: str, cable: str, mbit_s: float | None) -> None:
        raise network.NetworkFault("the kernel has no tbf")

    monkeypatch.setattr(network, "set_rate", refuse)
    made = Testbed([Host("a", 0.1, 5.0)])
    with pytest.raises(network.NetworkFault, match="no tbf"):
        made.create(is_owned=True)
    assert left_behind(made.name) == []


@needs_testbed
def test_killed_owner_is_cleaned_up_after_and_a_living_one_is_not() -> None:
    with subprocess.Popen([_PYTHON, "-c", _OWNER, "killed"], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "made\n"
        assert "killed" not in remove_testbeds()
        owner.kill()
        owner.wait()
        assert left_behind("killed")
        assert "killed" in remove_testbeds()
    assert left_behind("killed") == []


@needs_testbed
def test_what_says_nothing_of_its_owner_is_removed_too() -> None:
    mounts = find_mounts()
    assert mounts is not None
    mounts.group("slt-half-a").create(0.1)
    network.add_bridge("slt-half", "198.19.255.1/24")
    assert "half" in testbeds.testbed_names()
    assert "half" in remove_testbeds()
    assert left_behind("half") == []


@needs_testbed
def test_commands_make_run_list_and_remove(capfd: pytest.CaptureFixture[str]) -> None:
    if "bed" in testbeds.testbed_names():
        pytest.skip("somebody's testbed of the command line stands")
    try:
        assert main(["up", "--hosts", "2", "--cores", "0.1", "0.2", "--rates", "10"]) == 0
        assert "0.2 cores, 10 Mbit/s" in capfd.readouterr().out
        assert main(["up"]) == 1
        assert "stands already" in capfd.readouterr().err
        assert main(["run", "host2", "--", "sh", "-c", "ip address; exit 7"]) == 7
        assert Testbed.standing("bed").address("host2") in capfd.readouterr().out
        assert main(["run", "host3", "--", "true"]) == 2
        assert "host is 'host3'; allowed: host1, host2" in capfd.readouterr().err
        assert main(["run", "host1"]) == 2
    finally:
        assert main(["down"]) == 0
    assert left_behind("bed") == []
    assert main(["run", "host1", "true"]) == 1
    assert "No testbed 'bed' stands" in capfd.readouterr().err


@needs_testbed
def test_values_for_another_number_of_hosts_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--hosts", "3", "--cores", "0.1", "0.2"]) == 2
    assert "--cores has 2 values; allowed: one, or one of each of 3 hosts" in capsys.readouterr().err


def test_all_faults_of_hosts_are_told_at_once() -> None:
    with pytest.raises(DocumentError) as refused:
        Testbed([Host("A b", 0.0), Host("x", mbit_s=0.0), Host("x", 1e6)], name="too-long")
    paths = [fault.path for fault in refused.value.faults]
    assert paths == [
        "hosts[0].name",
        "hosts[0].cores",
        "hosts[1].mbit_s",
        "hosts[2].name",
        "hosts[2].cores",
        "name",
    ]
    with pytest.raises(DocumentError, match="there are 0 hosts; allowed: 1 to 64"):
        Testbed([])


def test_machine_without_root_is_told_all_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["status"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("SKIPPED: no testbed on this machine: it needs root; the program ip is missing")
    assert "tc is missing" in printed
    with pytest.raises(TestbedMissing, match="it needs root"):
        Testbed([Host("a")]).create(is_owned=True)
