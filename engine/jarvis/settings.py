"""Settings of a query's adaptation at its source: the method and its parameters with their safe ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from engine.kinds import Enumeration, Number
from engine.records import Record, Words

__all__ = ["METHODS", "METHOD_WORDS", "OBJECTIVES", "AdaptationSettings"]

#: Methods, and what each does. scalar: one effective budget along the envelope (default); fixed: by hand; the rest are
#: baselines.
METHOD_WORDS = {
    "scalar": "By itself, along the best plans for its CPU",
    "fixed": "By hand",
    "all-sp": "Nothing at the source (All-SP)",
    "all-src": "Everything at the source (All-Src)",
    "filter-src": "Filters alone (Filter-Src)",
    "best-op": "Whole operators alone, as many as fit (Best-OP)",
}
METHODS = tuple(METHOD_WORDS)
OBJECTIVES = {"bytes": "Bytes", "records": "Records"}


@dataclass(frozen=True)
class AdaptationSettings(Record):
    """Settings of one query at one source (docs/models/jarvis.md)."""

    TITLE: ClassVar[str] = "adaptation settings"

    method: Annotated[
        str,
        Enumeration(METHODS),
        Words("Method that finds the load factors.", label="Method", choices=METHOD_WORDS),
    ] = "scalar"
    objective: Annotated[str, Enumeration(tuple(OBJECTIVES)), Words("Quantity to minimise.", label="Objective")] = (
        "bytes"
    )
    load_factors: Annotated[
        tuple[Annotated[float, Number(least=0, most=1)], ...],
        Words("Of the method fixed, one for each operator.", label="Load factors"),
    ] = ()
    margin: Annotated[
        float,
        Number(least=0.90, most=0.98),
        Words("Share of the budget that plans use; the rest absorbs bursts.", label="CPU margin", unit="%", scale=100),
    ] = 0.95
    floor: Annotated[
        float,
        Number(least=0, most=0.01),
        Words(
            "Share of records that run the whole pipeline, so that costs of idle operators stay known; 0 for none.",
            label="Probe share",
            unit="%",
            scale=100,
        ),
    ] = 0.005
    drained_thres: Annotated[
        float,
        Number(least=0.02, most=0.10),
        Words(
            "Overflow, as a share of records, at which load is taken back at once.",
            label="Congestion threshold",
            unit="%",
            scale=100,
        ),
    ] = 0.05
    idle_thres: Annotated[
        float,
        Number(least=0.05, most=0.20),
        Words(
            "Unused share of the budget at which it takes on more load.", label="Idle threshold", unit="%", scale=100
        ),
    ] = 0.10
    z_least: Annotated[
        float, Number(least=0.25, most=1), Words("As a multiple of the budget.", label="Smallest effective budget")
    ] = 0.25
    z_most: Annotated[
        float, Number(least=1, most=4), Words("As a multiple of the budget.", label="Largest effective budget")
    ] = 4.0
