"""The driver's side of the plan of record: asked of the console, kept on disk, written into Redis by version."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import redis

from agent.wire import generations
from engine.dataflow.pipeline import Pipeline
from engine.errors import EngineError
from engine.files import replace_file
from spark_jobs.console import ConsoleAway, ConsoleClient, ConsoleRefused
from spark_jobs.plans import (
    PIPELINES,
    PLAN_NUMBER,
    VERSIONS_KEPT,
    FlowKey,
    LivePlan,
    is_divisible,
    is_usable,
    plan_key,
    queries_key,
)

__all__ = ["Planner"]

_MAX_PIPELINES = 20_000  # that stay known; those of live queries always do
_MAX_ANSWERS = 500
_STATES_KEPT_MS = 30 * 86_400_000  # of queries that are not live, so that late records do not start them anew
_PAUSE_S = 5.0


@dataclass
class _Record:
    """The plan of record, and what else a version says."""

    number: int = 0  #: of the newest version
    queries: int = 0  #: of the newest list of queries
    known: bool = False  #: the console has answered once
    live: dict[FlowKey, LivePlan] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    idle: dict[FlowKey, int] = field(default_factory=dict)
    gone: dict[FlowKey, int] = field(default_factory=dict)  #: since when, milliseconds
    forgotten: list[tuple[str, str]] = field(default_factory=list)


class Planner:
    """Asks the console for plans, answers what tasks want to know, and writes versions for them.

    The folder is what counts: Redis has a copy, which is written again when Redis has lost it.
    """

    def __init__(self, folder: Path, console: ConsoleClient, client: redis.Redis, shards: int = 1) -> None:
        (folder / "pipelines").mkdir(parents=True, exist_ok=True)
        self._folder, self._console, self._redis, self._shards = folder, console, client, shards
        self._lock = threading.RLock()
        self._ask_from_s = 0.0
        self._written: deque[tuple[int, int]] = deque()  # versions in Redis, each with its list of queries
        self._changed = False  # and not written yet
        self._digests: set[str] = {path.stem for path in folder.glob("pipelines/*.json")}
        self._parsed: dict[str, Pipeline] = {}
        self.fault: str | None = None
        self._record = self._restore()

    @property
    def known(self) -> bool:
        """Whether there is a plan to go by, of this process or one before."""
        return self._record.known

    @property
    def live(self) -> Mapping[FlowKey, LivePlan]:
        return self._record.live

    def refresh(self) -> bool:
        """Ask the console for the plans; whether it answered. Without an answer the known plans stay."""
        with self._lock:
            try:
                answer = self._console.plan()
            except (ConsoleAway, ConsoleRefused) as error:
                self.fault = str(error)
                return False
            self.fault = None
            self._changed |= self._adopt(answer) if answer is not None else False
            self._changed |= self._forget(generations.expired_names(self._redis))
            if self._changed:
                self._write()
            return True

    def answer(self, wanted: Iterable[FlowKey]) -> None:
        """Answer frames of flows that are not live, or whose pipeline is not here.

        While the console is away the known plans stand, and frames of unknown pipelines wait on.
        """
        with self._lock:
            asked_ms = _now_ms(self._redis)
            is_there = self.refresh()
            for flow in set(wanted) - self._record.live.keys():
                found = self._find(flow[1])
                if found is False and is_there:
                    self._record.unknown = [*self._record.unknown[-_MAX_ANSWERS:], flow[1]]
                if found:
                    self._record.idle[flow] = asked_ms
                self._changed |= found is not None and (found or is_there)
            if self._changed:
                self._record.idle = dict(list(self._record.idle.items())[-_MAX_ANSWERS:])
                self._write()

    def begin(self, least: int = 0) -> None:
        """A version for a new driver: its first batch visits every partition, and warms everything up.

        Its number is above `least`, that of a batch which may run again.
        """
        with self._lock:
            self._record.number = max(self._record.number, least)
            self.publish()
            self._publish_pipelines()  # also those that the folder had before Redis knew of any
            self._write()

    def publish(self) -> None:
        """Write into Redis what it lacks, after a loss or at the start."""
        with self._lock:
            number = int(self._redis.get(PLAN_NUMBER) or 0)  # type: ignore[arg-type]
            if number > self._record.number:
                self._write()
            elif number < self._record.number or not self._is_there():
                self._publish_all()

    def _is_there(self) -> bool:
        """Whether Redis has all that tasks read. Keys may go one by one, where its memory is short."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.exists(PLAN_NUMBER, plan_key(self._record.number), queries_key(self._record.queries))
        pipe.hlen(PIPELINES)
        keys, pipelines = pipe.execute()
        return bool(keys == 3 and pipelines >= len(self._digests))

    # -- the console's answers

    def _adopt(self, answer: Mapping[str, Any]) -> bool:
        record, live = self._record, {}
        for item in answer.get("queries", ()):
            plan = LivePlan.of(item)
            pipeline = self._keep(plan.plan, item["pipeline"])
            if pipeline is not None:
                before = record.live.get(plan.key)
                live[plan.key] = LivePlan(**vars(plan) | {"shards": self._shards_of(plan, pipeline, before)})
        now_ms = time.time_ns() // 1_000_000
        gone = {flow: since for flow, since in record.gone.items() if now_ms - since < _STATES_KEPT_MS}
        gone |= dict.fromkeys(record.live.keys() - live.keys(), now_ms)
        gone = {flow: since for flow, since in gone.items() if flow not in live}
        if record.known and live == record.live and gone.keys() == record.gone.keys() and not record.unknown:
            return False
        if live != record.live or not record.known:
            record.queries += 1
        record.live, record.gone, record.known = live, gone, True
        record.unknown = []  # what the console did not know it may know now
        record.idle = {flow: asked for flow, asked in record.idle.items() if flow not in live}
        return True

    def _shards_of(self, plan: LivePlan, pipeline: Pipeline, before: LivePlan | None) -> int:
        """A run keeps the number it began with: its groups lie where that number put them."""
        if before is not None and before.started_us == plan.started_us:
            return before.shards
        return self._shards if is_usable(pipeline) and is_divisible(pipeline) else 1

    def _forget(self, names: Collection[tuple[str, str]]) -> bool:
        """Generations that the console has named are dropped from Redis first, and then by the tasks."""
        if not names:
            return False
        gone = generations.forget_generations(self._redis, names)
        self._record.forgotten = [*self._record.forgotten, *gone][-_MAX_ANSWERS * 10 :]
        return bool(gone)

    def _find(self, digest: str) -> bool | None:
        """Whether there is a pipeline of a digest; None where the console cannot be asked."""
        if not _is_digest(digest):
            return False
        if digest in self._digests:
            return True
        if time.monotonic() < self._ask_from_s:
            return None
        try:
            return self._keep(digest, self._console.pipeline(digest)) is not None
        except ConsoleRefused:
            return False
        except ConsoleAway as away:
            self._ask_from_s, self.fault = time.monotonic() + _PAUSE_S, str(away)
            return None

    def _keep(self, digest: str, document: Mapping[str, Any]) -> Pipeline | None:
        """Parse and keep; None where the document is none or belongs to another digest."""
        if (known := self._parsed.get(digest)) is not None:
            return known
        try:
            pipeline = Pipeline.parse(document)
        except EngineError as error:
            self.fault = f"plan {digest[:12]} does not parse: {error}"
            return None
        if pipeline.digest != digest:
            self.fault = f"plan {digest[:12]} has digest {pipeline.digest[:12]}: console and stream processor differ"
            return None
        self._parsed[digest] = pipeline
        if digest not in self._digests:
            text = json.dumps(document, separators=(",", ":"))
            replace_file(self._folder / "pipelines" / f"{digest}.json", text.encode())
            self._digests.add(digest)
            self._redis.hset(PIPELINES, digest, text)
            self._bound()
        return pipeline

    def _bound(self) -> None:
        if len(self._digests) <= _MAX_PIPELINES:
            return
        live = {plan for _, plan in self._record.live}
        files = sorted(self._folder.glob("pipelines/*.json"), key=lambda path: path.stat().st_mtime)
        for path in [path for path in files if path.stem not in live][: len(files) - _MAX_PIPELINES]:
            path.unlink(missing_ok=True)
            self._digests.discard(path.stem)
            self._redis.hdel(PIPELINES, path.stem)

    # -- versions

    def _write(self) -> None:
        """The next version: on disk, then in Redis; sources name it from then on."""
        record = self._record
        known = int(self._redis.get(PLAN_NUMBER) or 0)  # type: ignore[arg-type]
        record.number = max(record.number, known) + 1  # the folder may be newer than Redis: numbers never go back
        replace_file(self._folder / "plan.json", _packed(record))
        self._publish(record)
        self._changed = False

    def _publish(self, record: _Record) -> None:
        version = {
            "queries": record.queries,
            "unknown": record.unknown,
            "idle": [[*flow, asked] for flow, asked in record.idle.items()],
            "gone": [list(flow) for flow in record.gone],
            "forgotten": [list(name) for name in record.forgotten],
        }
        queries = [asdict(plan) for plan in record.live.values()]
        pipe = self._redis.pipeline(transaction=True)
        pipe.set(queries_key(record.queries), json.dumps([_item(plan) for plan in queries], separators=(",", ":")))
        pipe.set(plan_key(record.number), json.dumps(version, separators=(",", ":")))
        pipe.set(PLAN_NUMBER, record.number)
        if (record.number, record.queries) not in self._written:
            self._written.append((record.number, record.queries))
        if len(self._written) > VERSIONS_KEPT:
            number, queries = self._written.popleft()
            pipe.delete(plan_key(number))
            if queries != self._written[0][1]:
                pipe.delete(queries_key(queries))
        pipe.execute()

    def _publish_all(self) -> None:
        """Everything, and the present plan under the numbers of the versions before it: a batch may still name one."""
        self._publish_pipelines()
        self._publish(self._record)
        version = self._redis.get(plan_key(self._record.number))
        for number in range(max(1, self._record.number - VERSIONS_KEPT), self._record.number):
            self._redis.set(plan_key(number), version, nx=True)  # type: ignore[arg-type]

    def _publish_pipelines(self) -> None:
        for path in self._folder.glob("pipelines/*.json"):
            self._redis.hset(PIPELINES, path.stem, path.read_bytes())

    def _restore(self) -> _Record:
        path = self._folder / "plan.json"
        if not path.is_file():
            return _Record()
        try:
            return _restored(json.loads(path.read_bytes()))
        except (ValueError, KeyError, TypeError) as error:
            self.fault = f"{path} is damaged ({error!r}); the console is asked"
            return _Record()


def _restored(told: dict[str, Any]) -> _Record:
    plans = [LivePlan.of(item) for item in told["live"]]
    return _Record(
        told["number"],
        told["queries"],
        told["known"],
        {plan.key: plan for plan in plans},
        told["unknown"],
        {(query, plan): asked for query, plan, asked in told["idle"]},
        {(query, plan): since for query, plan, since in told["gone"]},
        [(agent, life) for agent, life in told["forgotten"]],
    )


def _packed(record: _Record) -> bytes:
    told = vars(record) | {
        "live": [_item(asdict(plan)) for plan in record.live.values()],
        "idle": [[*flow, asked] for flow, asked in record.idle.items()],
        "gone": [[*flow, since] for flow, since in record.gone.items()],
    }
    return json.dumps(told, separators=(",", ":")).encode()


def _item(plan: Mapping[str, Any]) -> dict[str, Any]:
    """A plan in the console's terms, which `LivePlan.of` reads."""
    named = {name: plan[name] for name in ("query", "plan", "agents", "started_us", "shards")}
    seconds = {"subinterval_s": plan["subinterval_us"] / 1e6, "retain_s": plan["retain_us"] / 1e6}
    return named | seconds | {"idle_after_s": plan["idle_after_ms"] / 1e3}


def _now_ms(client: redis.Redis) -> int:
    """The time by the clock that stamps arrivals."""
    seconds, micros = client.time()  # type: ignore[misc]
    return int(seconds) * 1000 + int(micros) // 1000


def _is_digest(text: str) -> bool:
    """Whether it can name a file: digests are hexadecimal."""
    return bool(text) and len(text) <= 128 and all(letter in "0123456789abcdef" for letter in text)
