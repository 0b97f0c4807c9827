"""State of the statistics: of operators and sweeping watermarks at agents, for some of the queries."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from spark_jobs.statistics.operator_history import OperatorHistory
from spark_jobs.statistics.sweep_history import SweepTables

__all__ = ["StatisticsState"]


@dataclass
class StatisticsState:
    """Sums and histories; tables do not change, they are replaced."""

    step: int = 0  #: batches that brought something
    now_ms: int = 0  #: arrival of the last of it
    counters: pa.Table | None = None  #: rows of `EPOCHS`, not summed yet
    sums: pa.Table | None = None  #: of subintervals that may still grow
    summed_ms: int = 0  #: when counters were last summed
    learned: OperatorHistory = field(default_factory=OperatorHistory)  #: of operators at agents
    sweeps: pa.Table | None = None  #: of windows at agents, not learned from yet
    swept: SweepTables = field(default_factory=SweepTables)  #: of sweeping watermarks at agents
