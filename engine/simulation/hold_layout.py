"""Holds of a deployment as tables: windows, buffers, micro-batches, and the watermarks that windows wait for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.document.deployment import Deployment
from engine.document.elements import WINDOW_END, Operator
from engine.estimation.waits.holds import BUFFER_BYTES
from engine.estimation.waits.windows import closes, is_event_time, sources_above, watermark_delays
from engine.simulation.rows import BATCH, BATCHED, BUFFER, CLOCK, COUNT, HOLD, WATERMARK, Rows

__all__ = ["HoldLayout", "OperatorHolds", "lay_out_holds"]


@dataclass(frozen=True, slots=True)
class OperatorHolds:
    """Holds of one operator by their number, -1 for none; whether it is told of time by markers, and tells on."""

    window: int = -1
    buffer: int = -1
    batch: int = -1
    listens: bool = False
    tells: bool = False


@dataclass(frozen=True, slots=True)
class HoldLayout:
    """Tables of holds; `queue` of a hold counts from the first queue after those of stations.

    `members` are the windows of batches, one batch after the other. `marks`, shape (holds, sources), is the latest time
    seen of every source, infinite of those that a hold does not wait for.
    """

    holds: Rows
    batches: Rows
    members: Rows
    marks: Rows
    of: tuple[OperatorHolds, ...]


def lay_out_holds(deployment: Deployment, *, phase_s: float, seed: int) -> HoldLayout:
    """Holds of a deployment whose horizon begins `phase_s` after a multiple of all periods.

    Where in its timeout each buffer begins is drawn.
    """
    builder = _HoldBuilder(deployment, phase_s, np.random.default_rng([seed, 1]))
    batches = {key: builder.add_batch(operator) for key, operator in builder.batched().items()}
    needed = builder.told_of_time()
    of = tuple(builder.add_operator(j, batches, needed) for j in range(len(deployment.operators)))
    return builder.tables(of)


class _HoldBuilder:
    def __init__(self, deployment: Deployment, phase_s: float, rng: np.random.Generator) -> None:
        self._deployment, self._phase_s, self._rng = deployment, phase_s, rng
        self._holds: list[dict[str, float]] = []
        self._batches: list[dict[str, float]] = []
        self._windows: list[list[int]] = []
        self._marks: list[np.ndarray] = []
        self._above, self._delays_s = sources_above(deployment), watermark_delays(deployment)

    def batched(self) -> dict[tuple[object, object], Operator]:
        """One operator of all that run in the same micro-batches."""
        return {(op.query, op.trigger): op for op in self._deployment.operators if op.trigger}

    def told_of_time(self) -> list[bool]:
        """Whether an operator has windows by event time, or such behind it."""
        deployment, graph = self._deployment, self._deployment.graph
        needed = [is_event_time(operator) for operator in deployment.operators]
        for j in graph.order[::-1]:
            if needed[j]:
                for stream in graph.in_stream[graph.in_start[j] : graph.in_start[j + 1]] - len(deployment.sources):
                    if stream >= 0:
                        needed[stream] = True
        return needed

    def add_batch(self, operator: Operator) -> int:
        trigger, number = operator.trigger, len(self._batches)
        assert trigger is not None
        gate, leaving = (self._add(kind=BATCHED, batch=number) for _ in range(2))
        row = {"interval_s": trigger.interval_s, "overhead_s": trigger.overhead_s or 0.0, "phase_s": self._phase_s}
        self._batches.append({**row, "gate": gate, "exit": leaving})
        self._windows.append([])
        return number

    def add_operator(self, j: int, batches: dict[tuple[object, object], int], needed: list[bool]) -> OperatorHolds:
        operator, graph, sources = self._deployment.operators[j], self._deployment.graph, len(self._deployment.sources)
        readers = np.flatnonzero(graph.in_stream == sources + j)
        tells = any(needed[i] for i in np.searchsorted(graph.in_start, readers, side="right") - 1)
        batch = batches.get((operator.query, operator.trigger), -1)
        window = self._add_window(j, operator, batch) if closes(operator) else -1
        if window >= 0 and batch >= 0:
            self._windows[batch].append(window)
        buffer = self._add_buffer(operator) if operator.buffer_timeout_s and len(readers) else -1
        return OperatorHolds(window, buffer, batch, needed[j], tells)

    def _add_window(self, j: int, operator: Operator, batch: int) -> int:
        window = operator.window
        assert window is not None
        common: dict[str, Any] = {"batch": batch, "restarts": int(window.measured_from == WINDOW_END)}
        if window.policy == "count":
            return self._add(kind=COUNT, size=window.period, **common)
        timed: dict[str, Any] = {"period_s": window.period, "phase_s": self._phase_s, **common}
        if not is_event_time(operator):
            return self._add(kind=CLOCK, **timed)
        delay_s = float(self._delays_s[j]) + (window.allowed_lateness_s or 0.0)
        return self._add(kind=WATERMARK, delay_s=delay_s, waits_for=self._above[j], **timed)

    def _add_buffer(self, operator: Operator) -> int:
        timeout_s, size = operator.buffer_timeout_s or 0.0, operator.bytes_per_event
        readers = [op for op in self._deployment.operators if any(e.source == operator.id for e in op.inputs)]
        channels = len(operator.replicas) * max(len(reader.replicas) for reader in readers)
        phase_s = float(self._rng.random()) * timeout_s
        full = BUFFER_BYTES * channels if size > 0.0 else 0.0
        return self._add(kind=BUFFER, period_s=timeout_s, phase_s=phase_s, size=full, delay_s=size)

    def _add(self, *, waits_for: set[int] | None = None, **fields: float) -> int:
        sources = self._deployment.sources
        self._holds.append({"batch": -1, **fields})
        wanted = [u in (waits_for or ()) and bool(source.arrivals.any()) for u, source in enumerate(sources)]
        self._marks.append(np.where(wanted, -np.inf, np.inf))
        return len(self._holds) - 1

    def tables(self, of: tuple[OperatorHolds, ...]) -> HoldLayout:
        holds, batches = np.zeros(len(self._holds), HOLD), np.zeros(len(self._batches), BATCH)
        for rows, listed in ((holds, self._holds), (batches, self._batches)):
            for row, fields in zip(rows, listed, strict=True):
                for name, value in fields.items():
                    row[name] = value
        holds["queue"], holds["watermark"] = np.arange(len(holds)), -np.inf
        ends = np.cumsum([len(windows) for windows in self._windows], dtype=np.int64)
        if len(batches):
            batches["last_window"] = ends
            batches["first_window"] = np.concatenate([[0], ends[:-1]])
        members = np.array([hold for windows in self._windows for hold in windows], np.int64)
        marks = np.array(self._marks).reshape(len(holds), len(self._deployment.sources))
        return HoldLayout(holds, batches, members, marks, of)
