"""Variation of costs and arrivals on its way through the stream processor: sums of epochs, which add up.

`engine.measurement.variation` says what they are for. Agents tell sums over runs and over steps of their sources; an
epoch, as a unit of the costs' next scale, follows from the totals of its runs.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from agent.wire import ARRIVAL_SUMS, COST_SUMS

__all__ = ["RUN_SUMS", "epoch_sums_of_runs"]

#: Columns that agents tell.
RUN_SUMS = (*COST_SUMS, *ARRIVAL_SUMS)


def epoch_sums_of_runs(epochs: pa.Table) -> dict[str, Any]:
    """Columns of `agent.wire.EPOCH_SUMS`: every epoch that had runs is one unit of n records that took t seconds."""
    n, t = epochs["run_records"], epochs["run_cpu_s"]
    return {
        "run_epochs": pc.greater(n, 0.0).cast(pa.float64()),
        "epoch_nn": pc.multiply(n, n),
        "epoch_nt": pc.multiply(n, t),
        "epoch_tt": pc.multiply(t, t),
    }
