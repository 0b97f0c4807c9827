"""Collectors of sources as an agent's configuration describes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.collect import Collector, make_collector
from agent.config import SourceConfig
from agent.settings import ReadableFolders


def collector_of(
    kind: str,
    options: Mapping[str, Any],
    columns: Mapping[str, str],
    *,
    lateness_s: float = 1.0,
    readable: ReadableFolders | None = None,
    name: str = "source",
) -> Collector:
    says = {"kind": kind, "options": options, "time": "ts", "columns": columns, "lateness_s": lateness_s}
    return make_collector(name, SourceConfig.parse(says), readable)
