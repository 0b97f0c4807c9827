"""Queries and hosts that a model of costs has not seen: other hardware, chains of filters, re-created benchmarks.

Shapes are drawn by their names once this module is imported.

Sources: Costream (ICDE 2024), tables IV and VI.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.simulation.cohort_queries import QUERY_SHAPES, HardwareRanges, QueryDraft, between

__all__ = ["UNSEEN_RANGES", "UNSEEN_SHAPES", "restricted_ranges"]

# Within the ranges of training, yet at none of its values (table IV).
UNSEEN_RANGES = HardwareRanges(
    cpu_percent=((75, 150, 250, 350), (250, 350, 450, 550), (450, 550, 650, 750)),
    ram_mb=((1500, 3000, 6000), (3000, 6000, 12000), (12000, 20000, 28000)),
    bandwidth_mbit_s=((35, 75, 150, 250), (150, 250, 550, 1200, 1900), (1200, 1900, 4800, 8000)),
    latency_ms=((30, 60, 120), (7, 15, 30), (3, 7)),
)


def restricted_ranges(
    ranges: HardwareRanges,
    *,
    cpu_percent: Sequence[float] | None = None,
    ram_mb: Sequence[float] | None = None,
    bandwidth_mbit_s: Sequence[float] | None = None,
    latency_ms: Sequence[float] | None = None,
) -> HardwareRanges:
    """The ranges with some dimensions restricted to `allowed` values; a bin that has none of them takes all of them.

    Examples
    --------
    >>> from engine.simulation.cohort_queries import PAPER_RANGES
    >>> restricted_ranges(PAPER_RANGES, cpu_percent=(700, 800)).cpu_percent
    ((700, 800), (700, 800), (700, 800))
    """

    def kept(bins: tuple[tuple[float, ...], ...], allowed: Sequence[float] | None) -> tuple[tuple[float, ...], ...]:
        if allowed is None:
            return bins
        return tuple(tuple(value for value in values if value in allowed) or tuple(allowed) for values in bins)

    return HardwareRanges(
        kept(ranges.cpu_percent, cpu_percent),
        kept(ranges.ram_mb, ram_mb),
        kept(ranges.bandwidth_mbit_s, bandwidth_mbit_s),
        kept(ranges.latency_ms, latency_ms),
    )


def _draw_chain(draft: QueryDraft, filters: int) -> None:
    last = draft.add_source(draft.draw_rate("linear"))
    for _ in range(filters):
        last = draft.add_filter(last)


def _draw_advertisement(draft: QueryDraft) -> None:
    """Clicks and impressions: a filter, and a windowed join by the advertisement."""
    source = draft.source
    clicks = draft.add_source(draft.draw_rate("two-way"), (3, 2, 0))
    impressions = draft.add_source(draft.draw_rate("two-way"), (4, 3, 1))
    clicks = draft.add_filter(clicks, "!=", between(source, 0.2, 0.9), "string")
    window = {"window_policy": "time", "window_type": "sliding", "window_size": 10.0, "window_slide": 5.0}
    draft.add_join(impressions, clicks, window, 10.0 ** between(source, -1.5, 0.7))


def _draw_spikes(draft: QueryDraft) -> None:
    """Readings of sensors: those of one kind, their moving average, and what lies far above it."""
    source = draft.source
    last = draft.add_source(draft.draw_rate("linear"), (2, 1, 5))
    last = draft.add_filter(last, "!=", between(source, 0.6, 1.0), "double")
    window = {"window_policy": "count", "window_type": "sliding", "window_size": 25.0, "window_slide": 5.0}
    last = draft.add_aggregation(last, window, "avg", between(source, 2.0, 20.0))
    draft.add_filter(last, ">", 10.0 ** between(source, -2.5, -1.0), "double")


def _draw_smart_grid(draft: QueryDraft, groups: float) -> None:
    """Loads of plugs: mean over a sliding window, of all (`groups` 0) or by household."""
    last = draft.add_source(draft.draw_rate("linear"), (5, 0, 2))
    window = {"window_policy": "time", "window_type": "sliding", "window_size": 12.0, "window_slide": 3.0}
    draft.add_aggregation(last, window, "avg", groups)


UNSEEN_SHAPES = {
    "two-filters": lambda draft: _draw_chain(draft, 2),
    "three-filters": lambda draft: _draw_chain(draft, 3),
    "four-filters": lambda draft: _draw_chain(draft, 4),
    "advertisement": _draw_advertisement,
    "spike-detection": _draw_spikes,
    "smart-grid-global": lambda draft: _draw_smart_grid(draft, 0.0),
    "smart-grid-local": lambda draft: _draw_smart_grid(draft, 40.0),
}
QUERY_SHAPES.update(UNSEEN_SHAPES)
