"""``partition`` of the command line: the best plan of one chain of operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD
from engine.jarvis.partition import PROBLEM, Frontier, length_faults

__all__ = ["command"]


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a problem (`PROBLEM`): `e`, `p`, objective and CPU of an epoch, `plans` mixed and `theta`."""
    faults: list[Fault] = []
    read = PROBLEM.read(document, "", "", faults)
    if read is not BAD:
        faults += length_faults(document)
    if faults:
        raise DocumentError(faults, "partition problem")
    plan = Frontier.of(read["relay"], read["cost"], read.get("sizes")).at(read["budget"], read["n_records"])
    return {
        "e": list(plan.effective),
        "p": list(plan.load_factors),
        "objective": plan.objective,
        "cpu": plan.cpu_s,
        "plans": [plan.lo, plan.hi],
        "theta": plan.theta,
        "shadow_price": plan.shadow_price,
        "unique": plan.unique,
    }
