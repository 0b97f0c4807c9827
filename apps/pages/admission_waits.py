"""What a decision's latencies leave out for queries on live telemetry: the waits of the stages that pass records on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from apps.fleet.models import Cluster
from apps.measurements.timing import timing_now
from apps.telemetry.configs import live_served
from apps.ui.numbers import Quantity, seconds

__all__ = ["LiveWaits", "live_waits"]


@dataclass(frozen=True)
class LiveWaits:
    """The wait for the agents' epoch, the trigger and its batch; with it the queries `over` miss their objectives."""

    wait_s: float
    names: tuple[str, ...]
    over: tuple[str, ...]

    @property
    def wait(self) -> Quantity:
        return seconds(self.wait_s)


def live_waits(cluster: Cluster, decision: Mapping[str, Any]) -> LiveWaits | None:
    """The waits of live queries among the decision's effects, as the stages are now; None where there are none."""
    effects = {effect["query"]: effect for effect in decision.get("effects") or []}
    live = live_served().filter(query__cluster=cluster, query__name__in=effects)
    names = tuple(live.order_by("query__name").values_list("query__name", flat=True))
    if not names:
        return None
    timing = timing_now()
    wait_s = timing.epoch_s + timing.interval_s + timing.batch_s
    return LiveWaits(wait_s, names, tuple(name for name in names if _misses(effects[name], wait_s)))


def _misses(effect: Mapping[str, Any], wait_s: float) -> bool:
    bound_s, after_s = effect["bound_s"], effect["after_s"]
    return bool(bound_s) and after_s is not None and after_s <= bound_s < after_s + wait_s
