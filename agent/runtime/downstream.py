"""Messages between an agent and the relay above it: delays of watermarks and costs of rows, checked.

The agent sees a stream's watermarks first and sends their delays (`delay`) with its marks. The relay merges the
agents' rows, and sends the cost of a row (`cost:OPERATOR`) with its answers. Nothing else is exchanged: only the
figures that a node needs for its slack and cannot measure itself (`engine.klink.slack`).

Impossible values are left out and counted: the other side may be of another release, and its frames count all the
same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

from engine.klink.watermarks import SweepForecast

__all__ = ["COST", "DELAY", "FORWARDED", "Costs", "Delay", "cost_notes", "read_costs", "read_delays"]

DELAY = "delay"  #: in a mark's `extra`: by stream
COST = "cost:"  #: before an operator's name
FORWARDED = "forwarded"  #: in the answer to a post: a list, one object for each query
MAX_STREAMS = 16  # of a mark
MAX_QUERIES = 1000  # of an answer
MAX_SECONDS = 1e9  # thirty years: a delay beyond it is of no clock

#: CPU seconds of a row that leaves the agent, further up, by query and plan.
Costs = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Delay:
    """Delay of the sweeping watermarks of one stream; mean and variance are None while only the period is known."""

    period_s: float
    epochs: int
    mean_s: float | None = None
    variance_s2: float | None = None

    def note(self) -> dict[str, Any]:
        """As `read_delays` reads it."""
        note = {"period_s": self.period_s, "epochs": self.epochs}
        return note if self.mean_s is None else note | {"mean_s": self.mean_s, "variance_s2": self.variance_s2}

    def forecast(self, deadline_us: int) -> SweepForecast:
        """Expected arrival of the watermark of the window that ends then, at the reporting child; milliseconds since
        1970.
        """
        mean_ms = deadline_us / 1e3 + (self.mean_s or 0.0) * 1e3
        deviation_ms = sqrt(self.variance_s2 or 0.0) * 1e3
        return SweepForecast(mean_ms, deviation_ms, mean_ms, mean_ms, self.epochs)


def read_delays(extra: Mapping[str, Any]) -> tuple[dict[str, Delay], int]:
    """Delays by stream in the `extra` of a mark, and how many there could not be used."""
    document = extra.get(DELAY)
    if document is None:
        return {}, 0
    if not isinstance(document, Mapping) or len(document) > MAX_STREAMS:
        return {}, 1
    read = {stream: _delay(note) for stream, note in document.items()}
    delays = {stream: note for stream, note in read.items() if note is not None}
    return delays, len(read) - len(delays)


def _delay(document: Any) -> Delay | None:
    if not isinstance(document, Mapping):
        return None
    period_s, epochs = document.get("period_s"), document.get("epochs")
    mean_s, variance_s2 = document.get("mean_s"), document.get("variance_s2")
    if not _is_number(period_s) or not period_s or type(epochs) is not int or epochs < 0:
        return None
    if mean_s is None and variance_s2 is None:
        return Delay(period_s, epochs)
    if not (_is_number(mean_s) and _is_number(variance_s2, MAX_SECONDS**2)):
        return None
    return Delay(period_s, epochs, mean_s, variance_s2)


def cost_notes(costs: Iterable[tuple[str, str, str, float]]) -> list[dict[str, Any]]:
    """Query, plan, operator and CPU seconds per row, as `read_costs` reads them."""
    return [{"query": query, "plan": plan, f"{COST}{name}": cost_s} for query, plan, name, cost_s in costs]


def read_costs(answer: Mapping[str, Any]) -> tuple[Costs, int]:
    """Costs downstream from the answer to a post, and the number of its objects that could not be used."""
    document = answer.get(FORWARDED)
    if document is None:
        return {}, 0
    if not isinstance(document, list) or len(document) > MAX_QUERIES:
        return {}, 1
    read = [_cost(note) for note in document]
    costs = {key: cost_s for note in read if note is not None for key, cost_s in [note]}
    return costs, sum(note is None for note in read)


def _cost(document: Any) -> tuple[tuple[str, str], float] | None:
    if not isinstance(document, Mapping):
        return None
    query, plan = document.get("query"), document.get("plan")
    costs = [value for name, value in document.items() if isinstance(name, str) and name.startswith(COST)]
    if not (isinstance(query, str) and isinstance(plan, str) and costs and all(map(_is_number, costs))):
        return None
    return (query, plan), sum(costs)


def _is_number(value: Any, most: float = MAX_SECONDS) -> bool:
    return type(value) in (int, float) and isfinite(value) and 0 <= value <= most
