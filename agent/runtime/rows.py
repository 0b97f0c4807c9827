"""What the console has not heard yet of each query's epochs: a row of each, until a heartbeat with it is answered."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from agent.runtime.proxy import Counts
from engine.jarvis.observation import EpochObservation

__all__ = ["EpochRows", "epoch_row"]

MOST_ROWS = 120  # of a query; older ones are forgotten
DECIMALS = 6


def epoch_row(seen: EpochObservation, counts: Sequence[Counts], version: int | None) -> dict[str, Any]:
    """One epoch in short names, apart from its delay.

    `e` epoch (microseconds since 1970), `p` load factors, `n` records, `bi` their bytes, `bs` bytes sent, `o` records
    overflowing; CPU seconds `u` used, `b` that could have been used, `i` idle; `v` version of the refined configuration
    in force.
    """
    return {
        "e": seen.epoch_us,
        "p": [round(one.load_factor, DECIMALS) for one in seen.operators],
        "n": seen.n_records,
        "bi": counts[0].bytes_in if counts else 0,
        "bs": seen.bytes_sent,
        "o": sum(one.records_overflow for one in counts),
        "u": round(seen.used_s, DECIMALS),
        "b": round(seen.budget_s, DECIMALS),
        "i": round(seen.idle_s, DECIMALS),
        "v": version,
    }


class EpochRows:
    """Rows by query. The runtime adds them, the sender says when their frames were taken, the heartbeat reads them.

    `d` of a row is the time from its epoch's end until its frames were acknowledged. Where they are not yet, it is that
    of the newest epoch that was acknowledged, or how long its own have waited by now, whichever is more; None while
    nothing was ever acknowledged.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, deque[dict[str, Any]]] = {}
        self._ended_ns: dict[int, int] = {}
        self._delays_s: dict[int, float] = {}
        self._newest_delay_s: float | None = None

    def add(self, epoch_us: int, ended_ns: int, rows: Mapping[str, dict[str, Any]]) -> None:
        """An epoch has ended: a row for each query that runs."""
        with self._lock:
            for query in self._rows.keys() - rows.keys():
                del self._rows[query]
            for query, row in rows.items():
                self._rows.setdefault(query, deque(maxlen=MOST_ROWS)).append(row)
            self._ended_ns[epoch_us] = ended_ns
            for known in (self._ended_ns, self._delays_s):
                while len(known) > MOST_ROWS:
                    del known[next(iter(known))]

    def acknowledged(self, epoch_us: int, now_ns: int) -> None:
        """All frames of an epoch were taken by the console, or the relay that this agent sends to."""
        with self._lock:
            ended_ns = self._ended_ns.get(epoch_us)
            if ended_ns is not None:
                self._newest_delay_s = self._delays_s[epoch_us] = round((now_ns - ended_ns) / 1e9, DECIMALS)

    def unsaid(self, now_ns: int) -> dict[str, list[dict[str, Any]]]:
        """The rows of each query, oldest first."""
        with self._lock:
            return {
                query: [{**row, "d": self._delay_s(row["e"], now_ns)} for row in rows]
                for query, rows in self._rows.items()
            }

    def said(self, query: str, epoch_us: int) -> None:
        """The console has those up to this one."""
        with self._lock:
            rows = self._rows.get(query, deque())
            while rows and rows[0]["e"] <= epoch_us:
                rows.popleft()

    def _delay_s(self, epoch_us: int, now_ns: int) -> float | None:
        if epoch_us in self._delays_s or self._newest_delay_s is None:
            return self._delays_s.get(epoch_us)
        waited_s = (now_ns - self._ended_ns[epoch_us]) / 1e9
        return round(max(self._newest_delay_s, waited_s), DECIMALS)
