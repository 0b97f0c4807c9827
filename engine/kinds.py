"""Kinds of values that fields of records are annotated with: what is read, what is refused in which words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic.json_schema import JsonSchemaValue

from engine.arrays import frozen_array
from engine.errors import Fault, join_path, key_name, suggestion, value_words
from engine.records import BAD, kind_schema
from engine.words import counted

__all__ = [
    "MIN_NUMBER",
    "Anything",
    "Enumeration",
    "FieldKind",
    "ListOf",
    "Number",
    "NumberSeries",
    "String",
]

#: Magnitudes of numbers, the smallest of one that must not be 0, and the largest whole one that floats hold: models
#: divide, square and add up.
MIN_NUMBER, MAX_NUMBER, MAX_WHOLE = 1e-60, 1e60, 2**53
_LISTED_FAULTS = 10  # per series: a million wrong numbers are one mistake, not a million


class FieldKind:
    """Kind of value that a field holds."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        """The kept form of `value`, or `BAD` after adding to `faults`."""
        raise NotImplementedError

    def schema(self) -> JsonSchemaValue:
        """This kind as JSON Schema (draft 2020-12)."""
        raise NotImplementedError

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """As the annotation of a record's field."""
        return kind_schema(self.read)

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> JsonSchemaValue:
        return self.schema()


def _float_of(value: Any) -> float:
    """A number as a float: NaN for what is none, infinity for a whole number beyond the range of floats."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


@dataclass(frozen=True)
class Number(FieldKind):
    """A finite number, of a magnitude that models can compute with. `above` excludes its bound, `least` and `most`
    include theirs.
    """

    above: float | None = None
    least: float | None = None
    most: float | None = None
    whole: bool = False
    smallest: float = 0.0  #: magnitude that only 0 is below

    def allowed(self) -> str:
        kind = "a whole number" if self.whole else "a finite number"
        if self.above is not None:
            return f"{kind} above {self.above:g}" + ("" if self.most is None else f" and up to {self.most:.15g}")
        if self.most is not None:
            least = "up" if self.least is None else f"from {self.least:g}"
            return f"{kind} {least} to {self.most:.15g}"
        return kind if self.least is None else f"{kind} of at least {self.least:g}"

    def allowed_for(self, value: Any) -> str:
        """Words for the values allowed in place of `value`: with the magnitude, where that alone is wrong."""
        number = _float_of(value)
        if not math.isfinite(number) or self._is_computable(number):
            return self.allowed()
        limits = f"up to {MAX_WHOLE:,}" if self.whole else f"from {MIN_NUMBER:g} to {MAX_NUMBER:g}"
        return f"{self.allowed()}, of a magnitude {limits}"

    def _is_computable(self, number: float) -> bool:
        size = abs(number)
        smallest = MIN_NUMBER if self.above == 0.0 else self.smallest
        return size == 0.0 or smallest <= size <= (MAX_WHOLE if self.whole else MAX_NUMBER)

    def fits(self, value: Any) -> bool:
        number = _float_of(value)
        return (
            self._is_computable(number)
            and (self.above is None or number > self.above)
            and (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (not self.whole or number.is_integer())
        )

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if not self.fits(value):
            allowed = self.allowed_for(value)
            faults.append(Fault(join_path(parent, key), f"{key_name(key)} is {value_words(value)}; allowed: {allowed}"))
            return BAD
        return int(value) if self.whole else float(value)

    def schema(self) -> JsonSchemaValue:
        schema: JsonSchemaValue = {"type": "integer" if self.whole else "number"}
        if self.above is not None:
            schema["exclusiveMinimum"] = self.above
        if self.least is not None:
            schema["minimum"] = self.least
        if self.most is not None:
            schema["maximum"] = self.most
        return schema


@dataclass(frozen=True)
class String(FieldKind):
    """A non-empty text, optionally of a pattern."""

    pattern: str | None = None
    example: str = ""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if isinstance(value, str) and value and (self.pattern is None or re.fullmatch(self.pattern, value)):
            return value
        allowed = self.example or "a non-empty text"
        faults.append(Fault(join_path(parent, key), f"{key_name(key)} is {value_words(value)}; allowed: {allowed}"))
        return BAD

    def schema(self) -> JsonSchemaValue:
        return {"type": "string", "minLength": 1} | ({"pattern": f"^({self.pattern})$"} if self.pattern else {})


@dataclass(frozen=True)
class Enumeration(FieldKind):
    """One of a few values."""

    values: tuple[Any, ...]

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if isinstance(value, (str, int)) and not isinstance(value, bool) and value in self.values:
            return value
        allowed = ", ".join(map(str, self.values))
        near = suggestion(value, [str(choice) for choice in self.values]) if isinstance(value, str) else ""
        faults.append(
            Fault(join_path(parent, key), f"{key_name(key)} is {value_words(value)}; allowed: {allowed}{near}")
        )
        return BAD

    def schema(self) -> JsonSchemaValue:
        return {"enum": list(self.values)}


class Anything(FieldKind):
    """Any JSON value, kept as it is; numbers must be finite."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join_path(parent, key)
        if isinstance(value, Mapping):
            for name, item in value.items():
                self.read(item, path, name, faults)
        elif isinstance(value, (list, tuple)):
            for i, item in enumerate(value):
                self.read(item, path, i, faults)
        elif isinstance(value, float) and not math.isfinite(value):
            faults.append(Fault(path, f"{key_name(key)} is {value_words(value)}; allowed: a finite number"))
        return value

    def schema(self) -> JsonSchemaValue:
        return {}


@dataclass(frozen=True)
class NumberSeries(FieldKind):
    """Numbers >= 0, one per subinterval; kept as a read-only float64 array of shape (d,)."""

    item: Number = Number(least=0)

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if not isinstance(value, (list, tuple, np.ndarray)) or (isinstance(value, np.ndarray) and value.ndim != 1):
            faults.append(
                Fault(join_path(parent, key), f"{key_name(key)} is {value_words(value)}; allowed: a list of numbers")
            )
            return BAD
        if not len(value):
            faults.append(
                Fault(join_path(parent, key), f"{key_name(key)} is an empty list; allowed: at least one number")
            )
            return BAD
        array = self._array(value)
        if array is not None and array.min() >= 0 and array.max() <= MAX_NUMBER:  # NaN passes neither
            return frozen_array(array)
        self._explain(value, join_path(parent, key), faults)
        return BAD

    @staticmethod
    def _array(value: Any) -> Any:
        """`value` as float64, or None if something in it is no number."""
        if isinstance(value, np.ndarray):
            return value.astype(np.float64, copy=False) if value.dtype.kind in "iuf" else None
        if not set(map(type, value)) <= {int, float, np.float64, np.float32, np.int64, np.int32}:
            return None
        try:
            return np.array(value, dtype=np.float64)
        except OverflowError:
            return None

    def _explain(self, value: Any, path: str, faults: list[Fault]) -> None:
        wrong = [i for i, item in enumerate(value) if not self.item.fits(item)]
        for i in wrong[:_LISTED_FAULTS]:
            allowed = self.item.allowed_for(value[i])
            faults.append(Fault(f"{path}[{i}]", f"item {i} is {value_words(value[i])}; allowed: {allowed}"))
        if len(wrong) > _LISTED_FAULTS:
            faults.append(Fault(path, f"{len(wrong) - _LISTED_FAULTS} more items are wrong in the same way"))

    def schema(self) -> JsonSchemaValue:
        return {"type": "array", "minItems": 1, "items": self.item.schema()}


@dataclass(frozen=True)
class ListOf(FieldKind):
    """A list of one kind, its `first` item perhaps of another. Items with faults are kept as `BAD`, so that indices
    stay those of the document.
    """

    item: FieldKind
    length: int | None = None
    least: int = 0
    most: int | None = None
    first: FieldKind | None = None

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        path = join_path(parent, key)
        if not isinstance(value, (list, tuple)):
            faults.append(Fault(path, f"{key_name(key)} is {value_words(value)}; allowed: a list"))
            return BAD
        if len(value) < self.least or (self.most is not None and len(value) > self.most):
            allowed = f"at least {self.least:,}"
            if self.most is not None:
                allowed = f"{self.least:,} to {self.most:,}" if self.least else f"at most {self.most:,}"
            if self.least == self.most:
                allowed = f"exactly {self.least:,}"
            faults.append(Fault(path, f"{key_name(key)} has {counted(len(value), 'item')}; allowed: {allowed}"))
            return BAD
        read, first = self.item.read, self.first or self.item
        return [
            first.read(item, path, i, faults) if i == 0 else read(item, path, i, faults) for i, item in enumerate(value)
        ]

    def schema(self) -> JsonSchemaValue:
        schema: JsonSchemaValue = {"type": "array", "items": self.item.schema()}
        if self.first is not None:
            schema["prefixItems"] = [self.first.schema()]
        if self.least:
            schema["minItems"] = self.least
        if self.most is not None:
            schema["maxItems"] = self.most
        return schema
