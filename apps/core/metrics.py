"""Metrics in the formats that Prometheus reads: OpenMetrics where it is asked for, else the older text format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.http import HttpResponse
from prometheus_client import Metric as Family
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

__all__ = ["Family", "Metric", "metrics_response"]


@dataclass(frozen=True)
class Metric:
    """A metric with its help, the names of its labels, and the field of the figures that it shows."""

    name: str
    help: str
    field: str = ""
    labels: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"

    def family(self, *samples: tuple[Sequence[str], float | None]) -> Family:
        """The samples that are known, each with the values of its labels."""
        kind = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = kind(self.name, self.help, labels=self.labels)
        for labels, value in samples:
            if value is not None:
                family.add_metric(labels, value)
        return family


class _Families(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self.families = families

    def collect(self) -> Iterator[Family]:
        return (family for family in self.families if family.samples)


def metrics_response(accept: str, families: Iterable[Family]) -> HttpResponse:
    """The families that have samples, in the format that the header `Accept` asks for."""
    encode, content_type = choose_encoder(accept)
    return HttpResponse(encode(_Families(families)), content_type=content_type)
