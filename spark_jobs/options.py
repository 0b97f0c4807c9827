"""What the stream processor is told by its environment."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.session import DEFAULT_MASTER

__all__ = ["Options", "WrongOptions"]

_ROOT = Path(__file__).resolve().parent.parent


class WrongOptions(ValueError):
    """Variables that are missing or have a value they do not take; every one is named."""


@dataclass(frozen=True)
class Options:
    """Where everything is, and how often."""

    url: str
    token: str
    redis_url: str
    folder: Path
    master: str = DEFAULT_MASTER
    trigger_s: float = 2.0
    at_hand_bytes: int = 2 * 2**20
    by_sql: bool = False
    refine_s: float = 10.0

    @classmethod
    def of(cls, env: Mapping[str, str]) -> Options:
        """The options in an environment.

        Raises
        ------
        WrongOptions
        """
        faults: list[str] = []
        read = _Reader(env, faults)
        made = cls(
            read.text("SLUICE_URL", "the console's address, such as http://127.0.0.1:8000"),
            read.text("SLUICE_STREAM_TOKEN", "a token with scope ingest"),
            read.text("REDIS_URL", "the broker's address, such as redis://127.0.0.1:6379/0"),
            Path(env.get("SLUICE_VAR_DIR") or _ROOT / "var") / "stream",
            env.get("SLUICE_SPARK_MASTER") or cls.master,
            read.number("SLUICE_STREAM_TRIGGER_S", cls.trigger_s, 0.1, 600),
            int(read.number("SLUICE_STREAM_DRIVER_BYTES", cls.at_hand_bytes, 0, 64 * 2**20)),
            read.number("SLUICE_STREAM_SQL", 0, 0, 1) == 1,
            read.number("SLUICE_STREAM_REFINE_S", cls.refine_s, 1, 3600),
        )
        if faults:
            raise WrongOptions("\n".join(faults))
        return made


class _Reader:
    def __init__(self, env: Mapping[str, str], faults: list[str]) -> None:
        self._env, self._faults = env, faults

    def text(self, name: str, what: str) -> str:
        value = self._env.get(name, "")
        if not value:
            self._faults.append(f"{name} is not set, and must be {what}")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        text = self._env.get(name)
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            self._faults.append(f"{name} is {text!r}; allowed: a number from {least:.10g} to {most:.10g}")
            return default
        return value
