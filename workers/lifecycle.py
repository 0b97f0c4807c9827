"""Start of a worker: loads and compiles the engine."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from celery.signals import worker_init

from apps.core.transactions import log_work_in_transactions
from engine.compilation import show_compilation
from engine.document.deployment import Deployment
from engine.estimation.estimate import estimate
from engine.klink.replay import ReplayQuery, ReplayQuestion, replay
from engine.placement.proposal import place
from engine.planner.profile import NodeHardware, StageProfile
from engine.planner.sizing import size_stage

__all__ = ["warm_up"]

_log = logging.getLogger(__name__)
_SMALL_REPLAY = ReplayQuestion((ReplayQuery("few", 1.0, (1.0, 1.0), 1000.0, delays_ms=(0.0,)),))


def warm_up() -> float:
    """Load the compiled parts of the engine by having each do something tiny; returns the seconds it took.

    A first search would otherwise spend its time on compiling, and propose the first placement it comes upon; a first
    replay would keep somebody waiting.
    """
    started = time.perf_counter()
    tiny = Deployment.parse(_SMALL_DEPLOYMENT)
    estimate(tiny, mace_every=4)
    place(tiny, budget_s=None, rounds=1, flow=False)
    replay(_SMALL_REPLAY)
    size_stage(StageProfile(), NodeHardware(), rate=1e4, max_nodes=1, constraint_s=1.0, with_curves=False)
    return time.perf_counter() - started


@worker_init.connect
def _warm(**_: Any) -> None:
    """In the parent, before it forks: children inherit what is loaded, and nothing is compiled twice."""
    log_work_in_transactions()
    try:
        with show_compilation(sys.stderr, rewrites=False):  # `up` shows the newest line while it waits
            seconds = warm_up()
        _log.info("engine ready after %.1f s", seconds)
    except Exception:
        _log.warning("the engine could not be warmed up", exc_info=True)


_SMALL_DEPLOYMENT: dict[str, Any] = {
    "subinterval_s": 0.25,
    "sources": [{"id": "source", "arrivals": [2.0] * 16}],
    "nodes": [{"id": "a", "capacity_cps": 10.0}, {"id": "b", "capacity_cps": 10.0}],
    "operators": [
        {
            "id": "tiny/in",
            "query": "tiny",
            "node": "a",
            "inputs": [
                {
                    "from": "source",
                    "selectivity": 1.0,
                    "cycles_per_event": 1.0,
                    "batches": [
                        {"events": 10, "outputs": 10, "cycles": 10},
                        {"events": 10, "outputs": 9, "cycles": 11},
                    ],
                }
            ],
        },
        {
            "id": "tiny/out",
            "query": "tiny",
            "node": "b",
            "inputs": [{"from": "tiny/in", "selectivity": 1.0, "cycles_per_event": 1.0}],
        },
    ],
    "objectives": [{"query": "tiny", "statistic": "worst", "bound_s": 1.0}],
}
