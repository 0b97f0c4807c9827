"""Arithmetic by pyarrow whose every result is a number that fits, or null."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["checked", "div", "divide", "finite", "mod", "to_whole"]

_LEAST, _LIMIT = -(2.0**63), 2.0**63


def finite(values: Any) -> Any:
    """The values, with null for infinities and what is not a number."""
    total = pc.sum(values).as_py()  # infinite or NaN if any value is; one pass where nothing is wrong
    if total is None or math.isfinite(total):
        return values
    return pc.if_else(pc.is_finite(values), values, pa.scalar(None, pa.float64()))


def checked(fast: Callable[..., Any], exact: Callable[..., int]) -> Callable[..., Any]:
    """A function of numbers: whole ones by `fast`, which raises on overflow, floats by `fast` and `finite`."""

    def run(*values: Any) -> Any:
        try:
            made = fast(*values)
        except pa.ArrowInvalid:
            return _one_by_one(exact, *values)
        return finite(made) if pa.types.is_floating(made.type) else made

    return run


def _one_by_one(exact: Callable[..., int], *values: Any) -> Any:
    """The slow way, for a batch in which at least one result leaves 64 bits."""
    length = next((len(one) for one in values if not isinstance(one, pa.Scalar)), None)
    columns = [[one.as_py()] * (length or 1) if isinstance(one, pa.Scalar) else one.to_pylist() for one in values]
    made = [None if None in row else _fitting(exact(*row)) for row in zip(*columns, strict=True)]
    return pa.scalar(made[0], pa.int64()) if length is None else pa.array(made, pa.int64())


def _fitting(value: int) -> int | None:
    return value if -(2**63) <= value < 2**63 else None


def divide(left: Any, right: Any) -> Any:
    """left / right; null for a divisor of 0."""
    return finite(pc.divide(left, right))


def _but(values: Any, bad: int, instead: int | None) -> Any:
    return pc.if_else(pc.equal(values, bad), pa.scalar(instead, pa.int64()), values)


def div(left: Any, right: Any) -> Any:
    """The whole part of left / right, towards 0; null for a divisor of 0."""
    return _divided(left, _but(right, 0, None))


def _exact_div(left: int, right: int) -> int:
    return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)


_divided = checked(pc.divide_checked, _exact_div)


def mod(left: Any, right: Any) -> Any:
    """What `div` leaves, with the sign of `left`; null for a divisor of 0."""
    divisor = _but(_but(right, 0, None), -1, 1)  # nothing is left by 1 either, and 1 cannot overflow
    return pc.subtract(left, pc.multiply(pc.divide(left, divisor), divisor))


def to_whole(values: Any) -> Any:
    """The whole part of floats, towards 0; null where it leaves 64 bits."""
    fits = pc.and_(pc.greater_equal(values, _LEAST), pc.less(values, _LIMIT))
    return pc.cast(pc.if_else(fits, values, pa.scalar(None, pa.float64())), pa.int64(), safe=False)
