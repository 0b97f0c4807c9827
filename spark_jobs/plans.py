"""Plans of live queries, from the console and kept on disk, and their operators."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from engine.dataflow.arrow.kernels import AggregateKernel, Kernel, RowKernel, StreamJoinKernel, kernel
from engine.dataflow.pipeline import Pipeline
from engine.errors import EngineError
from engine.files import replace_file
from spark_jobs.console import ConsoleAway, ConsoleClient, ConsoleRefused

__all__ = ["LivePlan", "Plans", "aggregate_of", "operator_of", "row_operator", "stream_join_of"]


_RETAIN_S, _IDLE_AFTER_S, _SUBINTERVAL_S = 900.0, 15.0, 60.0
_MAX_KEPT = 500
_PAUSE_S = 5.0


@dataclass(frozen=True)
class LivePlan:
    """A live query and its settings, as the console reports them."""

    query: str
    plan: str
    agents: tuple[str, ...] = ()
    subinterval_us: int = int(_SUBINTERVAL_S * 1e6)
    retain_us: int = int(_RETAIN_S * 1e6)
    idle_after_ms: int = int(_IDLE_AFTER_S * 1e3)
    started_us: int = 0  #: when it was last started: another moment is another run

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> LivePlan:
        """One item of the console's answer."""
        return cls(
            str(item["query"]),
            str(item["plan"]),
            tuple(str(agent) for agent in item.get("agents", ())),
            round(float(item.get("subinterval_s") or _SUBINTERVAL_S) * 1e6),
            round(float(item.get("retain_s") or _RETAIN_S) * 1e6),
            round(float(item.get("idle_after_s") or _IDLE_AFTER_S) * 1e3),
            int(item.get("started_us") or 0),
        )


class Plans:
    """The plan of record, and every pipeline that frames may name."""

    def __init__(self, folder: Path, console: ConsoleClient) -> None:
        (folder / "pipelines").mkdir(parents=True, exist_ok=True)
        self._folder, self._console = folder, console
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._parsed: dict[str, Pipeline] = {}
        self._refused: set[str] = set()
        self._ask_from_s = 0.0
        self._live: dict[tuple[str, str], LivePlan] = {}
        self._by_query: dict[str, LivePlan] = {}
        self.fault: str | None = None
        self.known = self._restore()

    def refresh(self) -> bool:
        """Ask the console for the plans; whether it answered. Without an answer the known plans stay."""
        with self._asking:  # or the second to ask hears that nothing changed before the first has taken the change in
            try:
                answer = self._console.plan()
            except (ConsoleAway, ConsoleRefused) as error:
                self.fault = str(error)
                return False
            self.fault = None
            if answer is not None:
                self.adopt(answer)
                replace_file(self._folder / "plan.json", json.dumps(answer, separators=(",", ":")).encode())
            return True

    def live(self) -> Mapping[tuple[str, str], LivePlan]:
        """Queries that are live now, by query and plan."""
        return self._live

    def widths_us(self) -> dict[str, int]:
        """Length of a subinterval by query."""
        return {query: plan.subinterval_us for query, plan in self._by_query.items()}

    def settings(self, query: str, plan: str) -> LivePlan:
        """Settings of a flow; one no longer live keeps its query's settings and names no agents."""
        if (live_plan := self._live.get((query, plan))) is not None:
            return live_plan
        other = self._by_query.get(query)
        if other is None:
            return LivePlan(query, plan)
        return LivePlan(query, plan, (), other.subinterval_us, other.retain_us, other.idle_after_ms)

    def windowed_entry(self, digest: str) -> int | None:
        """The operator of a plan that aggregates over windows; None where there is none, or the plan is not known."""
        pipeline = self._parsed.get(digest)
        return pipeline.aggregate if pipeline is not None and pipeline.window is not None else None

    def pipeline(self, digest: str) -> Pipeline | None:
        """The pipeline of a digest.

        Returns
        -------
        Pipeline or None
            None when the console does not know it, or knows it as something that does not parse.

        Raises
        ------
        ConsoleAway
            It is not here, and the console cannot be asked.
        """
        with self._lock:
            if digest in self._parsed or digest in self._refused:
                return self._parsed.get(digest)
            pipeline = self._kept(digest) or self._fetched(digest)
            if pipeline is None:
                self._refused = {*list(self._refused)[-_MAX_KEPT:], digest}
            return pipeline

    def _kept(self, digest: str) -> Pipeline | None:
        """The pipeline from disk."""
        path = self._folder / "pipelines" / f"{digest}.json"
        if not _is_digest(digest) or not path.is_file():
            return None
        return self._keep(digest, json.loads(path.read_bytes()))

    def _fetched(self, digest: str) -> Pipeline | None:
        """The pipeline from the console, which is left alone for a while when it does not answer."""
        if not _is_digest(digest):
            return None
        if time.monotonic() < self._ask_from_s:
            raise ConsoleAway(self.fault or "the console did not answer a moment ago")
        try:
            return self._keep(digest, self._console.pipeline(digest))
        except ConsoleRefused:
            return None
        except ConsoleAway:
            self._ask_from_s = time.monotonic() + _PAUSE_S
            raise

    def adopt(self, answer: Mapping[str, Any]) -> None:
        """Take the console's answer for the plan of record."""
        live = {}
        for item in answer.get("queries", ()):
            plan = LivePlan.of(item)
            if self._keep(plan.plan, item["pipeline"]) is not None:
                live[plan.query, plan.plan] = plan
        self._live, self._by_query = live, {plan.query: plan for plan in live.values()}
        self._refused = set()  # what the console did not know it may know now
        self.known = True

    def _keep(self, digest: str, document: Mapping[str, Any]) -> Pipeline | None:
        """Parse and remember; None where the document is none or belongs to another digest."""
        if digest in self._parsed:
            return self._parsed[digest]
        try:
            pipeline = Pipeline.parse(document)
        except EngineError as error:
            self.fault = f"plan {digest[:12]} does not parse: {error}"
            return None
        if pipeline.digest != digest:
            self.fault = f"plan {digest[:12]} has digest {pipeline.digest[:12]}: console and stream processor differ"
            return None
        self._parsed[digest] = pipeline
        path = self._folder / "pipelines" / f"{digest}.json"
        if not path.is_file():
            replace_file(path, json.dumps(document, separators=(",", ":")).encode())
            self._bound()
        return pipeline

    def _restore(self) -> bool:
        path = self._folder / "plan.json"
        if not path.is_file():
            return False
        self.adopt(json.loads(path.read_bytes()))
        return True

    def _bound(self) -> None:
        files = sorted(self._folder.glob("pipelines/*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[_MAX_KEPT:]:
            path.unlink(missing_ok=True)


def _is_digest(text: str) -> bool:
    """Whether it can name a file: digests are hexadecimal."""
    return bool(text) and len(text) <= 128 and all(letter in "0123456789abcdef" for letter in text)


class _PipelineKey:
    """A pipeline as a key: plans of one digest are one."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline

    def __hash__(self) -> int:
        return hash(self.pipeline.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PipelineKey) and self.pipeline.digest == other.pipeline.digest


def operator_of(pipeline: Pipeline, index: int) -> Kernel:
    """The operator at `index`."""
    return _made(_PipelineKey(pipeline), index)


def aggregate_of(pipeline: Pipeline) -> AggregateKernel:
    """The first aggregate; every live query has one."""
    assert pipeline.aggregate is not None
    operator = operator_of(pipeline, pipeline.aggregate)
    assert isinstance(operator, AggregateKernel)
    return operator


def row_operator(pipeline: Pipeline, index: int) -> RowKernel:
    """A stateless operator."""
    operator = operator_of(pipeline, index)
    assert isinstance(operator, RowKernel)
    return operator


def stream_join_of(pipeline: Pipeline) -> StreamJoinKernel:
    """The join with another stream, of a pipeline that has one."""
    assert pipeline.stream_join is not None
    operator = operator_of(pipeline, pipeline.stream_join)
    assert isinstance(operator, StreamJoinKernel)
    return operator


@lru_cache(maxsize=1000)
def _made(plan: _PipelineKey, index: int) -> Kernel:
    return kernel(plan.pipeline, index)
