"""Collectors: where an agent's records come from. `make_collector` builds one from its configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.collect.base import Collector, schema_of
from agent.settings import ReadableFolders

if TYPE_CHECKING:
    from agent.config import SourceConfig

__all__ = ["Collector", "make_collector"]


def make_collector(config: SourceConfig, readable: ReadableFolders | None = None) -> Collector:
    """The collector of a source, which reads `readable` files alone. It opens nothing before it is first polled."""
    readable = readable or ReadableFolders()
    # in the order of the alphabet, as pipelines have their columns
    schema = schema_of(dict(sorted(config.columns.items())))
    arguments = (config.name, schema, config.time, config.options)
    match config.kind:  # each is imported where it is asked for: an agent starts with what it needs
        case "tcp_probe":
            from agent.collect.tcp_probe import TcpProbe

            return TcpProbe(*arguments)
        case "host_metrics":
            from agent.collect.host_metrics import HostMetrics

            return HostMetrics(*arguments)
        case "log_file":
            from agent.collect.log_file import LogFileCollector

            return LogFileCollector(*arguments, lateness_s=config.lateness_s, readable=readable)
        case "replay":
            from agent.collect.replay import ReplayCollector

            return ReplayCollector(*arguments, lateness_s=config.lateness_s, readable=readable)
        case "generator":
            from agent.collect.generator import LoadGenerator

            return LoadGenerator(*arguments)
    raise ValueError(f"kind is {config.kind!r}, which no collector is of")
