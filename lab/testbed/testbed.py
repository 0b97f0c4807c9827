"""A testbed: hosts by name, processes started on them, and everything removed again, also after a crash.

All that is made is found again by its name: the namespaces, control groups and bridge of the testbed `NAME` begin with
``slt-NAME``. Beside them stands a file with its hosts and its owner, the process that made it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.errors import DocumentError, Fault
from lab.testbed import network
from lab.testbed.cpu_groups import CpuGroup, CpuMounts, find_mounts

__all__ = ["MAX_HOSTS", "Host", "Testbed", "TestbedMissing", "missing_needs", "remove_testbeds", "testbed_names"]

MAX_HOSTS = 64
_PREFIX = "slt-"
_FOLDER = Path("/run/sluice-testbed")
_HOST_NAME = re.compile(r"[a-z][a-z0-9-]{0,19}")
_BED_NAME = re.compile(r"[a-z0-9]{1,6}")  # names of links have 15 characters at most
_MIN_CORES, _MIN_MBIT_S, _MAX_MBIT_S = 0.02, 0.1, 100_000.0
_FIRST_HOST = 11  # of its network's addresses; the machine itself is .1


class TestbedMissing(Exception):
    """This machine can have no testbed; the message says all it lacks."""

    __test__ = False


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its name, cores that its processes have together, and rate of its link in each direction, Mbit/s.

    None for all cores there are, or for a link as fast as it goes.
    """

    name: str
    cores: float | None = None
    mbit_s: float | None = None


def missing_needs() -> list[str]:
    """List all that this machine lacks for a testbed."""
    lacks = [] if os.geteuid() == 0 else ["it needs root"]
    lacks += [f"the program {name} is missing (package iproute2)" for name in ("ip", "tc") if not shutil.which(name)]
    lacks += [] if shutil.which("nsenter") else ["the program nsenter is missing (package util-linux)"]
    mounts = find_mounts()
    if mounts is None:
        lacks.append("no control groups with a CPU controller are mounted")
    elif not lacks and not all(os.access(root, os.W_OK) for root in mounts.roots):
        lacks.append(f"control groups in {mounts.roots[0]} cannot be written")
    return lacks


def _needed_mounts() -> CpuMounts:
    mounts = find_mounts()
    if lacks := missing_needs():
        raise TestbedMissing(f"No testbed on this machine: {'; '.join(lacks)}.")
    assert mounts is not None
    return mounts


def _find_faults(hosts: Sequence[Host]) -> Iterator[Fault]:
    if not 1 <= len(hosts) <= MAX_HOSTS:
        yield Fault("hosts", f"there are {len(hosts)} hosts; allowed: 1 to {MAX_HOSTS}")
    most = float(os.cpu_count() or 1)
    for number, host in enumerate(hosts):
        path = f"hosts[{number}]"
        if not _HOST_NAME.fullmatch(host.name):
            yield Fault(f"{path}.name", f"name is {host.name!r}; allowed: a-z, 0-9 and -, up to 20, a letter first")
        if host.name in {other.name for other in hosts[:number]}:
            yield Fault(f"{path}.name", f"name is {host.name!r}, as of another host; allowed: each name once")
        if host.cores is not None and not _MIN_CORES <= host.cores <= most:
            yield Fault(f"{path}.cores", f"cores is {host.cores:g}; allowed: {_MIN_CORES:g} to {most:g}")
        if host.mbit_s is not None and not _MIN_MBIT_S <= host.mbit_s <= _MAX_MBIT_S:
            allowed = f"{_MIN_MBIT_S:g} to {_MAX_MBIT_S:,.0f}"
            yield Fault(f"{path}.mbit_s", f"mbit_s is {host.mbit_s:g}; allowed: {allowed}")


class Testbed:
    """Hosts that are there from entering to leaving.

    `name`: up to six of a-z and 0-9; made up unless given. Raises `DocumentError` with all faults of the hosts, and
    `TestbedMissing` when it is entered where there can be none.

    Examples
    --------
    ::

        with Testbed([Host("host1", cores=0.5), Host("host2", mbit_s=10.0)]) as bed:
            server = bed.start("host2", ["python3", "-m", "http.server"])
            bed.run("host1", ["curl", f"http://{bed.address('host2')}:8000/"])
    """

    __test__ = False

    def __init__(self, hosts: Sequence[Host], *, name: str | None = None) -> None:
        self.name = secrets.token_hex(3) if name is None else name
        faults = list(_find_faults(hosts))
        if not _BED_NAME.fullmatch(self.name):
            faults.append(Fault("name", f"name is {self.name!r}; allowed: 1 to 6 of a-z and 0-9"))
        if faults:
            raise DocumentError(faults, "testbed")
        self.hosts = tuple(hosts)
        self.machine_address = ""  #: of this machine, as hosts see it
        self._addresses: dict[str, str] = {}
        self._mounts: CpuMounts | None = None
        self._started: list[subprocess.Popen[Any]] = []

    @classmethod
    def standing(cls, name: str) -> Self:
        """A testbed that some other process has made. Raises `TestbedMissing` where there is none of that name."""
        _needed_mounts()
        record = _read_record(name)
        if not record.get("addresses"):
            known = ", ".join(testbed_names()) or "there is none"
            raise TestbedMissing(f"No testbed {name!r} stands; there are: {known}.")
        bed = cls([Host(**host) for host in record["hosts"]], name=name)
        bed._mounts = _needed_mounts()
        bed._addresses, bed.machine_address = record["addresses"], record["machine_address"]
        return bed

    def __enter__(self) -> Self:
        self.create(is_owned=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def create(self, *, is_owned: bool) -> None:
        """Make the hosts; after a fault nothing of them stays. One that is owned is void once this process is gone."""
        self._mounts = _needed_mounts()
        if self.name in testbed_names():
            raise TestbedMissing(f"A testbed {self.name!r} stands already; `./sluice lab testbed down` removes it.")
        with _turn():
            remove_testbeds()  # of owners that are gone
            self._make(is_owned)

    def _make(self, is_owned: bool) -> None:
        free = network.free_network()
        self.machine_address = str(free[1])
        self._addresses = {host.name: str(free[_FIRST_HOST + number]) for number, host in enumerate(self.hosts)}
        record = {
            "owner": [os.getpid(), _birth(os.getpid())] if is_owned else None,
            "hosts": [asdict(host) for host in self.hosts],
            "addresses": self._addresses,
            "machine_address": self.machine_address,
        }
        half = _record_path(self.name).with_suffix(".half")
        half.write_text(json.dumps(record))
        half.replace(_record_path(self.name))
        try:
            network.add_bridge(_PREFIX + self.name, f"{self.machine_address}/{free.prefixlen}")
            for number, host in enumerate(self.hosts):
                self._group(host.name).create(self._cores(host))
                address = f"{self._addresses[host.name]}/{free.prefixlen}"
                network.add_host(_PREFIX + self.name, self._full(host.name), self._cable(number), address, host.mbit_s)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """End the hosts' processes and remove all that was made."""
        for process in self._started:  # one that has not joined its group yet is missed there
            process.kill()
        for process in self._started:
            process.wait()
        _remove(self.name)

    def start(self, host: str, command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """Start a command on a host; `options` are those of `subprocess.Popen`."""
        process = subprocess.Popen(self.command(host, command), **options)
        self._started.append(process)
        return process

    def run(self, host: str, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[Any]:
        """Run a command on a host to its end; `options` are those of `subprocess.run`."""
        return subprocess.run(self.command(host, command), **options)

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """The words that run a command on a host: a shell joins its group, then becomes the command."""
        group = self._group(host)
        joins = " && ".join(f"echo $$ > {path}" for path in group.entrances())
        script = f'{joins} && exec nsenter --net=/run/netns/{self._full(host)} -- "$@"'
        return ["/bin/sh", "-c", script, "testbed", *command]

    def address(self, host: str) -> str:
        """IPv4 address of a host, which all hosts and this machine reach."""
        self._find(host)
        return self._addresses[host]

    def used_s(self, host: str) -> float:
        """CPU time that the host's processes have used so far, seconds."""
        return self._group(host).used_s()

    def throttled_s(self, host: str) -> float:
        """Time that the host's processes waited for their share of the cores, seconds."""
        return self._group(host).throttled_s()

    def limit(self, host: str, *, cores: float | None = None, mbit_s: float | None = None) -> None:
        """Change a host's cores, its link's rate, or both, while its processes run."""
        changed = Host(host, cores, mbit_s)
        if faults := list(_find_faults([changed])):
            raise DocumentError(faults, "testbed")
        number = self.hosts.index(self._find(host))
        if cores is not None:
            self._group(host).limit(cores)
        if mbit_s is not None:
            network.set_rate(self._full(host), self._cable(number), mbit_s)

    def _find(self, host: str) -> Host:
        known = {known.name: known for known in self.hosts}
        if host not in known:
            raise DocumentError([Fault("host", f"host is {host!r}; allowed: {', '.join(known)}")], "testbed")
        return known[host]

    def _group(self, host: str) -> CpuGroup:
        self._find(host)
        if self._mounts is None:
            raise TestbedMissing(f"The testbed {self.name!r} is not there yet: enter it first.")
        return self._mounts.group(self._full(host))

    def _full(self, host: str) -> str:
        return f"{_PREFIX}{self.name}-{host}"

    def _cable(self, number: int) -> str:
        return f"{_PREFIX}{self.name}-{number}"

    @staticmethod
    def _cores(host: Host) -> float:
        return float(os.cpu_count() or 1) if host.cores is None else host.cores


@contextmanager
def _turn() -> Iterator[None]:
    """One process at a time makes a testbed: each takes the first network that is free."""
    _FOLDER.mkdir(mode=0o700, exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _record_path(name: str) -> Path:
    return _FOLDER / f"{name}.json"


def _read_record(name: str) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        record = json.loads(_record_path(name).read_text())
        if isinstance(record, dict):
            return record
    return {}


def _birth(process: int) -> int | None:
    """When a process began, in ticks since the machine did; None where there is none. Ids are used again."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def testbed_names() -> list[str]:
    """Names of all testbeds of which something is left on this machine."""
    mounts = find_mounts()
    made = [*network.bridges(_PREFIX), *network.namespaces(_PREFIX)]
    made += [group.name for group in (mounts.groups(_PREFIX) if mounts is not None else ())]
    names = {name.removeprefix(_PREFIX).partition("-")[0] for name in made}
    return sorted(names | {path.stem for path in _FOLDER.glob("*.json")})


def remove_testbeds(*, owned: bool = False, standing: bool = False) -> list[str]:
    """Remove testbeds whose owner is gone; where wanted also those that are owned, and those that stand by themselves.

    Returns
    -------
    Names of those that were removed.
    """
    removed = []
    for name in testbed_names():
        record = _read_record(name)
        owner = record.get("owner")
        if _is_void(record) or (standing and owner is None) or (owned and owner is not None):
            _remove(name)
            removed.append(name)
    return removed


def _is_void(record: Mapping[str, Any]) -> bool:
    """Whether a testbed's owner is gone, or what is left does not say who it was."""
    if not record:
        return True
    owner = record.get("owner")
    return owner is not None and _birth(owner[0]) != owner[1]


def _remove(name: str) -> None:
    """Remove all that a testbed has by name; what is gone already is no fault."""
    mounts, mine = find_mounts(), f"{_PREFIX}{name}-"
    for group in mounts.groups(mine) if mounts is not None else ():
        group.remove()
    for namespace in network.namespaces(mine):
        network.remove_namespace(namespace)
    for bridge in network.bridges(_PREFIX + name):
        if bridge == _PREFIX + name:
            network.remove_bridge(bridge)
    _record_path(name).unlink(missing_ok=True)
