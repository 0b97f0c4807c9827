"""`./sluice agent`: run, enrol, status, check."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from agent.config import AgentConfig
from agent.settings import AgentSettings, FolderInUse, default_name, lock_folder
from engine.errors import DocumentError, Fault
from engine.redaction import LOG_FORMATS, JsonFormatter, RedactingFormatter, redact_text

__all__ = ["block_pandas", "main"]

log = logging.getLogger(__name__)

WRONG = 2  # exit code: what the user gave is wrong; 1: it did not work


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        _log_to_stderr()
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


def _log_format() -> str:
    given = os.environ.get("SLUICE_LOG_FORMAT", "").strip() or LOG_FORMATS[0]
    if given not in LOG_FORMATS:
        allowed = f"is {given!r}; allowed: {', '.join(LOG_FORMATS)}"
        raise DocumentError([Fault("", f"SLUICE_LOG_FORMAT {allowed}")], "environment")
    return given


def _log_to_stderr() -> None:
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S"
    )
    is_json = _log_format() == "json"
    for handler in logging.getLogger().handlers:
        text = RedactingFormatter(handler.formatter or logging.Formatter())
        handler.setFormatter(JsonFormatter() if is_json else text)


def _say_faults(error: DocumentError) -> None:
    print(f"sluice agent: {error.message.split(';')[0]}:", file=sys.stderr)
    for fault in error.faults:
        print(f"  {fault}", file=sys.stderr)


def _run(options: argparse.Namespace) -> int:
    from agent.service import AgentService
    from agent.settings import FolderInUse
    from agent.uplink.console import EnrolmentRefused

    service = AgentService(AgentSettings.load(options.config))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: service.stop())
    try:
        service.run()
    except (FolderInUse, EnrolmentRefused) as why:
        print(f"sluice agent: {redact_text(str(why))}", file=sys.stderr)
        return 1
    log.info("stopped")
    return 0


def _enrol(options: argparse.Namespace) -> int:
    from agent.uplink.console import ConsoleUnreachable, EnrolmentRefused, enrol
    from engine.files import replace_file

    folder = options.state_dir or Path(os.environ.get("SLUICE_VAR_DIR") or "var") / "agents" / options.name
    values: dict[str, Any] = {"url": options.url, "name": options.name}
    if options.read_from:
        values["read_from"] = [str(path.absolute()) for path in options.read_from]
    settings = AgentSettings.parse(values | {"token": options.token}, folder.absolute())
    try:
        identity = enrol(settings)
    except (ConsoleUnreachable, EnrolmentRefused) as why:
        print(f"sluice agent: {redact_text(str(why))}", file=sys.stderr)
        return 1
    path = folder.absolute() / "agent.toml"
    replace_file(path, "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items()).encode())
    print(f"{options.name} has joined the cluster {identity.cluster}. Start it with:")
    print(f"  ./sluice agent run --config {path}")
    return 0


def _check(options: argparse.Namespace) -> int:

    settings = AgentSettings.load(options.config)
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

    settings = AgentSettings.load(options.config)
    path = settings.state_dir / "status.json"
    try:
        status: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        print(f"{settings.name} has not run yet: there is no {path}")
        return 1
    alive = is_running(settings.state_dir)
    print("\n".join(status_lines(status, alive=alive)))
    return 0 if alive else 1


_COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": _run,
    "enrol": _enrol,
    "check": _check,
    "status": _status,
}


def is_running(folder: Path) -> bool:
    """Whether an agent holds the state folder now."""
    try:
        os.close(lock_folder(folder))
    except FolderInUse:
        return True
    except OSError:
        return False
    return False


def status_lines(status: Mapping[str, Any], *, alive: bool) -> Iterator[str]:
    """The status file as lines for people."""
    age_s = time.time() - status["time"]
    state = f"runs, process {status['pid']}" if alive else f"does not run; this is how it was {age_s:,.0f} s ago"
    yield f"{status['name']} ({status['kind']} {status['version']}) {state}"
    if "console" in status:
        push_text = (
            "announces changes at once" if status["console"].get("push") == "connected" else status["console"]["fault"]
        )
        yield f"  console     {status['console']['state']}  {status['url']}  {push_text}".rstrip()
    cores = f"{status['cpu_cores']:.3f} of {status['budget_cores']:g} cores"
    yield f"  uses        {cores}, {_mib(status['rss_bytes'])} MiB"
    spool = status["spool"]
    held = f"{_mib(spool['bytes'])} of {_mib(spool['limit_bytes'])} MiB, {spool['frames']:,} frames to send"
    yield f"  spool       {spool['state']}  {held}"
    if sender := status["sender"]:
        sent = f"sent {status['sent_seq']:,}, acknowledged {status['acked_seq']:,}"
        yield f"  frames      {sender['state']}  {sent}"
    yield f"  config      version {status['config_version']}"
    for report in status["collectors"]:
        counts = f"{report['records']:,} records, {report['shed']:,} shed"
        yield f"  collector   {report['source']} ({report['kind']}) {report['state']}  {counts}"
        yield from (f"              {text}" for text in (*report.get("counted", ()), *report["faults"]))
    if schedule := status.get("schedule"):
        by = f" by {schedule['refined']['config']}" if schedule["refined"] else ""
        yield f"  schedule    {schedule['policy']}{by}, {schedule['mode']}: {schedule['reason']}"
    for report in status["queries"]:
        factors = " ".join(f"{factor:.3g}" for factor in report["load_factors"])
        yield f"  query       {report['query']} {report['state']}  load factors {factors}"
        if "adapting" in report:
            by = f" by {report['refined']['config']}" if report["refined"] else ""
            yield f"              {report['adapting']}{by}: {report['reason']}"
        yield from (f"              {text}" for text in (report.get("late"), *report["faults"]) if text)
    yield from (f"  fault       {text}" for text in status["faults"])


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / 2**20:,.0f}"


class _PandasBlock(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "pandas":
            raise ModuleNotFoundError("an agent runs without pandas", name=fullname)
        return None


def block_pandas() -> None:
    """To be called before pyarrow is used."""
    sys.meta_path.insert(0, _PandasBlock())
