"""Parts of a live query's latency in words, beside the report of the stream processor."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Any

from django.utils import timezone

from apps.estimates.models import QueryEstimate
from apps.fleet.choices import Evidence
from apps.results.models import ResultWindow
from apps.ui.numbers import factor, seconds, seconds_range
from engine.document.elements import scheduling_words

__all__ = ["LatencyPart", "LatencyParts", "latency_parts"]

_RECENT = timedelta(minutes=10)
_WORDS = (
    ("flow_s", "Queueing and processing", "Flow over agents and stream processor"),
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


def latency_parts(parts: Mapping[str, Any] | None) -> list[LatencyPart]:
    """Parts in the order of time; empty for an estimate without them."""
    return [LatencyPart(label, parts[name], what) for name, label, what in _WORDS if name in parts] if parts else []


class LatencyParts:
    """Parts of a query's newest estimate; empty where it is not live."""

    def __init__(self, estimate: QueryEstimate | None) -> None:
        self.estimate = estimate
        self._result: Mapping[str, Any] = estimate.result if estimate else {}

    @property
    def parts(self) -> list[LatencyPart]:
        return latency_parts(self._result.get("live"))

    @cached_property
    def measured_s(self) -> float | None:
        """Median of what the stream processor reported over the last ten minutes."""
        if self.estimate is None:
            return None
        rows = ResultWindow.objects.filter(query=self.estimate.query_id, emitted_at__gte=timezone.now() - _RECENT)
        latencies = [value for value in rows.values_list("latency_s", flat=True)[:600] if value is not None]
        return statistics.median(latencies) if latencies else None

    @property
    def sentence(self) -> str:
        """Worst case 3.7 s, measured 3.4 s in the median of the last 10 min."""
        row = self.estimate
        if row is None:
            return ""
        live = self._result["live"]
        said = f"At most {seconds(live['upper_s'])}, were each wait as long as it can be"
        if "scheduling" in self._result:
            said += (
                f" and events of a subinterval in any order, as {scheduling_words(self._result['scheduling']['nodes'])}"
            )
        if live.get("evidence") == Evidence.ASSUMED:
            said = f"Its waits are assumed, no batch was timed yet. {said}"
        if self.measured_s is None:
            return f"{said}; nothing reported in the last 10 min."
        return f"{said}; the stream processor reported {seconds(self.measured_s)} in the median of the last 10 min."

    @property
    def trust_sentence(self) -> str:
        """Origin of the interval."""
        said = self._result.get("trust")
        if not said:
            return ""
        if not said["concluded"]:
            interval = "Its interval is as stated" if said["half_s"] is not None else "It has no interval of its own"
            return f"{interval}: {said['outcomes']} of the 20 measured intervals that a trust score needs."
        if said["factor"] <= 1.0:
            return f"Its interval is as stated: enough for the last {said['outcomes']} measured intervals."
        low, high = said["stated"] or (None, None)
        stated = f" from {seconds_range(low, high)}" if low is not None else ""
        owner = "its own" if said["of"] == "query" else "its cluster's"
        past = f"{owner} last {said['outcomes']} measured intervals"
        return f"Its interval is widened {factor(said['factor'])}{stated}, by {past}."
