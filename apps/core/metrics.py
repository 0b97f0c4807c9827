"""Metrics in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["CONTENT_TYPE", "Metric", "metric_label", "metric_lines"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """A metric with its help, and the field of the figures that it shows."""

    name: str
    help: str
    field: str

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def metric_lines(metric: Metric, samples: Sequence[tuple[str, float | None]]) -> Iterator[str]:
    """Lines of a metric with the samples that are known, each with its labels; none where none is."""
    known = [(labels, value) for labels, value in samples if value is not None]
    if known:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in known:
        yield f"{metric.name}{labels} {value:.15g}"


def metric_label(name: str, value: str) -> str:
    """A label with its value.

    Examples
    --------
    >>> metric_label("query", 'a "quoted" one')
    '{query="a \\\\"quoted\\\\" one"}'
    """
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{{name}="{escaped}"}}'
