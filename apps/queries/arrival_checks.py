"""What arrivals must be before they are stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from apps.core.errors import Conflict, Fault, Malformed, fault_count
from apps.fleet.models import Cluster
from apps.queries.csv_reading import MOST_PER_COUNT
from apps.queries.models import ArrivalSeries
from apps.queries.resampling import Trace
from engine.elements import FloatArray

__all__ = ["FILLS", "check_free", "check_length", "count_faults", "fill_faults", "malformed", "refuse", "source_faults"]

FILLS = ("zero", "repeat")


def fill_faults(fill: str) -> list[Fault]:
    """`fill` is one of the ways to go on after a trace's end, or empty where there is no need."""
    if fill in ("", *FILLS):
        return []
    return [Fault("fill", f"fill is {fill!r}; allowed: {', '.join(FILLS)}, or empty where the trace is long enough")]


def source_faults(source_id: str) -> list[Fault]:
    """A source's name is printable and cannot be taken for an operator's or a private copy's."""
    if not isinstance(source_id, str) or not source_id.strip() or len(source_id) > 120 or not source_id.isprintable():
        return [Fault("source_id", f"source_id is {source_id!r}; allowed: 1 to 120 printable characters")]
    if "/" in source_id or "@" in source_id:
        # "q/op" is how operators are called in a cluster's documents, "source@q" how private copies are.
        return [Fault("source_id", f"source_id is {source_id!r}; allowed: no / and no @ in it")]
    return []


def count_faults(values: FloatArray) -> list[Fault]:
    """Every count is a number of at least 0; NaN fails both comparisons."""
    if values.ndim != 1 or not len(values):
        return [Fault("counts", "counts is empty; allowed: a list of numbers")]
    bad = np.flatnonzero(~((values >= 0) & (values <= MOST_PER_COUNT)))
    allowed = f"a number from 0 to {MOST_PER_COUNT:g}"
    return [Fault(f"counts[{i}]", f"item {i} is {values[i]}; allowed: {allowed}") for i in bad[:20].tolist()]


def check_free(cluster: Cluster, source_id: str, replace: bool) -> None:
    """Refuse a second series of a source unless it is to replace the first."""
    if not replace and ArrivalSeries.objects.filter(cluster=cluster, source_id=source_id).exists():
        message = f"{source_id!r} has arrivals already; set replace to replace them"
        raise Conflict(f"source_id: {message}.", [("source_id", message)])


def malformed(faults: Sequence[Fault]) -> Malformed:
    """The refusal that carries `faults`."""
    return Malformed(f"The arrivals have {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)


def refuse(faults: Sequence[Fault]) -> None:
    """Raise Malformed if there are faults."""
    if faults:
        raise malformed(faults)


def check_length(trace: Trace, start_s: float, cluster: Cluster, fill: str) -> None:
    """Refuse a trace that ends before the horizon unless it is said what follows."""
    known_s = trace.end_s - start_s
    if known_s < cluster.horizon_s * (1 - 1e-9) and not fill:
        message = (
            f"the trace has {known_s:,.0f} s from there on, the horizon {cluster.horizon_s:,.0f} s; "
            "choose fill: repeat it, or zero events after its end"
        )
        raise Malformed(f"fill: {message}.", [("fill", message)])
