"""Log files that a test writes and a collector follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.collect import Collector, rotation
from agent.settings import ReadableFolders
from tests.agent.collect.collectors import collector_of

COLUMNS = {"ts": "timestamp", "line": "string", "file": "string"}
NOW_US = 1_700_000_000_000_000


@pytest.fixture
def quick_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "_SCAN_S", 0.0)


def follow(path: Path | str, lateness_s: float = 1.0, **options: Any) -> Collector:
    given = {"path": str(path), "begin": "start"} | options
    readable = ReadableFolders([Path(path).parent])
    return collector_of("log_file", given, COLUMNS, lateness_s=lateness_s, readable=readable, name="log")


def read(source: Collector, now_us: int = NOW_US, most: int = 10_000) -> list[str]:
    return [line for batch in source.poll(now_us, most) for line in batch.column("line").to_pylist()]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)
