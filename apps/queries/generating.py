"""Arrivals from the engine's generators, with their parameters checked by name and kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apps.core.errors import Fault
from apps.fleet.models import Cluster
from apps.queries.arrival_checks import malformed, refuse
from engine.elements import FloatArray
from engine.workload import GENERATORS, WorkloadError

__all__ = ["generated"]


def generated(spec: Mapping[str, Any], cluster: Cluster, path: str = "generator") -> FloatArray:
    """Events per slice of `{"kind": …, "mean_rate_eps": …, …}` on a cluster's grid.

    Raises
    ------
    Malformed
        With every parameter that is unknown or has a value it does not take.
    """
    kind = spec.get("kind")
    generate = GENERATORS.get(kind) if isinstance(kind, str) else None
    if generate is None:
        raise malformed([Fault(f"{path}.kind", f"kind is {kind!r}; allowed: {', '.join(GENERATORS)}")])
    given = {name: value for name, value in spec.items() if name != "kind"}
    defaults = {"mean_rate_eps": 0.0, **(generate.__kwdefaults__ or {})}
    allowed = ", ".join(defaults)
    faults = [Fault(f"{path}.{name}", f"unknown field; allowed: {allowed}") for name in given if name not in defaults]
    wrong = [name for name in defaults if name in given and not _fits(given[name], defaults[name])]
    faults += [
        Fault(f"{path}.{name}", f"{name} is {given[name]!r}; allowed: {_kind(defaults[name])}") for name in wrong
    ]
    if "mean_rate_eps" not in given:
        faults.append(Fault(f"{path}.mean_rate_eps", "mean_rate_eps is missing; allowed: events per second"))
    refuse(faults)
    try:
        return generate(**given, horizon_s=cluster.horizon_s, slice_s=cluster.slice_s)
    except WorkloadError as error:
        raise malformed([Fault(f"{path}.{name}", message) for name, message in error.faults.items()]) from None


def _fits(value: Any, default: Any) -> bool:
    """Whether a parameter is of its default's kind. bool is checked first, since Python counts it as a number."""
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    return isinstance(value, int) if isinstance(default, int) else isinstance(value, (int, float))


def _kind(default: Any) -> str:
    if isinstance(default, bool):
        return "true or false"
    return "a whole number" if isinstance(default, int) else "a number"
