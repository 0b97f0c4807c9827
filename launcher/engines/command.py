"""`./sluice engines`: fetch, start, look at and stop real engines on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.children import spawn
from launcher.engines.flink import DEFAULT_FLINK_PORT, FlinkCluster, FlinkOptions
from launcher.engines.flink_package import fetch_flink, find_flink
from launcher.engines.folders import EngineMissing, FetchFailed, engines_dir
from launcher.engines.prometheus import DEFAULT_PROMETHEUS_PORT, fetch_prometheus, find_prometheus, prometheus_service
from launcher.engines.record import EngineRecord, stop_engine
from launcher.engines.sql import SqlFailed, submit_sql
from launcher.output import Terminal
from launcher.places import LOOPBACK, ROOT, child_environment, is_port_free, port_owner, var_dir
from launcher.progress import PatienceError
from launcher.runner import ProcessRunner, StartFailed, Stopped

__all__ = ["engines"]


@dataclass(frozen=True)
class _Engine:
    """An engine as its commands need it; `launch` starts it and returns where it is."""

    name: str
    port: int
    find: Callable[[], Path | None]
    fetch: Callable[[Terminal], Path]
    launch: Callable[[argparse.Namespace, ProcessRunner], EngineRecord]

    @property
    def record(self) -> Path:
        return var_dir() / "run" / f"{self.name}.json"


def engines(arguments: Sequence[str]) -> int:
    """Run one command; 0 if it did what was asked for."""
    options = _parser().parse_args(arguments)
    console = Terminal()
    try:
        return int(options.run(options, console))
    except (EngineMissing, FetchFailed, SqlFailed, PatienceError, OSError) as failure:
        console.failure(str(failure))
        return 1
    except KeyboardInterrupt:
        console.failure("interrupted; nothing was left behind")
        return 130


def _launch_flink(options: argparse.Namespace, runner: ProcessRunner) -> EngineRecord:
    size = FlinkOptions(options.port, options.taskmanagers, options.slots, not options.no_sql, dict(options.settings))
    cluster = FlinkCluster(var_dir() / "flink", size)
    cluster.start(runner)
    return EngineRecord.of_this_process("flink", cluster.url, **cluster.ports)


def _launch_prometheus(options: argparse.Namespace, runner: ProcessRunner) -> EngineRecord:
    flink = EngineRecord.read(_FLINK.record)
    ports = flink.ports if flink else {}
    targets = [f"{LOOPBACK}:{port}" for name, port in ports.items() if name.startswith("metrics_")]
    if not targets:
        runner.console.note("no Flink runs from this folder: start it first, so that Prometheus reads its metrics")
    runner.start(prometheus_service(var_dir() / "prometheus", options.port, targets))
    return EngineRecord.of_this_process("prometheus", f"http://{LOOPBACK}:{options.port}", http=options.port)


_FLINK = _Engine("flink", DEFAULT_FLINK_PORT, find_flink, fetch_flink, _launch_flink)
_PROMETHEUS = _Engine("prometheus", DEFAULT_PROMETHEUS_PORT, find_prometheus, fetch_prometheus, _launch_prometheus)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sluice engines",
        description="Real engines on loopback: to try connections on, to test and to measure with.",
    )
    kinds = parser.add_subparsers(required=True, metavar="{flink,prometheus}")
    flink = kinds.add_parser("flink", help="a Flink session cluster with SQL")
    actions = flink.add_subparsers(required=True, metavar="{fetch,start,sql,status,stop}")
    start = _add_actions(actions, _FLINK)
    start.add_argument("--taskmanagers", type=_count, default=1, help="TaskManagers (default 1)")
    start.add_argument("--slots", type=_count, default=4, help="slots of each TaskManager (default 4)")
    start.add_argument("--no-sql", action="store_true", help="without the gateway for SQL")
    start.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        dest="settings",
        metavar="NAME=VALUE",
        help="a setting of Flink, such as jobmanager.scheduler=adaptive; may be repeated",
    )
    sql = actions.add_parser("sql", help="submit a script of SQL to the running cluster")
    sql.add_argument("file", type=Path, help="statements, each ended by a semicolon at the end of its line")
    sql.set_defaults(run=_sql)
    prometheus = kinds.add_parser("prometheus", help="a Prometheus that reads that cluster's metrics")
    _add_actions(
        prometheus.add_subparsers(required=True, metavar="{fetch,start,status,stop}"),
        _PROMETHEUS,
    )
    return parser


def _add_actions(
    actions: argparse._SubParsersAction[argparse.ArgumentParser], engine: _Engine
) -> argparse.ArgumentParser:
    """Add the commands that every engine has; the parser of `start`, which may take more options."""
    start = actions.add_parser("start", help="start it and stay in the foreground; Ctrl-C stops it")
    start.add_argument("--port", type=_port, default=engine.port, help=f"its REST port (default {engine.port})")
    start.add_argument("--background", action="store_true", help="return once it is ready; `stop` ends it")
    start.set_defaults(run=lambda options, console: _start(engine, options, console))
    fetch = actions.add_parser("fetch", help=f"fetch it once into {engines_dir()}")
    fetch.set_defaults(run=lambda options, console: _fetch(engine, console))
    status = actions.add_parser(
        "status", help="whether it is here and runs, and where; exit status 3 if it does not run"
    )
    status.set_defaults(run=lambda options, console: _status(engine, console))
    stop = actions.add_parser("stop", help="stop the one that was started from this folder")
    stop.set_defaults(run=lambda options, console: _stop(engine, console))
    return start


def _count(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a number from 1 to 64")
    return int(text)


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is a port from 1 to 65535")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r}: allowed is NAME=VALUE")
    return name.strip(), value.strip()


def _fetch(engine: _Engine, console: Terminal) -> int:
    console.done(engine.name, str(engine.fetch(console)))
    return 0


def _start(engine: _Engine, options: argparse.Namespace, console: Terminal) -> int:
    if record := EngineRecord.read(engine.record):
        console.failure(f"{engine.name} runs already at {record.url} (process {record.pid})")
        return 1
    if not is_port_free(options.port):
        console.failure(f"port {options.port} is taken{port_owner(options.port)}: name another with --port")
        return 1
    engine.fetch(console)
    return _start_in_background(engine, console) if options.background else _serve(engine, options, console)


def _serve(engine: _Engine, options: argparse.Namespace, console: Terminal) -> int:
    """Run it until Ctrl-C, SIGTERM or a closed terminal."""
    runner = ProcessRunner(console, var_dir() / "log")
    runner.catch_signals()
    began = time.monotonic()
    try:
        record = engine.launch(options, runner)
        record.write(engine.record)
        _show(console, record, f"ready in {time.monotonic() - began:.1f} s")
        console.note(f"  logs: {var_dir() / 'log'}    stop: Ctrl-C, or ./sluice engines {engine.name} stop")
        runner.watch()
    except Stopped:
        pass
    except StartFailed as failure:
        console.failure(str(failure))
        return 1
    finally:
        runner.stop()
        engine.record.unlink(missing_ok=True)
    console.note(f"{engine.name} has stopped.")
    return 0


def _start_in_background(engine: _Engine, console: Terminal) -> int:
    """The same command in a session of its own, without the option that led here."""
    own = [argument for argument in sys.argv[1:] if argument != "--background"]
    log = var_dir() / "log" / f"{engine.name}-start.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = spawn(
            [sys.executable, "-P", "-m", "launcher", *own], env=child_environment(), cwd=ROOT, output=output
        )
    shown = 0
    try:
        while (record := EngineRecord.read(engine.record)) is None:
            if process.poll() is not None:  # it gives up by itself when nothing moves any more
                console.failure(f"{engine.name} did not start:\n{log.read_text(errors='replace')}")
                return 1
            told = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("  …")]
            for line in told[shown:]:
                console.note(line)
            shown = len(told)
            time.sleep(0.1)
    except KeyboardInterrupt:
        process.terminate()
        raise
    _show(console, record, "ready")
    console.note(f"  logs: {var_dir() / 'log'}    stop: ./sluice engines {engine.name} stop")
    return 0


def _status(engine: _Engine, console: Terminal) -> int:
    place = engine.find()
    console.note(f"{engine.name}: {place or f'not fetched; ./sluice engines {engine.name} fetch gets it'}")
    record = EngineRecord.read(engine.record)
    if record is None:
        console.note("it does not run, or not from this folder")
        return 3
    _show(console, record, f"runs (process {record.pid})")
    return 0


def _show(console: Terminal, record: EngineRecord, state: str) -> None:
    console.strong(f"{record.engine} {state}:  {record.url}")
    if "gateway" in record.ports:
        console.note("  SQL: ./sluice engines flink sql FILE")


def _stop(engine: _Engine, console: Terminal) -> int:
    stopped = stop_engine(engine.record)
    if stopped is None:
        console.note(f"no {engine.name} runs that was started from this folder")
    elif not stopped:
        console.failure(f"{engine.name} does not end")
        return 1
    else:
        console.note(f"{engine.name} has stopped.")
    return 0


def _sql(options: argparse.Namespace, console: Terminal) -> int:
    record = EngineRecord.read(_FLINK.record)
    if record is None or "gateway" not in record.ports:
        raise EngineMissing("no Flink with SQL runs from this folder: ./sluice engines flink start")
    script = options.file.read_text()
    for job in submit_sql(script, rest_port=record.ports["rest"], gateway_port=record.ports["gateway"]):
        console.note(job)
    return 0
