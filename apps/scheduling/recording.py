"""What an agent's queries recorded of late, as `engine.klink.replay` takes it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from apps.core.errors import Fault, Impossible
from apps.scheduling.lines import QueryLine
from apps.telemetry.configs import EPOCH_S
from apps.telemetry.epochs import MOST_ROWS
from engine.klink.settings import ScheduleSettings

__all__ = ["LEAST_EPOCHS", "LEAST_WINDOWS", "MOST_EPOCHS", "Recorded", "recorded"]

LEAST_EPOCHS = 30  #: of any query
LEAST_WINDOWS = 3  #: of any query, that were swept in them
MOST_EPOCHS = MOST_ROWS + 60  #: from the oldest to the newest: queries do not all begin at once
_EPOCH_US = round(EPOCH_S * 1e6)
_BIN_MS = 1e3 * EPOCH_S
_LEAST_CORES = 0.001
_MOST_MISSING = 0.1  # of the epochs of a query, before it is said


@dataclass(frozen=True)
class Recorded:
    """Arrivals, costs and delays of watermarks of the queries at an agent."""

    queries: list[dict[str, Any]]  #: of the document of a replay
    cores: float  #: CPU seconds a second that operators could have had
    since_us: int  #: by the agent's clock
    until_us: int
    windows: int
    notes: tuple[str, ...]

    def document(self, settings: ScheduleSettings, policies: Sequence[str]) -> dict[str, Any]:
        """The document of a replay."""
        return {
            "queries": self.queries,
            "bin_ms": _BIN_MS,
            "policies": list(policies),
            "schedule": dict(settings.to_dict()),
            "cores": self.cores,
        }


def recorded(agent: str, lines: Sequence[QueryLine]) -> Recorded:
    """What was recorded of the queries of an agent, `agent` its name.

    Raises
    ------
    Impossible
        Too little was: each reason by the query that it is of.
    """
    told = [line for line in lines if line.rows]
    faults = [Fault(line.name, "no epoch is recorded") for line in lines if not line.rows]
    if not told:
        raise _refused(agent, faults or [Fault("agent", f"{agent} runs no live query")])
    since_us = min(line.rows[0].epoch_us for line in told)
    bins = (max(line.rows[-1].epoch_us for line in told) - since_us) // _EPOCH_US + 1
    faults += [Fault(line.name, "no record came") for line in told if not _records(line)]
    busy = [line for line in told if _records(line)]
    windows = sum(len(line.sweeps) for line in busy)
    if bins < LEAST_EPOCHS:
        faults.append(Fault("epochs", f"{bins} epochs are recorded; {LEAST_EPOCHS} are the least that is replayed"))
    elif bins > MOST_EPOCHS:
        said = f"they span {bins:,} epochs; {MOST_EPOCHS:,} are the most, so its clock was set meanwhile"
        faults.append(Fault("epochs", said))
    elif windows < LEAST_WINDOWS:
        faults.append(Fault("windows", f"{windows} windows were swept in {bins} epochs; {LEAST_WINDOWS} are the least"))
    elif busy:
        return Recorded(
            queries=[_query(line, since_us, bins) for line in busy],
            cores=max(_LEAST_CORES, _cores(busy)),
            since_us=since_us,
            until_us=since_us + bins * _EPOCH_US,
            windows=windows,
            notes=(*(f"{fault.path}: {fault.message}" for fault in faults), *_notes(busy, bins)),
        )
    raise _refused(agent, faults)


def _refused(agent: str, faults: Sequence[Fault]) -> Impossible:
    message = f"Too little is recorded of {agent} to be replayed: {faults[0].path}: {faults[0].message}."
    return Impossible(message, faults, code="too_little_recorded")


def _records(line: QueryLine) -> int:
    return sum(row.records_in for row in line.rows)


def _notes(lines: Sequence[QueryLine], bins: int) -> list[str]:
    missing = {line.name: 1 - len(line.rows) / bins for line in lines}
    notes = [
        f"{name}: {100 * share:.0f} % of the epochs were not told; nothing came in them, as far as is known"
        for name, share in missing.items()
        if share > _MOST_MISSING
    ]
    silent = [line.name for line in lines if line.period_s is not None and not line.sweeps]
    return notes + [f"{name}: no window was swept; its records count, its windows do not" for name in silent]


def _query(line: QueryLine, since_us: int, bins: int) -> dict[str, Any]:
    arrivals = [0] * bins
    for row in line.rows:
        arrivals[(row.epoch_us - since_us) // _EPOCH_US] += row.records_in  # a life begins where it begins
    records = _records(line)
    worked = max(1, records - sum(row.overflow for row in line.rows))
    said = {
        "id": line.name,
        "cost_ms": 1e3 * sum(row.used_s for row in line.rows) / worked,
        "arrivals": arrivals,
        "record_bytes": max(1.0, sum(row.bytes_in for row in line.rows) / records),
    }
    return said | (_windows(line, since_us, bins) if line.period_s is not None and line.sweeps else {})


def _windows(line: QueryLine, since_us: int, bins: int) -> dict[str, Any]:
    """Deadlines in these epochs, and how late the watermark of each came; of those between that were not told as late
    as the others on average. Records with times far ahead end windows far ahead: these are left out."""
    period_us = round(1e6 * (line.period_s or 0.0))
    first_us = math.ceil(since_us / period_us) * period_us
    delays: dict[int, float] = {}
    for one in line.sweeps:
        if first_us <= one.deadline_us <= since_us + bins * _EPOCH_US:
            delays.setdefault((one.deadline_us - first_us) // period_us, one.delay_s)
    mean_s = fmean(delays.values()) if delays else 0.0
    count = max(delays, default=-1) + 1
    return {
        "period_ms": period_us / 1e3,
        "first_ms": (first_us - since_us) / 1e3,
        "delays_ms": [1e3 * delays.get(place, mean_s) for place in range(count)],
    }


def _cores(lines: Sequence[QueryLine]) -> float:
    """What a query could have had is what nobody else used, or its fair share: with what the others used it is all."""
    used: dict[int, float] = {}
    most: dict[int, float] = {}
    for row in (row for line in lines for row in line.rows):
        used[row.epoch_us] = used.get(row.epoch_us, 0.0) + row.used_s
        most[row.epoch_us] = max(most.get(row.epoch_us, 0.0), row.budget_s - row.used_s)
    return fmean(used[epoch_us] + free_s for epoch_us, free_s in most.items()) / EPOCH_S
