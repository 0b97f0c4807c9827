"""Metrics of the stream processor in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from apps.telemetry.ingest.stream_figures import StreamFigures

__all__ = ["CONTENT_TYPE", "metrics_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class _Metric:
    name: str
    help: str
    field: str

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


_OF_ALL = (
    _Metric("sluice_stream_trigger_seconds", "Trigger interval of the streaming query.", "trigger_s"),
    _Metric("sluice_stream_behind_seconds", "Age of the oldest frame that waits.", "behind_s"),
    _Metric("sluice_stream_backlog_frames", "Frames that wait.", "lag"),
    _Metric("sluice_stream_batch_seconds", "Duration of the last micro-batch with records.", "batch_s"),
    _Metric("sluice_stream_batch_records", "Records of the last micro-batch with records.", "records"),
    _Metric("sluice_stream_batches_total", "Micro-batches with records since the start.", "batches_total"),
    _Metric("sluice_stream_batch_seconds_total", "Duration of micro-batches since the start.", "batch_s_total"),
    _Metric("sluice_stream_records_total", "Records since the start.", "records_total"),
)
_OF_OPERATORS = (
    _Metric("sluice_stream_state_rows", "Rows of keyed state.", "rows"),
    _Metric("sluice_stream_state_memory_bytes", "Memory of the state stores.", "memory_bytes"),
    _Metric("sluice_stream_state_disk_bytes", "State on disk.", "disk_bytes"),
    _Metric(
        "sluice_stream_state_snapshot_age_batches", "Micro-batches since the oldest snapshot.", "batches_since_snapshot"
    ),
    _Metric("sluice_stream_state_commit_seconds", "Commit time of the last micro-batch.", "commit_s"),
    _Metric("sluice_stream_state_commit_seconds_total", "Commit time since the start.", "commit_s_total"),
    _Metric("sluice_stream_state_updated_rows_total", "Rows written since the start.", "updated_rows_total"),
    _Metric("sluice_stream_output_rows_total", "Rows handed on since the start.", "output_rows_total"),
    _Metric("sluice_stream_output_bytes_total", "Bytes handed on since the start.", "output_bytes_total"),
)


def metrics_text(figures: StreamFigures) -> str:
    """The metrics; what is not known is left out.

    Examples
    --------
    >>> print(metrics_text(StreamFigures("away")), end="")
    # HELP sluice_stream_ready Whether the stream processor is ready.
    # TYPE sluice_stream_ready gauge
    sluice_stream_ready 0
    """
    return "".join(f"{line}\n" for line in _lines(figures))


def _lines(figures: StreamFigures) -> Iterator[str]:
    ready = _Metric("sluice_stream_ready", "Whether the stream processor is ready.", "")
    yield from _family(ready, [("", float(figures.state == "ready"))])
    for metric in _OF_ALL:
        yield from _family(metric, [("", getattr(figures, metric.field))])
    for metric in _OF_OPERATORS:
        samples = [
            (f'{{operator="{_escaped(operator.operator)}"}}', getattr(operator, metric.field))
            for operator in figures.operators
        ]
        yield from _family(metric, samples)


def _family(metric: _Metric, samples: list[tuple[str, float | None]]) -> Iterator[str]:
    known = [(labels, value) for labels, value in samples if value is not None]
    if known:
        yield f"# HELP {metric.name} {metric.help}"
        yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in known:
        yield f"{metric.name}{labels} {value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
