"""State of a relay: frames, watermarks and silence of its children, waiting partials, and the order of merges."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from agent.config import RelayConfig
from agent.runtime import WriterState
from agent.runtime.cpu import OperatorCost
from agent.runtime.downstream import Delay, read_delays
from agent.runtime.query.windows import still_open
from agent.wire import batch_bytes, table_of
from agent.wire.silence import excused_agents, is_pause
from engine.dataflow import Pipeline
from engine.klink.policies import QueryView, make_policy, starving_query
from engine.klink.settings import ScheduleSettings
from engine.klink.slack import min_slack_ms
from engine.klink.watermarks import SweepForecast

__all__ = ["ChildMark", "Children", "Key", "MergeSchedule", "MergeSession", "RelayState", "row_count", "split_closed"]

Key = tuple[str, str]  # query and plan
_LIVES = 4  # of one child are remembered


@dataclass(frozen=True)
class ChildMark:
    """Last mark of a child for a query: its watermark by path, and the epoch that carried it."""

    watermarks: Mapping[str, int]
    closing_epoch_us: int


@dataclass
class RelayState:
    """Everything that must survive a restart. `changed_by` makes the next state; this one stays as it is."""

    accepted: dict[str, dict[str, int]] = field(default_factory=dict)  #: child -> life -> seq
    marks: dict[Key, dict[str, ChildMark]] = field(default_factory=dict)
    sent: dict[Key, ChildMark] = field(default_factory=dict)  #: what was sent on
    shapes: dict[Key, tuple[int | None, int]] = field(default_factory=dict)  #: window size and entry of what is held
    held: dict[Key, list[pa.Table]] = field(default_factory=dict)

    def accepted_seq(self, child: str, life: str) -> int:
        return self.accepted.get(child, {}).get(life, 0)

    def changed_by(self, notes: Mapping[str, Any], tables: Sequence[pa.Table]) -> RelayState:
        """The state after a record: frames accepted from a child, or frames sent on."""
        accepted = {child: dict(lives) for child, lives in self.accepted.items()}
        marks = {key: dict(by_child) for key, by_child in self.marks.items()}
        held = {key: list(waiting) for key, waiting in self.held.items()}
        new = RelayState(accepted, marks, dict(self.sent), dict(self.shapes), held)
        if "taken" in notes:
            new._take(notes["taken"], iter(tables))
        for sent in notes.get("sent", ()):
            new._send(sent)
        return new

    def stored(self) -> WriterState:
        """All of it in one record."""
        notes = {
            "accepted": self.accepted,
            "marks": [
                [*key, child, *_mark_notes(mark)] for key, marks in self.marks.items() for child, mark in marks.items()
            ],
            "out": [[*key, *_mark_notes(mark)] for key, mark in self.sent.items()],
            "open": [list(key) for key in self.marks],
            "shapes": [[*key, *shape] for key, shape in self.shapes.items()],
            "held": [list(key) for key, tables in self.held.items() for _ in tables],
        }
        return WriterState(
            {"whole": notes}, tuple(batch_bytes(table) for tables in self.held.values() for table in tables)
        )

    @classmethod
    def recovered(cls, records: Sequence[WriterState]) -> RelayState:
        """Replay what was stored, oldest first."""
        state = cls()
        for stored in records:
            tables = [table_of(blob) for blob in stored.blobs]
            whole = stored.notes.get("whole")
            state = cls._whole(whole, tables) if whole is not None else state.changed_by(stored.notes, tables)
        return state

    @classmethod
    def _whole(cls, notes: Mapping[str, Any], tables: Sequence[pa.Table]) -> RelayState:
        state = cls(accepted=notes["accepted"], marks={(query, plan): {} for query, plan in notes["open"]})
        for query, plan, child, watermarks, closing_us in notes["marks"]:
            state.marks[query, plan][child] = ChildMark(watermarks, closing_us)
        state.sent = {(query, plan): ChildMark(marks, closing_us) for query, plan, marks, closing_us in notes["out"]}
        state.shapes = {(query, plan): (size_us, entry) for query, plan, size_us, entry in notes["shapes"]}
        for (query, plan), table in zip(notes["held"], tables, strict=True):
            state.held.setdefault((query, plan), []).append(table)
        return state

    def _take(self, notes: Mapping[str, Any], tables: Iterator[pa.Table]) -> None:
        child, life = notes["child"], notes["life"]
        lives = self.accepted.setdefault(child, {})
        lives.pop(life, None)
        lives[life] = notes["seq"]
        for old in list(lives)[:-_LIVES]:
            del lives[old]
        for query, plan, size_us, entry in notes["partials"]:
            self.held.setdefault((query, plan), []).append(next(tables))
            self.shapes[query, plan] = size_us, entry
        for query, plan, watermarks, closing_us, final in notes["marks"]:
            of_plan = self.marks.setdefault((query, plan), {})
            if final:
                of_plan.pop(child, None)
            else:
                of_plan[child] = ChildMark(watermarks, closing_us)

    def _send(self, notes: Mapping[str, Any]) -> None:
        key = notes["query"], notes["plan"]
        mark = ChildMark(notes["watermarks"], notes["closing_epoch_us"])
        size_us, _ = self.shapes.get(key, (None, 0))
        _, stays = split_closed(self.held.get(key, []), size_us, None if notes["all"] else mark)
        self.held[key] = [stays] if stays is not None else []
        if not self.held[key]:
            del self.held[key]
        self.sent[key] = mark
        if notes["final"]:
            for table in (self.sent, self.marks, self.shapes):
                table.pop(key, None)


def _mark_notes(mark: ChildMark) -> tuple[dict[str, int], int]:
    return dict(mark.watermarks), mark.closing_epoch_us


def row_count(tables: Iterable[pa.Table]) -> int:
    """Rows of all tables."""
    return sum(table.num_rows for table in tables)


def split_closed(
    tables: Sequence[pa.Table], size_us: int | None, mark: ChildMark | None
) -> tuple[pa.Table | None, pa.Table | None]:
    """Partial rows that go with a mark, and those that stay; without a mark all go. None where there are none."""
    if not tables:
        return None, None
    whole = tables[0] if len(tables) == 1 else pa.concat_tables(tables)
    if mark is None or size_us is None:
        return whole, None
    # the largest of the paths: what is sent early is only merged further up, what is sent late would be missed
    stays = still_open(whole, size_us, max(mark.watermarks.values(), default=0), mark.closing_epoch_us)
    going, staying = whole.filter(pc.invert(stays)), whole.filter(stays)
    return (going if going.num_rows else None), (staying if staying.num_rows else None)


class LowestMarks(NamedTuple):
    """The least of the children's marks; whether the query has ended; children that are silent."""

    mark: ChildMark
    final: bool
    left_out: set[str]


class Children:
    """Time of the last sign of life of each child. Their marks are in the relay's state, which is passed with each
    question.
    """

    def __init__(self, relay: RelayConfig) -> None:
        self._heard_s: dict[str, float] = {}
        self._waited_s: dict[str, float] = {}  # since when a child is waited for anew
        self._began_s = time.monotonic()
        self.adopt(relay)

    def adopt(self, relay: RelayConfig) -> None:
        """Children of another configuration; known ones keep their time of the last sign of life."""
        self._relay = relay
        self._by_secret = {child.secret_hash: child.agent for child in relay.children}

    def named(self, secret_hash: str) -> str | None:
        """The child with this secret."""
        return self._by_secret.get(secret_hash)

    def touch(self, child: str) -> None:
        """Note a sign of life of a child. After a pause of all of them the others are waited for anew."""
        now_s, patience_s = time.monotonic(), self._relay.idle_after_s
        seen = dict(self._heard_s)  # other threads hear other children
        heard_s = max(seen.values(), default=now_s)
        if is_pause(heard_s, now_s, patience_s):
            excused = excused_agents(seen, self._waited_s, heard_s, patience_s)
            self._waited_s |= dict.fromkeys(excused, now_s)
        self._heard_s[child] = now_s

    def of(self, key: Key, state: RelayState) -> set[str]:
        """Children that run the query, or have sent a mark for it."""
        query, plan = key
        children = {child.agent for child in self._relay.children if child.queries.get(query) == plan}
        return children | (state.marks.get(key, {}).keys() & self._relay.by_agent.keys())

    def silent(self, key: Key, state: RelayState) -> set[str]:
        """Children of the query that have been silent for too long to wait for."""
        return set(filter(self._is_silent, self.of(key, state)))

    def _is_silent(self, child: str) -> bool:
        since_s = max(self._heard_s.get(child, self._began_s), self._waited_s.get(child, self._began_s))
        return time.monotonic() - since_s > self._relay.idle_after_s

    def least(self, key: Key, state: RelayState) -> LowestMarks:
        """Lowest marks of the children that are waited for; never below the mark sent on."""
        before, marks = state.sent.get(key, ChildMark({}, 0)), state.marks.get(key, {})
        children, left_out = self.of(key, state), self.silent(key, state)
        if not children:
            return LowestMarks(before, key in state.marks, left_out)
        waited_for = children - left_out
        if not waited_for or any(child not in marks for child in waited_for):
            return LowestMarks(before, False, left_out)
        heard = [marks[child] for child in waited_for]
        paths = dict.fromkeys(path for mark in heard for path in mark.watermarks)
        least = {path: min(mark.watermarks.get(path, 0) for mark in heard) for path in paths}
        never_back = {path: max(us, before.watermarks.get(path, 0)) for path, us in least.items()}
        closing_us = max(before.closing_epoch_us, *(mark.closing_epoch_us for mark in heard))
        return LowestMarks(ChildMark(never_back, closing_us), False, left_out)

    def reports(self, state: RelayState) -> list[dict[str, Any]]:
        """Report of each child for the heartbeat."""
        return [self._report(child.agent, state) for child in self._relay.children]

    def _report(self, child: str, state: RelayState) -> dict[str, Any]:
        heard_s = self._heard_s.get(child)
        silent_s = time.monotonic() - (heard_s if heard_s is not None else self._began_s)
        lives = list(state.accepted.get(child, {}).values())
        return {
            "agent": child,
            "state": "silent" if self._is_silent(child) else "connected" if heard_s is not None else "awaited",
            "silent_s": round(silent_s, 1),
            "accepted_seq": lives[-1] if lives else 0,
        }


_SATURATED_EPOCHS = 5  # one after the other that left queries over: there is more work than CPU time
_RECENT = 20  # windows whose latencies are reported


@dataclass
class MergeSession:
    """One query at the relay. Times are microseconds since 1970.

    The window that ends at `deadline_us` is the next to be sent on; `pending_us` is when the last of the children's
    watermarks passed it.
    """

    period_us: int | None
    cost: OperatorCost = field(default_factory=OperatorCost)
    delays: dict[str, Mapping[str, Delay]] = field(default_factory=dict)  #: by child and stream
    rows: int = 0  #: that wait
    since_us: int | None = None  #: arrival of the oldest rows that were not merged yet
    ran_us: int | None = None
    deadline_us: int | None = None
    pending_us: int | None = None
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))  #: from deadline to sending on

    def came(self, rows: int, now_us: int) -> None:
        """Partial rows, or a mark: so many rows wait now."""
        self.rows = rows
        self.since_us = self.since_us or now_us

    def passed(self, watermark_us: int, now_us: int) -> None:
        """The least of the children's watermarks."""
        if self.period_us is None:
            return
        if self.deadline_us is None:  # windows of before the start are not late
            self.deadline_us = _next(watermark_us, self.period_us)
        elif watermark_us >= self.deadline_us and self.pending_us is None:
            self.pending_us = now_us

    def sent(self, watermark_us: int, rows: int, now_us: int) -> None:
        """It has had its turn, after which `rows` stay; windows that the watermark passed are on their way."""
        self.rows, self.since_us, self.ran_us = rows, None, now_us
        if self.period_us is None or self.deadline_us is None or watermark_us < self.deadline_us:
            return
        following_us = _next(watermark_us, self.period_us)
        oldest_us = max(self.deadline_us, following_us - _RECENT * self.period_us)
        for deadline_us in range(oldest_us, following_us, self.period_us):
            self.latencies_s.append(max(now_us - deadline_us, 0) / 1e6)
        self.deadline_us, self.pending_us = following_us, None

    def view(self, key: Key, now_us: int) -> QueryView:
        """The query as a policy sees it."""
        cost_ms, now_ms = self.cost.record_ns / 1e6, now_us / 1e3
        work_ms = self.rows * cost_ms
        pending_ms = None if self.pending_us is None else self.pending_us / 1e3
        return QueryView(
            id="/".join(key),
            queued=[self.rows],
            cost_ms=[cost_ms],
            selectivity=[1.0],
            work_ms=work_ms,
            arrived_ms=None if self.since_us is None else self.since_us / 1e3,
            deadline_ms=None if self.deadline_us is None else self.deadline_us / 1e3,
            pending_ms=pending_ms,
            pending_work_ms=work_ms if pending_ms is not None else 0.0,
            slack_ms=self._slack_ms(now_ms, work_ms, pending_ms),
            ideal_ms=cost_ms,
            ran_ms=float("-inf") if self.ran_us is None else self.ran_us / 1e3,
        )

    def _slack_ms(self, now_ms: float, work_ms: float, pending_ms: float | None) -> float | None:
        """Least slack over the streams of all children; some report the period alone, or nothing."""
        if self.deadline_us is None:
            return None
        known_forecasts = [
            stream.forecast(self.deadline_us) for streams in self.delays.values() for stream in streams.values()
        ]
        due_ms = self.deadline_us / 1e3
        forecasts = known_forecasts or [SweepForecast(due_ms, 0.0, due_ms, due_ms, 0)]
        return min_slack_ms(now_ms, work_ms, [(forecast, pending_ms) for forecast in forecasts])

    def report(self, key: Key, now_us: int) -> dict[str, Any]:
        """Report of the query for the heartbeat."""
        slack_ms, latencies_s = self.view(key, now_us).slack_ms, self.latencies_s
        return {
            "query": key[0],
            "plan": key[1],
            "rows": self.rows,
            "row_cost_s": self.cost.record_ns / 1e9 if self.cost.known else None,
            "slack_s": None if slack_ms is None else round(slack_ms / 1e3, 6),
            "delays": {
                child: {stream: delay.note() for stream, delay in streams.items()}
                for child, streams in self.delays.items()
            },
            "windows": len(latencies_s),
            "latency_mean_s": round(sum(latencies_s) / len(latencies_s), 6) if latencies_s else None,
            "latency_most_s": round(max(latencies_s), 6) if latencies_s else None,
        }


class MergeSchedule:
    """The queries that a relay merges for, and the policy by which they take turns."""

    def __init__(self, settings: ScheduleSettings) -> None:
        self.sessions: dict[Key, MergeSession] = {}
        self.left_over = 0  #: queries that had to wait for the next epoch, of the last one
        self.ignored = 0  #: delays from children that could not be used
        self._guarded = False
        self._behind_epochs = 0
        self.settings, self._policy = settings, make_policy(settings.policy)

    def adopt(self, settings: ScheduleSettings, children: Collection[str]) -> None:
        """Use these settings from now on; delays reported by other children are dropped."""
        if settings.policy != self.settings.policy:  # else it keeps what it has seen of windows
            self._policy = make_policy(settings.policy)
        self.settings = settings
        for session in self.sessions.values():
            session.delays = {child: streams for child, streams in session.delays.items() if child in children}

    def take_delays(self, session: MergeSession, child: str, extra: Mapping[str, Any]) -> None:
        """Take in the watermark delays of a child's mark; a final mark clears them."""
        delays, ignored = read_delays(extra)
        self.ignored += ignored
        if extra.get("final"):
            session.delays.pop(child, None)
        elif delays:
            session.delays[child] = delays

    def session(self, key: Key, pipeline: Pipeline | None) -> MergeSession:
        """The query's session; a new one where there was none, or its plan was not known before."""
        window = pipeline.window if pipeline is not None else None
        period_us = window.slide_us if window is not None else None
        session = self.sessions.get(key)
        if session is None or session.period_us != period_us:
            session = self.sessions[key] = MergeSession(period_us)
        return session

    def pick(self, waiting: Collection[Key], now_us: int) -> Key:
        """The query to run next; one past the starvation limit goes first, every other time at most."""
        keys = list(waiting)
        views = [self.sessions[key].view(key, now_us) for key in keys]
        index = None if self._guarded else starving_query(views, now_us / 1e3, self.settings.starvation_s)
        self._guarded = index is not None
        if index is None:
            index = self._policy.pick(views, now_us / 1e3, self._behind_epochs >= _SATURATED_EPOCHS)
        return keys[index or 0]

    def epoch_over(self, left_over: int) -> None:
        """So many queries wait for the next epoch."""
        self.left_over = left_over
        self._behind_epochs = self._behind_epochs + 1 if left_over else 0

    def report(self, now_us: int) -> dict[str, Any]:
        """The heartbeat's part of merging."""
        queries = [session.report(key, now_us) for key, session in sorted(self.sessions.items())]
        return {"policy": self.settings.policy, "left_over": self.left_over, "queries": queries}


def _next(watermark_us: int, period_us: int) -> int:
    return (watermark_us // period_us + 1) * period_us
