"""Work of estimates and verdicts, counted instead of timed: it is the same on every machine, however busy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any
from unittest.mock import patch

from engine.estimation import flow
from engine.estimation.noise import plan
from engine.estimation.reports import QueryReporter

__all__ = ["WorkCount", "count_work"]


@dataclass
class WorkCount:
    """Count of what compiled passes went through, and of calls in Python.

    Attributes
    ----------
    replicas : int
        Replicas whose slices Flow computed, each time that it did.
    stages : int
        Stages of queries that walks went through.
    reports : int
        Queries that were reported on.
    calls : int
        Calls of Python functions, whatever they did: looking at all queries shows here.
    """

    replicas: int = 0
    stages: int = 0
    reports: int = 0
    calls: int = 0


@contextmanager
def count_work() -> Iterator[WorkCount]:
    """Count what this thread does in a block."""
    count = WorkCount()
    run_flow, run_walk, report = flow.run_flow, plan.run_walk, QueryReporter.report

    def counted_flow(flow_plan: Any, *arguments: Any) -> Any:
        count.replicas += int((flow_plan.given == 0).sum())
        return run_flow(flow_plan, *arguments)

    def counted_walk(servers: Any, stages: Any, *arguments: Any) -> Any:
        count.stages += len(stages.server)
        return run_walk(servers, stages, *arguments)

    def counted_report(reporter: QueryReporter, query: str) -> Any:
        count.reports += 1
        return report(reporter, query)

    def count_call(frame: FrameType, event: str, argument: object) -> None:
        count.calls += event == "call"

    with (
        patch.object(flow, "run_flow", counted_flow),
        patch.object(plan, "run_walk", counted_walk),
        patch.object(QueryReporter, "report", counted_report),
    ):
        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            yield count
        finally:
            sys.setprofile(before)
