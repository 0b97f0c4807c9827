"""Spark's Python processes as forks of one that has imported what they need.

Until its first batch Spark starts a dozen Python processes, one after the other: it looks for data sources, makes one,
plans with it, asks each operator for its variables, and each of them imports pyspark anew, for a second of CPU time. So
the driver starts this process beside the JVM. What Spark starts is `worker_stand_in`, which sends its arguments, its
environment and its files here; a fork goes on with them.

Only processes of the driver's machine find it, by a socket that an environment variable names; elsewhere, and where it
has gone, interpreters start as Spark asks.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["SOCKET", "forking", "import_workers"]

SOCKET = "SLUICE_WORKER_FORKS"  #: variable with the path of the socket
_MAX_REQUEST = 2**20
_STOP_S = 5.0
#: Modules that Spark runs, and what they import when they are asked for something.
_MODULES = (
    "pandas", "pyspark.daemon", "pyspark.worker", "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner", "pyspark.sql.streaming.transform_with_state_driver_worker",
    "pyspark.sql.streaming.proto.StateMessage_pb2", "pyspark.sql.streaming.stateful_processor_util",
    "pyspark.sql.pandas.types", "pyspark.sql.conversion", "spark_jobs.stream",
)  # fmt: skip


@contextmanager
def forking(folder: Path, interpreter: str, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """The process, which imports meanwhile; yields the variables by which Spark's processes find it."""
    path = folder / f"forks-{os.getpid()}"  # a socket's path has at most 107 bytes
    if len(bytes(path)) > 100:
        yield {}
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))  # whoever comes while it imports waits to be accepted
        listener.listen(64)
        number = listener.fileno()
        command = [interpreter, "-m", "spark_jobs.worker_forks", str(number)]
        as_spark = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # what Spark says to its own
        told = {**environment, **as_spark}
        process = subprocess.Popen(command, stdin=subprocess.PIPE, env=told, pass_fds=[number])
    try:
        yield {SOCKET: str(path)}
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        path.unlink(missing_ok=True)


def import_workers() -> None:
    """Import what workers need. What is there before a fork is frozen: Spark collects garbage after every task, which
    otherwise looks through all modules and takes longer than a small task does.
    """
    for name in _MODULES:
        __import__(name)
    gc.freeze()


class _Forks:
    """Forks by the connection that asked for them; a connection that ends takes its fork with it."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._by_pid: dict[int, socket.socket] = {}

    def serve(self, until: Any) -> None:
        """Fork on request until `until` comes to its end."""
        wake, woken = socket.socketpair()
        for end in (wake, woken):
            end.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno())
        selector = self._selector = selectors.DefaultSelector()
        for file in (until, self._listener, woken):
            selector.register(file, selectors.EVENT_READ)
        try:
            self._serve(until, woken)
        finally:
            self._end_all()

    def _serve(self, until: Any, woken: socket.socket) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is until:
                    return
                if key.fileobj is self._listener:
                    self._fork(self._listener.accept()[0])
                elif key.fileobj is woken:
                    woken.recv(4096)
                    self._reap()
                else:
                    self._give_up(key.fileobj)

    def _fork(self, connection: socket.socket) -> None:
        connection.settimeout(_STOP_S)
        try:
            request, files = _received(connection)
        except (OSError, ValueError):
            connection.close()
            return
        try:
            pid = os.fork()
        except OSError:  # no memory, or too many processes: the stand-in becomes an interpreter of its own
            for file in files:
                os.close(file)
            connection.close()
            return
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            self._listener.close()
            for other in (connection, *self._by_pid.values()):
                other.close()
            _become(request, files)
        for file in files:
            os.close(file)
        self._by_pid[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ)

    def _reap(self) -> None:
        while self._by_pid:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            connection = self._by_pid.pop(pid)
            if connection in self._selector.get_map():
                self._selector.unregister(connection)
            code = os.waitstatus_to_exitcode(status)
            with suppress(OSError):  # nobody waits for it
                connection.sendall(str(code if code >= 0 else 128 - code).encode())
            connection.close()

    def _give_up(self, connection: Any) -> None:
        """End the fork of a process that has ended, as Spark ends them; both may have ended at one moment."""
        if connection not in self._by_pid.values():
            return
        self._selector.unregister(connection)
        for pid, known in self._by_pid.items():
            if known is connection:
                _kill(pid, signal.SIGTERM)

    def _end_all(self) -> None:
        for pid in self._by_pid:
            _kill(pid, signal.SIGTERM)


def _kill(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _received(connection: socket.socket) -> tuple[dict[str, Any], Sequence[int]]:
    data, files, _, _ = socket.recv_fds(connection, _MAX_REQUEST, 3)
    while not data.endswith(b"\n"):
        more = connection.recv(_MAX_REQUEST)
        if not more:
            raise ValueError("half a request")
        data += more
    return json.loads(data), files


def _become(request: Mapping[str, Any], files: Sequence[int]) -> NoReturn:
    """Go on as what Spark asked for: `-m MODULE ARGUMENTS`."""
    code = 1
    try:
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        _, module, *arguments = request["arguments"]
        sys.argv = [module, *arguments]
        warnings.simplefilter("ignore", RuntimeWarning)  # that the module is imported already
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def main(number: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver's, which ends this process in its time
    with socket.socket(fileno=number) as listener:
        import_workers()
        _Forks(listener).serve(sys.stdin)


if __name__ == "__main__":
    main(int(sys.argv[1]))
