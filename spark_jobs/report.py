"""Report of the stream processor about itself, every two seconds."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import pyspark
import redis

from agent.wire.broker import PARTITIONS, oldest_at_s, read_reach, write_state
from spark_jobs.plans import FlowKey, LivePlan
from spark_jobs.session import Options
from spark_jobs.sink import BatchFacts

__all__ = ["StatusReport", "family_rss_bytes", "stream_report"]

_PERIOD_S = 2.0
_MAX_BEHIND = 10_000


def family_rss_bytes() -> dict[str, int]:
    """Resident bytes of the JVM and of Python."""
    sizes = {"jvm": 0, "python": 0}
    head = psutil.Process()
    for process in (head, *head.children(recursive=True)):
        try:
            sizes["jvm" if process.name() == "java" else "python"] += process.memory_info().rss
        except psutil.Error:
            continue
    return sizes


class StatusReport:
    """Thread that writes `sluice:stream:state` and runs periodic duties."""

    def __init__(self, client: redis.Redis, options: Options, also: Callable[[], None]) -> None:
        self._client, self._options, self._also = client, options, also
        self._facts: dict[str, Any] = {"state": "starting", "since": time.time()}
        self._ended = threading.Event()
        self._failed: list[str] = []
        self._thread = threading.Thread(target=self._run, name="report", daemon=True)
        self.more: Callable[[], Mapping[str, Any]] = dict

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop with a last report."""
        self._ended.set()
        self._thread.join(_PERIOD_S * 2)
        self._write()

    def say(self, state: str, fault: str | None = None) -> None:
        """Enter a state; `fault` is the reason where it is not ready."""
        if (state, fault) != (self._facts["state"], self._facts.get("fault")):
            print(f"stream processor: {state}{f': {fault}' if fault else ''}", file=sys.stderr, flush=True)
            since = self._facts["since"] if state == self._facts["state"] else time.time()
            self._facts = {"state": state, "since": since, "fault": fault}
            self._write()

    def _run(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            failed = [said for duty in (self._also, self._write) if (said := _failure(duty))]
            if failed and failed != self._failed:
                print(f"stream processor: {'; '.join(failed)}", file=sys.stderr, flush=True)
            self._failed = failed

    def _write(self) -> None:
        facts = dict(self._facts)
        fault = facts.pop("fault", None)
        said = facts | {
            "pid": os.getpid(),
            "spark": pyspark.__version__,
            "master": self._options.master,
            "trigger_s": self._options.trigger_s,
            "rss_bytes": family_rss_bytes(),
            **self.more(),
        }
        said["faults"] = [*([fault] if fault else []), *self._failed, *said.get("faults", [])]
        try:
            write_state(self._client, said)
        except redis.RedisError:
            return  # readers see from Redis itself that it is down


def _failure(duty: Callable[[], None]) -> str:
    """Do it; how it failed, as on a full disk. The thread goes on, or the whole would count as away."""
    try:
        duty()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def stream_report(facts: BatchFacts, live: Mapping[FlowKey, LivePlan], client: redis.Redis) -> dict[str, Any]:
    """The part of the report that batches tell; of live queries that they did not speak of yet, that nobody came."""
    waiting = facts.waiting
    flows = {key: _not_heard(plan) for key, plan in live.items()} | facts.flows
    by_watermark = sorted(flows.items(), key=lambda item: item[1]["watermark_us"] or 0)
    return {
        "batch": facts.step,
        "lag": _lag(facts, client),
        "behind_s": _behind_s(facts, client),
        "queries": {
            query: {"plan": plan, "unknown": waiting.get(query, 0)} | told for (query, plan), told in by_watermark
        },
        "quarantined": facts.count("quarantined"),
        "duplicates": facts.count("duplicates"),
        "gaps": facts.count("gaps"),
        "waiting": sum(waiting.values()),
    }


def _not_heard(plan: LivePlan) -> dict[str, Any]:
    nothing = {"excluded": [], "windows_open": 0, "late": 0, "early": 0}
    return nothing | {"watermark_us": None, "waiting_for": list(plan.agents)}


def _behind_s(facts: BatchFacts, client: redis.Redis) -> float | None:
    """Age of the oldest entry that is not processed yet; 0 where there is none, None while Redis is away."""
    try:
        oldest = [oldest_at_s(client, number, facts.read_to(number)) for number in range(PARTITIONS)]
        seconds, microseconds = client.time()  # entries are stamped by Redis' clock, and aged by it
    except redis.RedisError:
        return None
    oldest_s = min((at_s for at_s in oldest if at_s is not None), default=None)
    return 0.0 if oldest_s is None else round(max(0.0, seconds + microseconds / 1e6 - oldest_s), 3)


def _lag(facts: BatchFacts, client: redis.Redis) -> dict[str, int]:
    """Entries that are not processed yet."""
    try:
        return {
            str(number): read_reach(client, number, facts.read_to(number), _MAX_BEHIND, 2**40).entries
            for number in range(PARTITIONS)
        }
    except redis.RedisError:
        return {}
