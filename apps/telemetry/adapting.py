"""How a part of a live query is adapted and agents schedule: what people set, what higher apps refine, and what agents
say of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.dispatch import Signal

from apps.core.errors import Fault
from apps.telemetry.models import Agent, Assignment
from engine.jarvis.settings import Settings

__all__ = ["FIXED", "fixed", "heard", "refined_of", "refiner", "schedule_of", "scheduler", "settings_read"]

FIXED = "fixed"
Refiner = Callable[[Assignment], Mapping[str, Any] | None]
Scheduler = Callable[[Agent], Mapping[str, Any] | None]

#: Sent with `agent` (an `Agent`, as written) when a heartbeat names another refined document, taken or refused, for one
#: of its queries or for its schedule than the heartbeat before. Each web process also sends it for the first heartbeat
#: that it hears.
heard = Signal()
_refiner: Refiner | None = None
_scheduler: Scheduler | None = None


def refiner(function: Refiner) -> Refiner:
    """Register the function that knows the refined document (`engine.jarvis.refined`) of a part, or None.

    It is asked whenever a configuration is made, so it is quick. After a change of what it answers, `configs_renew`.
    """
    global _refiner
    _refiner = function
    return function


def refined_of(part: Assignment) -> Mapping[str, Any] | None:
    """The refined document that an agent is to use; none where load factors are set by hand."""
    return None if _refiner is None or part.by_hand else _refiner(part)


def scheduler(function: Scheduler) -> Scheduler:
    """Register the function that knows the refined schedule (`engine.klink.refined`) of an agent, or None; as
    `refiner`."""
    global _scheduler
    _scheduler = function
    return function


def schedule_of(agent: Agent) -> Mapping[str, Any] | None:
    """The refined schedule that an agent is to use, also where all of its load factors are set by hand."""
    return None if _scheduler is None else _scheduler(agent)


def fixed(load_factors: Sequence[float]) -> dict[str, Any]:
    """Settings that keep load factors set by hand."""
    return {"method": FIXED, "load_factors": list(load_factors)}


def settings_read(given: Any, operators: int, faults: list[Fault]) -> dict[str, Any]:
    """Settings as they are stored: what was given, with numbers as numbers. Empty settings adapt from the default.

    `operators` is how many may run at a source: so many load factors are set by hand, or none.
    """
    before = len(faults)
    read = Settings.read(given, "", "settings", faults)
    if read is None or len(faults) > before:
        return {}
    found, wanted = len(read.load_factors), operators if read.method == FIXED else 0
    if found != wanted:
        why = "one for each operator that may run at a source" if wanted else f"the method {read.method} finds them"
        faults.append(Fault("settings.load_factors", f"load_factors has {found} items; allowed: {wanted}, {why}"))
    return {**given, "load_factors": list(read.load_factors)} if read.load_factors else dict(given)
