"""The functions that an expression may call, with what they take and give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.dataflow.types import NUMERIC, Type

__all__ = ["AGGREGATES", "FUNCTIONS", "OPERATORS", "Argument", "Signature"]


@dataclass(frozen=True)
class Argument:
    """What one argument may be. `constant` names what kind of constant is needed: text, regex, plain, or a number."""

    types: frozenset[Type]
    constant: str = ""

    def allowed(self) -> str:
        kinds = " or ".join(sorted(self.types))
        return f"a constant {kinds}" if self.constant else kinds


@dataclass(frozen=True)
class Signature:
    """Arguments of a function; the last `optional` ones may be left out, the last one of a `repeated` may be many.

    `result` None: the type of the first argument.
    """

    arguments: tuple[Argument, ...]
    result: Type | None
    optional: int = 0
    repeated: bool = False


_TEXT = Argument(frozenset({Type.STRING}))
_PLAIN = Argument(frozenset({Type.STRING}), constant="text")
_PATTERN = Argument(frozenset({Type.STRING}), constant="regex")
_FLOAT = Argument(frozenset({Type.FLOAT64}))
_NUMBER = Argument(NUMERIC)
_TIME = Argument(frozenset({Type.TIMESTAMP}))
_WHOLE = Argument(frozenset({Type.INT64}))
_COUNT = Argument(frozenset({Type.INT64}), constant="a number of at least 0")
_PLACE = Argument(frozenset({Type.INT64}), constant="a number of at least 1")


def _same(argument: Argument) -> Signature:
    return Signature((argument,), None)


FUNCTIONS: Final[Mapping[str, Signature]] = {
    "abs": _same(_NUMBER),
    "ceil": Signature((_NUMBER,), Type.INT64),
    "concat": Signature((_TEXT,), Type.STRING, repeated=True),
    "contains": Signature((_TEXT, _PLAIN), Type.BOOL),
    "ends_with": Signature((_TEXT, _PLAIN), Type.BOOL),
    "exp": Signature((_FLOAT,), Type.FLOAT64),
    "floor": Signature((_NUMBER,), Type.INT64),
    "greatest": Signature((_NUMBER,), None, repeated=True),
    "hour": Signature((_TIME,), Type.INT64),
    "least": Signature((_NUMBER,), None, repeated=True),
    "length": Signature((_TEXT,), Type.INT64),
    "ln": Signature((_FLOAT,), Type.FLOAT64),
    "log10": Signature((_FLOAT,), Type.FLOAT64),
    "lower": _same(_TEXT),
    "ltrim": _same(_TEXT),
    "minute": Signature((_TIME,), Type.INT64),
    "power": Signature((_FLOAT, _FLOAT), Type.FLOAT64),
    "regexp_extract": Signature((_TEXT, _PATTERN, _COUNT), Type.STRING),
    "regexp_like": Signature((_TEXT, _PATTERN), Type.BOOL),
    "regexp_replace": Signature((_TEXT, _PATTERN, _PLAIN), Type.STRING),
    "replace": Signature((_TEXT, _PLAIN, _PLAIN), Type.STRING),
    "round": Signature((_NUMBER,), Type.INT64),
    "rtrim": _same(_TEXT),
    "second": Signature((_TIME,), Type.INT64),
    "sqrt": Signature((_FLOAT,), Type.FLOAT64),
    "starts_with": Signature((_TEXT, _PLAIN), Type.BOOL),
    "substring": Signature((_TEXT, _PLACE, _COUNT), Type.STRING, optional=1),
    "timestamp_micros": Signature((_WHOLE,), Type.TIMESTAMP),
    "trim": _same(_TEXT),
    "unix_micros": Signature((_TIME,), Type.INT64),
    "upper": _same(_TEXT),
}

#: Names of the calls that operators of SQL stand for. Both sides of a binary one have one type.
OPERATORS: Final = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "div", "mod", "negate"),
        *("eq", "ne", "lt", "le", "gt", "ge"),
        *("and", "or", "not", "is_null", "like"),
    }
)

#: Aggregates by whether a small state of theirs can be updated record by record, and merged (rule 1).
AGGREGATES: Final[Mapping[str, bool]] = {
    "avg": True,
    "count": True,
    "max": True,
    "min": True,
    "quantile": True,
    "sum": True,
    "median": False,
    "percentile": False,
}
