"""Parts of a live query's latency in words, beside the report of the stream processor."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from django.utils import timezone
from django.utils.safestring import SafeString

from apps.estimates.answers import LiveParts
from apps.estimates.choices import CalibrationScope
from apps.estimates.models import QueryEstimate
from apps.fleet.choices import Evidence
from apps.results.models import ResultWindow
from apps.ui.numbers import seconds, seconds_range
from apps.ui.sentences import sentence
from engine.words.document import scheduling_words

__all__ = ["LatencyPart", "LatencyParts", "latency_parts"]

_RECENT = timedelta(minutes=10)
_WORDS = (
    ("processing_s", "Queueing and processing", "near the data and at the stream processor"),
    ("epoch_s", "Epoch", "agents send when an epoch ends"),
    ("trigger_s", "Trigger", "wait for the next micro-batch"),
    ("overhead_s", "Batch, fixed", "what a batch takes whatever its records"),
    ("work_s", "Batch, work", "what the records of an interval take"),
)


@dataclass(frozen=True)
class LatencyPart:
    label: str
    value_s: float
    what: str


def latency_parts(parts: Mapping[str, float] | None) -> list[LatencyPart]:
    """Parts in the order of time; empty for an estimate without them."""
    return [LatencyPart(label, parts[name], what) for name, label, what in _WORDS if name in parts] if parts else []


class LatencyParts:
    """Parts of a query's newest estimate; empty where it is not live."""

    def __init__(self, estimate: QueryEstimate | None) -> None:
        self.estimate = estimate
        self._answer = estimate.answer if estimate else None

    @property
    def _live(self) -> LiveParts | None:
        return self._answer.live if self._answer else None

    @property
    def parts(self) -> list[LatencyPart]:
        return latency_parts(self._live and self._live.to_dict())

    @cached_property
    def measured_s(self) -> float | None:
        """Median of what the stream processor reported over the last ten minutes."""
        if self.estimate is None:
            return None
        rows = ResultWindow.objects.filter(query=self.estimate.query_id, emitted_at__gte=timezone.now() - _RECENT)
        latencies = [value for value in rows.values_list("latency_s", flat=True)[:600] if value is not None]
        return statistics.median(latencies) if latencies else None

    @property
    def sentence(self) -> SafeString | str:
        """At most 3.7 s, were each wait as long as it can be; the stream processor reported 3.4 s …"""
        return sentence("pages/accuracy/sentences/live.html", facts=self) if self.estimate is not None else ""

    @property
    def upper_s(self) -> float | None:
        """Bound on the latency; None where none is proven."""
        return self._live.upper_s if self._live else None

    @property
    def is_assumed(self) -> bool:
        """Whether no batch was timed yet."""
        return self._live is not None and self._live.evidence == Evidence.ASSUMED

    @property
    def scheduling(self) -> str:
        """Policies of nodes that take events in another order than Mace's."""
        return scheduling_words(self._answer.scheduling.nodes) if self._answer and self._answer.scheduling else ""

    @property
    def calibration_sentence(self) -> SafeString | str:
        """Origin of the interval, and what the next runs should show."""
        calibration = self._answer.calibration if self._answer else None
        if calibration is None or self.estimate is None:
            return ""
        stated, run = calibration.stated, calibration.run
        is_wider = stated is not None and (self.estimate.high_s or 0.0) > stated[1]
        return sentence(
            "pages/accuracy/sentences/interval.html",
            calibration=calibration,
            whose=CalibrationScope(calibration.scope).label if calibration.scope else "",
            stated=seconds(stated[1]) if stated and is_wider else "",
            shown=seconds(self.estimate.high_s, apart_from=stated[1]) if stated and is_wider else "",
            run=seconds_range(*run) if run else "",
        )
