"""A console with its real processes on free ports: Redis, pages and REST, one worker, and whatever a test adds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from launcher.children import end_family, spawn
from launcher.places import free_port
from launcher.services import healthz
from tests.databases import copy_sqlite_template
from tests.servers import PATIENCE_S, RedisServer, wait_until

__all__ = ["PASSWORD", "SMALL_QUESTION", "Api", "DjangoShell", "Installation"]

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "a long way downstream"
#: Body of a request for an estimate that takes no time.
SMALL_QUESTION = {
    "document": {
        "subinterval_s": 0.25,
        "sources": [{"id": "source", "arrivals": [2.0] * 16}],
        "nodes": [{"id": "a", "capacity_cps": 10.0}],
        "operators": [
            {
                "id": "tiny/in",
                "query": "tiny",
                "node": "a",
                "inputs": [{"from": "source", "selectivity": 1.0, "cycles_per_event": 1.0}],
            }
        ],
    }
}
_SET_UP = """
import django
django.setup()
from django.core.management import call_command
call_command("create_admin", password_from_env="E2E_PASSWORD")
call_command("create_token", name="e2e", scopes="read,operate,admit")
"""


_SHELL = """
import contextlib, io, json, sys, traceback
import django
django.setup()
from django.db import connections
for line in sys.stdin:
    text, sys.argv[1:] = json.loads(line)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(text, "script", "exec"), {"__name__": "__main__"})
        answer = [True, printed.getvalue()]
    except BaseException:
        answer = [False, printed.getvalue() + traceback.format_exc()]
    connections.close_all()
    print(json.dumps(answer), flush=True)
"""


class DjangoShell:
    """Runs scripts with an installation's settings, all in one process: each start of Django takes seconds."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._process: subprocess.Popen[str] | None = None

    def run(self, text: str, *arguments: str) -> str:
        """Run Python text; what it printed."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SHELL],
                cwd=ROOT,
                env=dict(self._env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([text, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that runs scripts has ended"
        is_done, printed = json.loads(answer)
        assert is_done, printed
        return str(printed)

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()
            self._process = None


class Installation:
    """A var directory, its database, and the processes that serve it."""

    def __init__(self, var_dir: Path, redis: RedisServer | None = None, **settings: str) -> None:
        self.var_dir = var_dir
        self.redis = redis or RedisServer(var_dir / "redis")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = os.environ | {
            "SLUICE_VAR_DIR": str(var_dir),
            "REDIS_URL": self.redis.url,
            "DATABASE_URL": "",
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "E2E_PASSWORD": PASSWORD,
            **settings,
        }
        self.token = ""
        self._shell = DjangoShell(self.env)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Up to the worker being ready; about five seconds."""
        self.redis.start()
        copy_sqlite_template(self.var_dir / "sluice.sqlite3")
        self.token = self._set_up()
        self._serve()
        self.start_worker()
        self._wait_served()
        wait_until(lambda: " ready." in self.log("worker"), 300, "the worker")

    def start_worker(self, *options: str, name: str = "worker") -> subprocess.Popen[bytes]:
        """Start a worker; it is ready some seconds later."""
        command = ["celery", "-A", "console", "worker", "-c", "1", "--without-gossip", "--without-mingle"]
        return self.run(name, [*command, *(options or ("-l", "INFO"))])

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()  # together: each takes seconds
        for name in list(self._processes):
            self.end(name)
        self._shell.close()
        self.redis.stop()

    def serve_again(self) -> None:
        """Pages and REST are back, at the address that they had."""
        self._serve()
        self._wait_served()

    def _serve(self) -> None:
        web = ["uvicorn", "console.asgi:application", "--lifespan", "off", "--host", "127.0.0.1"]
        self.run("web", [*web, "--port", str(self.port)])

    def _wait_served(self) -> None:
        wait_until(lambda: healthz(self.port), what=f"health of the console, see {self.var_dir / 'web.log'}")

    def _set_up(self) -> str:
        """An administrator and a token of theirs; its secret. Styles that nobody collected come from their folders."""
        return self.script(_SET_UP).split()[-1]

    def log(self, name: str) -> str:
        return (self.var_dir / f"{name}.log").read_text(errors="replace")

    def run(self, name: str, module: list[str]) -> subprocess.Popen[bytes]:
        """Start a process under this name; what it says goes to its log."""
        log: IO[bytes]
        with (self.var_dir / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-P", "-m", *module]
            self._processes[name] = spawn(command, env=self.env, cwd=ROOT, output=log, tied=True)
        return self._processes[name]

    def end(self, name: str, patience_s: float = 3.0) -> None:
        """End the process of this name and its children, in order as far as that takes no longer."""
        end_family(self._processes.pop(name), ((signal.SIGTERM, patience_s),))

    def kill(self, name: str) -> None:
        """End a process and its children at once, as when a machine loses power."""
        end_family(self._processes.pop(name), ())

    def script(self, text: str, *arguments: str) -> str:
        """Run Python text with this installation's settings; what it printed."""
        return self._shell.run(text, *arguments)


class Api:
    """The REST API as a script would use it."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token

    def get(self, path: str) -> Any:
        return self._send("GET", path)

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, wait_s: int = 0, request_id: str = "") -> Any:
        """`wait_s` waits for the job behind the call and gives its result; a job that takes longer is followed."""
        headers = self._named(request_id) | ({"Prefer": f"wait={wait_s}"} if wait_s else {})
        answer = self._send("POST", path, json.dumps(body or {}).encode(), "application/json", headers)
        return self._outcome(answer) if wait_s and "result_api_url" in answer else answer

    def _outcome(self, job: dict[str, Any]) -> Any:
        job_path = f"jobs/{job['id']}"
        wait_until(lambda: self.get(job_path)["finished_at"], what=f"the end of {job['title']!r}")
        ended = self.get(job_path)
        assert ended["state"] == "succeeded", ended
        return self.get(ended["result_api_url"].removeprefix("/api/v1/"))

    def patch(self, path: str, body: Mapping[str, Any], *, request_id: str = "") -> Any:
        return self._send("PATCH", path, json.dumps(body).encode(), "application/json", self._named(request_id))

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        return self._send("PUT", path, json.dumps(body).encode(), "application/json")

    def upload(self, path: str, file: Path, fields: Mapping[str, str]) -> Any:
        """A form with a file."""
        boundary = uuid.uuid4().hex
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in fields.items()
        ]
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{file.name}"\r\n\r\n'
        body = "".join([*parts, head]).encode() + file.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        return self._send("POST", path, body, f"multipart/form-data; boundary={boundary}")

    @staticmethod
    def _named(request_id: str) -> dict[str, str]:
        return {"X-Request-ID": request_id} if request_id else {}

    def _send(
        self,
        method: str,
        path: str,
        data: bytes | None = None,
        kind: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        asked = Request(f"{self.url}/api/v1/{path}", data=data, method=method)
        asked.add_header("Authorization", f"Bearer {self.token}")
        if kind:
            asked.add_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            asked.add_header(name, value)
        try:
            with urlopen(asked, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read() or "null")
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None
