"""The stream processor in words: how it is, how far it is, whom it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from django.utils import timezone

from apps.core.errors import fault_count
from apps.telemetry.streams import stream_state
from apps.ui.marks import Mark
from apps.ui.numbers import MISSING, count, counted, seconds
from apps.ui.times import ago

__all__ = ["StreamCard", "StreamQuery", "moment_of"]

_MARKS = {
    "starting": Mark("jobs", "queue", "Starting"),
    "warming": Mark("jobs", "queue", "Warming up"),
    "ready": Mark("ok", "ok", "Ready"),
    "stopping": Mark("pause", "", "Stopping"),
    "failed": Mark("bad", "bad", "Failed"),
    "away": Mark("unknown", "watch", "Away"),
    "unknown": Mark("unknown", "watch", "Not known"),
}
_WORDS = {
    "starting": "It is starting: its engine takes about ten seconds.",
    "warming": "It is warming up: the first batch takes twenty seconds or more. What agents send waits in order.",
    "stopping": "It is stopping. What agents send waits until it is back.",
    "failed": "It failed and is started again by itself. What agents send waits.",
    "away": "It does not report. What agents send waits in Redis, then at the agents; nothing is lost.",
    "unknown": "Redis does not answer, so nothing is known of it. Agents keep what they have.",
}
#: Frames waiting from which its lag is worth a word.
_MUCH_LAG = 500
#: How far behind now a watermark is when somebody is waited for.
_BEHIND = timedelta(seconds=10)


def moment_of(microseconds: Any) -> datetime | None:
    """Microseconds since 1970 as a moment; None for what is none."""
    try:
        return datetime.fromtimestamp(float(microseconds) / 1e6, UTC) if microseconds else None
    except (TypeError, ValueError, OverflowError, OSError):
        return None


@dataclass(frozen=True)
class StreamQuery:
    """What the stream processor says of one query."""

    name: str
    watermark: datetime | None
    waiting_for: list[str]
    excluded: list[str]
    windows_open: int
    late: int
    early: int
    unknown: int

    @property
    def waits(self) -> str:
        """For whom, in words."""
        if not self.waiting_for:
            return "nobody"
        more = len(self.waiting_for) - 3
        return ", ".join(self.waiting_for[:3]) + (f" and {more} more" if more > 0 else "")


class StreamCard:
    """The state that the stream processor writes every two seconds."""

    def __init__(self, slug: str, names: Mapping[str, str], said: Mapping[str, Any] | None = None) -> None:
        """`names` are agents by id; `said` is read from Redis unless given."""
        self.slug = slug
        self.names = names
        self.said: Mapping[str, Any] = stream_state() if said is None else said

    @property
    def state(self) -> str:
        return str(self.said.get("state", "unknown"))

    @property
    def mark(self) -> Mark:
        return _MARKS.get(self.state, _MARKS["unknown"])

    @property
    def is_ready(self) -> bool:
        return self.state == "ready"

    @property
    def words(self) -> str:
        """One sentence: what it does, or what follows from what it does not."""
        if not self.is_ready:
            return _WORDS.get(self.state, "")
        if self.lag > _MUCH_LAG:
            return f"It is {count(self.lag)} frames behind; results come later until it has caught up."
        return f"It keeps up; {counted(self.lag, 'frame')} came since its last batch." if self.lag else "It keeps up."

    @property
    def lag(self) -> int:
        lag = self.said.get("lag") or {}
        return int(sum(lag.values())) if isinstance(lag, Mapping) else 0

    @property
    def since(self) -> str:
        return ago(moment_of(1e6 * float(self.said.get("since") or 0)))

    @property
    def batch(self) -> str:
        """Its last batch: number and duration."""
        number = self.said.get("batch")
        if number is None:
            return "none yet"
        took_s = self.said.get("batch_s")
        took = f", took {seconds(took_s)} of {seconds(self.said.get('trigger_s'))}" if took_s is not None else ""
        return f"{count(number)}{took}"

    @property
    def engine(self) -> str:
        version, master = self.said.get("spark"), self.said.get("master")
        return f"Spark {version} on {master}" if version and master else MISSING

    @property
    def quarantined(self) -> int:
        return int(self.said.get("quarantined") or 0)

    @property
    def faults(self) -> list[str]:
        found = [str(one) for one in self.said.get("faults") or []]
        if self.quarantined:
            text = fault_count(range(self.quarantined)).replace("fault", "frame")
            found.append(f"{text} could not be read and were put aside.")
        return found

    @cached_property
    def queries(self) -> list[StreamQuery]:
        """Of this cluster, by name."""
        own = f"{self.slug}/"
        said: Mapping[str, Any] = self.said.get("queries") or {}
        return [self._query(name.removeprefix(own), one) for name, one in sorted(said.items()) if name.startswith(own)]

    def query(self, name: str) -> StreamQuery | None:
        """One of this cluster's queries."""
        return next((one for one in self.queries if one.name == name), None)

    def _query(self, name: str, said: Mapping[str, Any]) -> StreamQuery:
        watermark = moment_of(said.get("watermark_us"))
        # somebody is always the last by a little: that is no waiting
        is_behind = watermark is None or timezone.now() - watermark > _BEHIND
        waiting = (said.get("waiting_for") or []) if is_behind else []
        return StreamQuery(
            name=name,
            watermark=watermark,
            waiting_for=[self.names.get(one, one[:8]) for one in waiting],
            excluded=[self.names.get(one, one[:8]) for one in said.get("excluded") or []],
            windows_open=int(said.get("windows_open") or 0),
            late=int(said.get("late") or 0),
            early=int(said.get("early") or 0),
            unknown=int(said.get("unknown") or 0),
        )
