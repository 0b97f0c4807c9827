"""The one module that reads the environment. Every setting of Sluice is an attribute of `ENV`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BASE_DIR", "ENV", "Env", "EnvError"]

BASE_DIR = Path(__file__).resolve().parent.parent


class EnvError(ValueError):
    """A variable has a value that Sluice cannot use; the message names it, its value and what is allowed."""


def _flag(name: str, default: bool) -> bool:
    text = os.environ.get(name, "").strip().lower()
    if not text:
        return default
    if text in {"1", "true", "yes", "on"}:
        return True
    if text in {"0", "false", "no", "off"}:
        return False
    raise EnvError(f"{name}={text!r}: allowed are 1/true/yes/on and 0/false/no/off")


def _number(name: str, default: float, low: float, high: float) -> float:
    text = os.environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise EnvError(f"{name}={text!r}: allowed is a number from {low:g} to {high:g}") from None
    if not low <= value <= high:
        raise EnvError(f"{name}={text!r}: allowed is a number from {low:g} to {high:g}")
    return value


def _list(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


@dataclass(frozen=True)
class Env:
    """Settings read once at start.

    Attributes name the variable in lower case without the `SLUICE_` prefix; docs/operations.md lists them all.
    """

    debug: bool
    secret_key: str
    allowed_hosts: list[str]
    trusted_origins: list[str]
    database_url: str
    redis_url: str
    var_dir: Path
    log_level: str
    demo: bool
    https: bool
    upload_max_mb: float
    worker_concurrency: int
    task_visibility_s: float

    @classmethod
    def read(cls) -> Env:
        var_dir = Path(os.environ.get("SLUICE_VAR_DIR") or BASE_DIR / "var")
        return cls(
            debug=_flag("SLUICE_DEBUG", False),
            secret_key=os.environ.get("SLUICE_SECRET_KEY", ""),
            allowed_hosts=_list("SLUICE_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]"),
            trusted_origins=_list("SLUICE_TRUSTED_ORIGINS"),
            database_url=os.environ.get("DATABASE_URL", ""),
            redis_url=os.environ.get("REDIS_URL") or "redis://127.0.0.1:6399/0",
            var_dir=var_dir,
            log_level=os.environ.get("SLUICE_LOG_LEVEL", "INFO").upper(),
            demo=_flag("SLUICE_DEMO", False),
            https=_flag("SLUICE_HTTPS", False),
            upload_max_mb=_number("SLUICE_UPLOAD_MAX_MB", 20, 1, 1024),
            worker_concurrency=int(_number("SLUICE_WORKER_CONCURRENCY", 2, 1, 64)),
            task_visibility_s=_number("SLUICE_TASK_VISIBILITY_S", 900, 10, 86400),
        )


ENV = Env.read()
