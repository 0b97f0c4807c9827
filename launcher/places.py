"""Where things lie, and the environment that every child process gets."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["ROOT", "RunState", "child_environment", "read_state", "var_dir"]

ROOT = Path(__file__).resolve().parent.parent
_SINGLE_THREADED = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def var_dir() -> Path:
    """The folder of data, logs and run files, made when missing."""
    folder = Path(os.environ.get("SLUICE_VAR_DIR") or ROOT / "var").absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # sessions and uploads are nobody else's business
    return folder


def child_environment(**more: str) -> dict[str, str]:
    """This process's environment with what every part of Sluice wants; a variable set outside wins over ours."""
    environment = dict(os.environ)
    # tasks run side by side in processes; threads within one would only compete with its neighbours
    for name in _SINGLE_THREADED:
        environment.setdefault(name, "1")
    environment["PYTHONUNBUFFERED"] = "1"
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *(path for path in paths if path not in {"", str(ROOT)})])
    environment["SLUICE_VAR_DIR"] = str(var_dir())
    if "REDIS_URL" not in environment and (state := read_state()) is not None:
        environment["REDIS_URL"] = state.redis_url
    return environment | more


@dataclass(frozen=True)
class RunState:
    """What a running `./sluice up` tells other commands in the same folder."""

    pid: int
    url: str
    redis_url: str

    @staticmethod
    def path() -> Path:
        return var_dir() / "run" / "up.json"

    def write(self) -> None:
        self.path().parent.mkdir(parents=True, exist_ok=True)
        self.path().write_text(json.dumps(asdict(self)))


def read_state() -> RunState | None:
    """The state of the `up` that runs on this var directory, or None when none does."""
    try:
        state = RunState(**json.loads(RunState.path().read_text()))
        os.kill(state.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return state
