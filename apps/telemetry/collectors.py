"""Names of the collectors."""

from __future__ import annotations

from typing import Final

__all__ = ["COLLECTORS"]

#: Collectors with what they do, as the form offers them.
COLLECTORS: Final = [
    ("tcp_probe", "TCP probes between peers"),
    ("host_metrics", "Metrics of the host"),
    ("log_file", "Lines of log files"),
    ("replay", "A recorded file, played back"),
    ("generator", "A load generator"),
    ("producer", "A program that posts records"),
]
