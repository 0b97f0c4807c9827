"""Bytes that really leave a source in an epoch: partial rows by their groups, frames, counters and checkpoints.

They are concave in the shares of the input that leave at each cut, as groups come more slowly than records and a frame
costs the same however full it is. The least over all shares that a budget allows is therefore at a vertex: one
operator-level plan or a mixture of two that uses the budget up (docs/models/jarvis.md).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.errors import Fault
from engine.fields import Field, FieldTable, Number
from engine.jarvis.group_law import distinct, keys

__all__ = ["AGGREGATE", "OVERHEAD", "Overhead", "PartialRows", "SentBytes", "VertexPlan", "WireBytes", "wire_faults"]

EPOCH_BYTES = 4500.0  # a mark, and the counters of four operators
FRAME_BYTES = 1200.0  # lead, header and the schema of five columns
FRAME_RECORDS = 1000.0
WINDOW_BYTES = 2300.0  # a frame that tells when a window was swept
CHECKPOINT_SHARE = 0.1
_STEP = 1e-6  # of the CPU time of running everything: how much more budget the shadow price is taken over
_TIE = 1e-12  # relative

_NON_NEGATIVE = Number(least=0)
AGGREGATE = FieldTable(
    "an aggregate",
    Field("groups", Number(above=0), required=True, help="keys that there are (K); see seen_records"),
    Field("bytes", _NON_NEGATIVE, required=True, help="of a partial row"),
    Field(
        "seen_records", Number(above=0), help="groups are those seen among so many records of an epoch (or a window)"
    ),
    Field("window_epochs", Number(least=1), help="epochs of a window; without it partial rows leave in every epoch"),
)
OVERHEAD = FieldTable(
    "overhead",
    Field("epoch_bytes", _NON_NEGATIVE, help=f"of an epoch whatever is sent: mark and counters ({EPOCH_BYTES:g})"),
    Field("frame_bytes", _NON_NEGATIVE, help=f"of a frame beside its rows ({FRAME_BYTES:g})"),
    Field("frame_records", Number(above=0), help=f"rows that one frame takes ({FRAME_RECORDS:g})"),
    Field("window_bytes", _NON_NEGATIVE, help=f"of a window that ends, whatever is sent ({WINDOW_BYTES:g})"),
    Field(
        "checkpoint_share",
        Number(least=0, most=1),
        help=f"bytes of copies of open windows over those of all else, at most ({CHECKPOINT_SHARE:g})",
    ),
)


@dataclass(frozen=True, slots=True)
class PartialRows:
    """Partial rows of the last operator, an aggregate.

    Examples
    --------
    >>> partials = PartialRows(keys=500, bytes=40)
    >>> round(partials.rows(1000)), round(partials.rows(500))
    (432, 316)
    """

    keys: float  #: K, of which each record has one; infinite where every record is its own group
    bytes: float  #: of a row
    window_epochs: float | None = None  #: None: rows leave in every epoch

    @classmethod
    def of(cls, read: Mapping[str, Any]) -> PartialRows:
        """From the fields of `AGGREGATE`."""
        groups, seen = float(read["groups"]), read.get("seen_records")
        there = groups if seen is None else keys(float(seen), groups)
        return cls(there, float(read["bytes"]), read.get("window_epochs"))

    def rows(self, records: float) -> float:
        """Rows that leave in an epoch of so many records, on average over a window."""
        epochs = self.window_epochs or 1.0
        return distinct(records * epochs, self.keys) / epochs

    def open_bytes(self, records: float) -> float:
        """Bytes of the rows that stay open at an epoch's end, as they are in the middle of a window."""
        if self.window_epochs is None or self.window_epochs <= 1:
            return 0.0
        return distinct(records * self.window_epochs / 2, self.keys) * self.bytes


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes of an epoch beside rows; the defaults are those of our agent."""

    epoch_bytes: float = EPOCH_BYTES
    frame_bytes: float = FRAME_BYTES
    frame_records: float = FRAME_RECORDS
    window_bytes: float = WINDOW_BYTES
    checkpoint_share: float = CHECKPOINT_SHARE


@dataclass(frozen=True, slots=True)
class SentBytes:
    """Bytes that leave in an epoch, by what they are."""

    drained: float  #: records
    output: float  #: rows that the last operator puts out
    overhead: float  #: frames beside their rows, marks, counters and sweeps
    checkpoints: float  #: copies of open windows

    @property
    def total(self) -> float:
        return self.drained + self.output + self.overhead + self.checkpoints


@dataclass(frozen=True, slots=True)
class VertexPlan:
    """Mixture of the operator-level plans `lo` (1 - `theta`) and `hi` (`theta`)."""

    lo: int
    hi: int
    theta: float
    cpu_s: float  #: per epoch
    sent: SentBytes
    shadow_price: float  #: bytes saved by one more CPU second
    unique: bool


@dataclass(frozen=True)
class WireBytes:
    """Bytes and CPU time of a pipeline's operator-level plans in epochs of `n_records`.

    Parameters
    ----------
    relay, cost, sizes
        As of `engine.jarvis.partition.Frontier`; the last relay ratio and size do not count with `partials`.
    partials
        Rows of the last operator; None: it puts out `relay` records of `sizes` bytes for each.
    overhead
        None: none.
    """

    relay: Sequence[float]
    cost: Sequence[float]
    sizes: Sequence[float]
    n_records: float
    partials: PartialRows | None = None
    overhead: Overhead | None = None
    volumes: tuple[float, ...] = field(init=False)  #: M + 1, records behind each cut where all of the input runs so far
    cpu_s: tuple[float, ...] = field(init=False)  #: M + 1, of an epoch

    def __post_init__(self) -> None:
        volumes, cpu_s = [float(self.n_records)], [0.0]
        for ratio, seconds in zip(self.relay, self.cost, strict=True):
            cpu_s.append(cpu_s[-1] + volumes[-1] * seconds)
            volumes.append(volumes[-1] * ratio)
        object.__setattr__(self, "volumes", tuple(volumes))
        object.__setattr__(self, "cpu_s", tuple(cpu_s))

    def sent(self, shares: Mapping[int, float]) -> SentBytes:
        """Bytes of an epoch where these shares of the input, summing to 1, leave behind so many operators."""
        last = len(self.relay)
        records = {cut: share * self._reaching(cut) for cut, share in shares.items()}
        drained = {cut: came for cut, came in records.items() if cut < last and came > 0}
        drained_bytes = math.fsum(came * self.sizes[cut] for cut, came in drained.items())
        came, window_epochs, open_bytes = records.get(last, 0.0), None, 0.0
        if self.partials is None:
            rows, row_bytes = came, self.sizes[last]
        else:
            rows, row_bytes = self.partials.rows(came), self.partials.bytes
            window_epochs, open_bytes = self.partials.window_epochs, self.partials.open_bytes(came)
        output_bytes, over = rows * row_bytes, self.overhead
        if over is None:
            return SentBytes(drained_bytes, output_bytes, 0.0, 0.0)
        begun = len(drained) + (1 / (window_epochs or 1.0) if rows > 0 else 0.0)
        frames = begun + (math.fsum(drained.values()) + rows) / over.frame_records
        windows = 1 / window_epochs if window_epochs else 0.0
        return SentBytes(
            drained_bytes,
            output_bytes,
            over.epoch_bytes + frames * over.frame_bytes + windows * over.window_bytes,
            min(open_bytes, over.checkpoint_share * (drained_bytes + output_bytes)),
        )

    def best(self, budget_s: float) -> VertexPlan:
        """The plan that sends the fewest bytes; of several as good the cheapest, then that with fewest operators.

        Every vertex is tried, M^2 / 4 at most.
        """
        plans = sorted(self._vertices(budget_s), key=lambda plan: plan[0].total)
        least = plans[0][0].total
        ties = [plan for plan in plans if plan[0].total <= least * (1 + _TIE)]
        sent, cpu_s, lo, hi, theta = min(ties, key=lambda plan: plan[1:])
        more_s = _STEP * self.cpu_s[-1]
        saved = least - min(plan[0].total for plan in self._vertices(budget_s + more_s))
        price = min(max(saved, 0.0) / more_s, sys.float_info.max) if more_s > 0 else 0.0
        return VertexPlan(lo, hi, theta, cpu_s, sent, price, unique=len(ties) == 1)

    def _reaching(self, cut: int) -> float:
        """Records that a cut passes on where all of the input comes so far; of an aggregate those that it takes."""
        return self.volumes[cut - 1 if self.partials is not None and cut == len(self.relay) else cut]

    def _vertices(self, budget_s: float) -> Iterator[tuple[SentBytes, float, int, int, float]]:
        """Bytes, CPU seconds, lo, hi and theta of each."""
        cpu_s = self.cpu_s
        for lo, spent in enumerate(cpu_s):
            if spent > budget_s:
                break
            yield self.sent({lo: 1.0}), spent, lo, lo, 0.0
            if spent == budget_s:
                continue
            for hi in range(lo + 1, len(cpu_s)):
                if cpu_s[hi] > budget_s:
                    theta = (budget_s - spent) / (cpu_s[hi] - spent)
                    yield self.sent({lo: 1 - theta, hi: theta}), budget_s, lo, hi, theta


def wire_faults(given: Mapping[str, Any]) -> list[Fault]:
    """Faults of `aggregate` and `overhead` beside the other fields of a problem."""
    faults = []
    asked = [name for name in ("aggregate", "overhead") if name in given]
    if given.get("sizes") is None:
        faults += [
            Fault(name, f"{name} is given without sizes; allowed: with sizes, as it counts bytes") for name in asked
        ]
    aggregate = given.get("aggregate")
    if not isinstance(aggregate, Mapping):
        return faults
    if isinstance(given.get("relay"), (list, tuple)) and not given["relay"]:
        faults.append(Fault("aggregate", "aggregate is given without operators; allowed: with one, the last of relay"))
    groups, seen = (aggregate.get(name) for name in ("groups", "seen_records"))
    positive = Number(above=0)
    if groups is not None and seen is not None and positive.fits(groups) and positive.fits(seen) and groups > seen:
        message = f"groups is {groups:g}; allowed: at most {seen:g}, as seen_records is"
        faults.append(Fault("aggregate.groups", message))
    return faults
