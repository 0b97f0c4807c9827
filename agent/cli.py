"""`./sluice agent`: run, enrol, status, check."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.settings import Settings, default_name
from engine.errors import DocumentError

__all__ = ["main"]

log = logging.getLogger(__name__)

WRONG = 2  # exit code: what the user gave is wrong; 1: it did not work


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    _log_to_stderr()
    try:
        return _COMMANDS[options.command](options)
    except DocumentError as error:
        _say_faults(error)
        return WRONG


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sluice agent", description="The source agent of this host.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (
        ("run", "collect, until a signal ends it"),
        ("status", "how the agent of a file is"),
        ("check", "whether a file, and its local configuration, can be run"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument("--config", type=Path, required=True, metavar="FILE", help="the agent's file (TOML)")
    enrol = commands.add_parser("enrol", help="join a console and write the agent's file")
    enrol.add_argument("--url", required=True, help="address of the console")
    enrol.add_argument("--token", required=True, help="enrolment token, from the console's page Sources")
    enrol.add_argument("--name", default=default_name(), help="what the console calls this agent (the host's name)")
    enrol.add_argument(
        "--read-from",
        type=Path,
        action="append",
        metavar="DIR",
        help="a folder that collectors may read files from (/var/log); may be given again",
    )
    enrol.add_argument("--state-dir", type=Path, metavar="DIR", help="folder of its state (var/agents/NAME)")
    return parser


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S"
    )


def _say_faults(error: DocumentError) -> None:
    print(f"sluice agent: {error.message.split(';')[0]}:", file=sys.stderr)
    for fault in error.faults:
        print(f"  {fault}", file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    from agent.files import InUse
    from agent.identity import Refused
    from agent.service import Service

    service = Service(Settings.load(options.config))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    try:
        service.run()
    except (InUse, Refused) as why:
        print(f"sluice agent: {why}", file=sys.stderr)
        return 1
    log.info("stopped")
    return 0


def _enrol(options: argparse.Namespace) -> int:
    from agent.client import Away
    from agent.files import write_whole
    from agent.identity import Refused, enrol

    folder = options.state_dir or Path(os.environ.get("SLUICE_VAR_DIR") or "var") / "agents" / options.name
    values: dict[str, Any] = {"url": options.url, "name": options.name}
    if options.read_from:
        values["read_from"] = [str(one.absolute()) for one in options.read_from]
    settings = Settings.parse(values | {"token": options.token}, folder.absolute())
    try:
        identity = enrol(settings)
    except (Away, Refused) as why:
        print(f"sluice agent: {why}", file=sys.stderr)
        return 1
    path = folder.absolute() / "agent.toml"
    write_whole(path, "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()).encode())
    print(f"{options.name} has joined the cluster {identity.cluster}. Start it with:")
    print(f"  ./sluice agent run --config {path}")
    return 0


def _check(options: argparse.Namespace) -> int:
    from agent.config import AgentConfig

    settings = Settings.load(options.config)
    if settings.local is None:
        print(f"{options.config}: {settings.name} at {settings.url}; state in {settings.state_dir}")
        return 0
    try:
        config = AgentConfig.parse(json.loads(settings.local.config.read_text()))
    except (OSError, ValueError) as error:
        print(f"sluice agent: {settings.local.config}: {error}", file=sys.stderr)
        return WRONG
    print(f"{settings.local.config}: {len(config.sources)} sources, {len(config.queries)} queries")
    return 0


def _status(options: argparse.Namespace) -> int:
    from agent.status import running, words

    settings = Settings.load(options.config)
    path = settings.state_dir / "status.json"
    try:
        says: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        print(f"{settings.name} has not run yet: there is no {path}")
        return 1
    alive = running(settings.state_dir)
    print("\n".join(words(says, alive=alive)))
    return 0 if alive else 1


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "enrol": _enrol,
    "check": _check,
    "status": _status,
}
