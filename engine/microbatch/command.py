"""``spark`` of the command line: the functions of the micro-batch model, one call per document."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Anything, Enumeration, Field, FieldTable, ListOf, Number, String
from engine.microbatch.model import coefficients, least_squares
from engine.microbatch.settings import MicroBatchProfile
from engine.microbatch.sizing import MicroBatchQuestion, size_microbatch

__all__ = ["command"]

_COUNT = Number(least=1, whole=True)
_NOT_NEGATIVE = Number(least=0)
_STATISTIC = (
    Field("kind", String(), help="mean; any other word means the quantile x (mean)"),
    Field("x", Number(above=0, least=0), help="level of the quantile, below 1 (0.99)"),
)
_COEFFICIENTS = FieldTable(
    "batch_coeffs",
    Field("cores", _COUNT, required=True),
    Field("p_in", _COUNT, required=True),
    Field("p_sh", _COUNT, required=True),
    *(Field(name, _NOT_NEGATIVE, required=True) for name in ("f0", "t_task", "c_in", "c_sh", "alpha")),
    Field("cv", _NOT_NEGATIVE),
)
_LATENCY = FieldTable(
    "latency",
    Field("lam", Number(above=0), required=True),
    *(Field(name, _NOT_NEGATIVE, required=True) for name in ("T", "F", "k")),
    *_STATISTIC,
    Field("sd_p", _NOT_NEGATIVE),
)
_MAX_RATE = FieldTable(
    "lam_max",
    Field("L", Number(above=0), required=True),
    *(Field(name, _NOT_NEGATIVE, required=True) for name in ("F", "k")),
    *_STATISTIC,
)
_FIT = FieldTable("fit", Field("progress", ListOf(Anything()), required=True))
_SIZE = FieldTable(
    "size",
    Field("profile", MicroBatchProfile.TABLE, required=True),
    Field("question", MicroBatchQuestion.TABLE, required=True),
)


def command(document: Any, options: Mapping[str, Any]) -> Any:
    """One of the functions ``batch_coeffs``, ``latency``, ``lam_max``, ``fit`` and ``size`` with its arguments."""
    faults: list[Fault] = []
    calls = FieldTable(
        "spark document",
        Field("call", Enumeration(tuple(_CALLS)), required=True),
        Field("args", Anything(), required=True),
    )
    read = calls.read(document, "", "", faults)
    if faults or read is BAD:
        raise DocumentError(faults, calls.name)
    table, function = _CALLS[read["call"]]
    arguments = table.read(read["args"], "", "args", faults)
    if not faults and not 0 < arguments.get("x", 0.99) < 1:
        faults.append(Fault("args.x", f"x is {arguments['x']:g}; allowed: a number above 0 and below 1"))
    if faults:
        raise DocumentError(faults, f"call {table.name}")
    return function(**arguments)


def _batch_coeffs(p_in: int, p_sh: int, f0: float, t_task: float, c_in: float, c_sh: float, **rest: Any) -> list[float]:
    return list(
        coefficients(
            input_partitions=p_in, shuffle_partitions=p_sh, f0_s=f0, t_task_s=t_task, c_in_s=c_in, c_sh_s=c_sh, **rest
        )
    )


def _latency(
    lam: float,
    T: float,
    F: float,
    k: float,
    kind: str = "mean",
    x: float = 0.99,
    sd_p: float = 0.0,
) -> float | None:
    """Latency with the paper's normal quantile, where `BatchModel.latency` has that of the sum itself."""
    if lam * k >= 1:
        return None
    interval_s = max(T, F / (1 - lam * k))
    batch_s = F + lam * interval_s * k
    if kind == "mean":
        return interval_s / 2 + batch_s
    if sd_p == 0:
        return x * interval_s + batch_s
    return interval_s / 2 + batch_s + NormalDist().inv_cdf(x) * math.sqrt(interval_s**2 / 12 + sd_p**2)


def _max_rate(L: float, F: float, k: float, kind: str = "mean", x: float = 0.99) -> list[Any]:
    trigger_s = L / (1.5 if kind == "mean" else 1 + x)
    if trigger_s <= F:
        return [0.0, None]
    return [None if k <= 0 else (1 - F / trigger_s) / k, trigger_s]


def _fit(progress: list[Any]) -> list[float]:
    faults: list[Fault] = []
    points = []
    for number, batch in enumerate(progress):
        where = f"args.progress[{number}]"
        durations = batch.get("durationMs") if isinstance(batch, Mapping) else None
        if not isinstance(batch, Mapping) or not isinstance(durations, Mapping):
            faults.append(Fault(where, f"item {number} has no durationMs; allowed: a progress object"))
            continue
        values = [
            _NOT_NEGATIVE.read(part.get(name), place, name, faults)
            for part, name, place in (
                (batch, "numInputRows", where),
                (durations, "triggerExecution", f"{where}.durationMs"),
            )
        ]
        if BAD not in values and values[0] > 0:
            points.append((values[0], values[1] / 1000))
    if faults:
        raise DocumentError(faults, "progress")
    model = least_squares(points)
    return [model.fixed_s, model.per_row_s, model.sd_s, model.batches]


def _size(profile: Mapping[str, Any], question: Mapping[str, Any]) -> dict[str, Any]:
    return size_microbatch(MicroBatchProfile(**profile), MicroBatchQuestion(**question)).to_dict()


_CALLS: dict[str, tuple[FieldTable, Callable[..., Any]]] = {
    "batch_coeffs": (_COEFFICIENTS, _batch_coeffs),
    "latency": (_LATENCY, _latency),
    "lam_max": (_MAX_RATE, _max_rate),
    "fit": (_FIT, _fit),
    "size": (_SIZE, _size),
}
