"""``./sluice lab testbed``: several hosts on this machine, with their own cores and links, for real. Root only.

up makes them, run runs a command on one, status lists them, down removes all that up made and whatever was left behind
by a crash. mace predicts latencies on four unequal hosts and measures them there, with several placements; chunks
predicts those of later parts of a run from what was measured in the first, on one host and on several; flink predicts
and measures a job of Flink across hosts; agents compares by latency and bytes what agents keep at their hosts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.errors import EngineError
from lab.testbed.network import NetworkFault
from lab.testbed.testbed import Host, Testbed, TestbedMissing, missing_needs, remove_testbeds, testbed_names
from launcher.engines.folders import EngineMissing, FetchFailed
from launcher.progress import PatienceError
from launcher.runner import StartFailed, Stopped

__all__ = ["main"]

_NAME = "bed"


def main(arguments: Sequence[str]) -> int:
    """Do what is asked; 1 for what failed, also where this machine can have no testbed; 2 for wrong usage."""
    options = _parser().parse_args(list(arguments))
    if lacks := missing_needs():
        print(f"SKIPPED: no testbed on this machine: {'; '.join(lacks)}.", file=sys.stderr)
        return 1
    try:
        return int(options.action(options))
    except EngineError as error:
        for fault in error.faults or (error,):
            print(fault, file=sys.stderr)
        return 2
    except (TestbedMissing, NetworkFault, OSError) as error:
        print(error, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice lab testbed", description=__doc__.partition("\n\n")[2])
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    up = actions.add_parser("up", help="make hosts; they stay until down")
    up.add_argument("--hosts", type=int, default=4, help="how many: host1, host2, ... (4)")
    up.add_argument("--cores", type=float, nargs="+", metavar="CORES", help="of each host, or one for all (all cores)")
    up.add_argument(
        "--rates", type=float, nargs="+", metavar="MBIT_S", help="of each link in each direction, or one for all (free)"
    )
    up.set_defaults(action=_up)
    run = actions.add_parser("run", help="run a command on a host")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER, help="after --")
    run.set_defaults(action=_run)
    actions.add_parser("status", help="list testbeds and their hosts").set_defaults(action=_status)
    down = actions.add_parser("down", help="remove them, and what a crash left behind")
    down.add_argument("--all", action="store_true", help="also testbeds that a running program has made for itself")
    down.set_defaults(action=_down)
    mace = actions.add_parser("mace", help="latencies predicted and measured on four unequal hosts")
    mace.add_argument("--seconds", type=float, default=30.0, help="of each run (30)")
    mace.add_argument("--loads", type=float, nargs="+", default=None, metavar="LOAD", help="0.5 0.8 0.95")
    mace.add_argument("--placements", nargs="+", default=None, metavar="NAME", help="some of those there are (all)")
    mace.add_argument("--seed", type=int, default=1, help="of arrivals and costs (1)")
    mace.set_defaults(action=_mace)
    chunks = actions.add_parser("chunks", help="statistics of one part of a run predict the others, second by second")
    chunks.add_argument("--hosts", type=int, nargs="+", default=None, metavar="HOSTS", help="1 4, of 1, 4, 7 and 13")
    chunks.add_argument("--seconds", type=float, default=100.0, help="of each of the three parts (100)")
    chunks.add_argument("--seed", type=int, default=1, help="of operators, arrivals and costs (1)")
    chunks.add_argument("--csv", type=Path, help="folder for chunks.csv: every second as predicted and measured")
    chunks.set_defaults(action=_chunks)
    flink = actions.add_parser("flink", help="a Flink across hosts, with a slow host and a slow link")
    flink.add_argument(
        "--seconds", type=float, default=20.0, help="of each load (20); the light one takes twice as long"
    )
    flink.set_defaults(action=_flink)
    agents = actions.add_parser("agents", help="agents, a relay and the stream processor on hosts of their own")
    agents.add_argument("--seconds", type=float, default=30.0, help="of each run (30)")
    agents.add_argument("--shares", type=float, nargs="+", default=[0.6, 0.8], metavar="SHARE", help="0.6 0.8: budgets")
    agents.set_defaults(action=_agents)
    return parser


def _agents(options: argparse.Namespace) -> int:
    """Run agents; their imports are large, which making hosts does not need."""
    from lab.testbed.agents import report

    faults = [f"--shares has {share:g}; allowed: 0.1 to 2" for share in options.shares if not 0.1 <= share <= 2.0]
    if not 5.0 <= options.seconds <= 3600.0:
        faults.append(f"--seconds is {options.seconds:g}; allowed: 5 to 3,600")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 2 if faults else report(seconds=options.seconds, shares=options.shares)


def _mace(options: argparse.Namespace) -> int:
    """Compare; its imports compile kernels, which making hosts does not need."""
    from lab.testbed.mace import LOADS, PLACEMENTS, report

    loads = LOADS if options.loads is None else options.loads
    placements = list(PLACEMENTS) if options.placements is None else options.placements
    faults = [f"--loads has {load:g}; allowed: above 0, up to 1.5" for load in loads if not 0.0 < load <= 1.5]
    faults += [
        f"--placements has {name!r}; allowed: {', '.join(PLACEMENTS)}" for name in placements if name not in PLACEMENTS
    ]
    faults += _seconds_faults(options.seconds)
    if _tell(faults):
        return 2
    return report(seconds=options.seconds, loads=loads, placements=placements, seed=options.seed)


def _chunks(options: argparse.Namespace) -> int:
    from lab.testbed.chunks import CORES, report

    hosts = (1, 4) if options.hosts is None else options.hosts
    allowed = ", ".join(map(str, CORES))
    faults = [f"--hosts has {number}; allowed: {allowed}" for number in hosts if number not in CORES]
    if _tell(faults + _seconds_faults(options.seconds)):
        return 2
    return report(hosts=hosts, seconds=float(round(options.seconds)), seed=options.seed, folder=options.csv)


def _seconds_faults(seconds: float) -> list[str]:
    return [] if 5.0 <= seconds <= 3600.0 else [f"--seconds is {seconds:g}; allowed: 5 to 3,600"]


def _tell(faults: Sequence[str]) -> bool:
    """Print faults; whether there are any."""
    for fault in faults:
        print(fault, file=sys.stderr)
    return bool(faults)


def _flink(options: argparse.Namespace) -> int:
    """Compare; its imports compile kernels, which making hosts does not need."""
    from lab.testbed.flink import report_flink

    if _tell(_seconds_faults(options.seconds)):
        return 2
    try:
        return report_flink(seconds=options.seconds)
    except (EngineMissing, FetchFailed, StartFailed, PatienceError) as failure:
        print(failure, file=sys.stderr)
        return 1
    except (Stopped, KeyboardInterrupt):
        return 130


def _up(options: argparse.Namespace) -> int:
    cores, rates = (_each(name, getattr(options, name), options.hosts) for name in ("cores", "rates"))
    if cores is None or rates is None:
        return 2
    hosts = [Host(f"host{number + 1}", cores[number], rates[number]) for number in range(options.hosts)]
    Testbed(hosts, name=_NAME).create(is_owned=False)
    return _status(options)


def _each(name: str, values: list[float] | None, hosts: int) -> list[float | None] | None:
    """One value for every host; None, with words, where there are neither so many nor one."""
    if values is None or len(values) == 1:
        return [values[0] if values else None] * max(0, hosts)
    if len(values) == hosts:
        return list(values)
    print(f"--{name} has {len(values)} values; allowed: one, or one of each of {hosts} hosts", file=sys.stderr)
    return None


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        print("no command was given; allowed: run HOST -- COMMAND [ARGUMENTS]", file=sys.stderr)
        return 2
    return int(Testbed.standing(_NAME).run(options.host, command, check=False).returncode)


def _status(options: argparse.Namespace) -> int:
    names = testbed_names()
    for name in names:
        try:
            bed = Testbed.standing(name)
        except TestbedMissing:
            print(f"{name}: left behind by halves; `./sluice lab testbed down` removes it")
            continue
        print(f"{name}: this machine is {bed.machine_address}")
        for host in bed.hosts:
            cores = "all cores" if host.cores is None else f"{host.cores:g} cores"
            link = "a free link" if host.mbit_s is None else f"{host.mbit_s:g} Mbit/s"
            print(f"  {host.name:20} {bed.address(host.name):15} {cores}, {link}, {bed.used_s(host.name):.1f} s of CPU")
    if not names:
        print("no testbed stands")
    return 0


def _down(options: argparse.Namespace) -> int:
    removed = remove_testbeds(standing=True, owned=options.all)
    print(f"removed: {', '.join(removed)}" if removed else "nothing was there to remove")
    for name in testbed_names():
        print(f"{name} stays: a running program has made it for itself; --all removes it too")
    return 0
