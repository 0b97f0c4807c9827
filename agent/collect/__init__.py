"""Collectors: where an agent's records come from. `make` builds one from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.collect.base import Collector, schema_of
from agent.readable import Readable

if TYPE_CHECKING:
    from agent.config import SourceConfig

__all__ = ["Collector", "make"]


def make(config: SourceConfig, readable: Readable | None = None) -> Collector:
    """The collector of a source, which reads `readable` files alone. It opens nothing before it is first polled."""
    readable = readable or Readable()
    # in the order of the alphabet, as pipelines have their columns
    schema = schema_of(dict(sorted(config.columns.items())))
    given = (config.name, schema, config.time, config.options)
    match config.kind:  # each is imported where it is asked for: an agent starts with what it needs
        case "tcp_probe":
            from agent.collect.tcp_probe import TcpProbe

            return TcpProbe(*given)
        case "host_metrics":
            from agent.collect.host_metrics import HostMetrics

            return HostMetrics(*given)
        case "log_file":
            from agent.collect.log_file import LogFile

            return LogFile(*given, lateness_s=config.lateness_s, readable=readable)
        case "replay":
            from agent.collect.replay import Replay

            return Replay(*given, lateness_s=config.lateness_s, readable=readable)
        case "generator":
            from agent.collect.generator import Generator

            return Generator(*given)
    raise ValueError(f"kind is {config.kind!r}, which no collector is of")
