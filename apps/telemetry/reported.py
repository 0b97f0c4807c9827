"""What agents report of each epoch and each change of load factors, read by hand: there are hundreds in a heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from apps.telemetry.epochs import EpochRow, Forecast, Sweep

__all__ = ["ChangesField", "EpochsField"]

MOST_EPOCHS = 120
MOST_CHANGES = 10
MOST_FACTORS = 64
MOST_SWEEPS = 20
MOST_SPANS = 40
_MOST_TEXT = 400
_MOST_WHOLE = 2**53
_MOST_NUMBER = 1e12


class _Wrong(ValueError):
    """What a value is and what was allowed."""


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_WHOLE:
        raise _Wrong("a whole number, 0 or more")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value <= _MOST_NUMBER:
        raise _Wrong("a number, 0 or more")
    return float(value)


def _signed(value: Any) -> float:
    if type(value) not in (int, float) or not -_MOST_NUMBER <= value <= _MOST_NUMBER:
        raise _Wrong("a number")
    return float(value)


def _moment(value: Any) -> int:
    if type(value) is not int or not -_MOST_WHOLE <= value <= _MOST_WHOLE:
        raise _Wrong("whole microseconds since 1970")
    return value


def _forecast(value: Any) -> Forecast:
    if not isinstance(value, list) or len(value) != len(Forecast._fields):
        raise _Wrong("a list of mean, least and most")
    return Forecast(*map(_moment, value))


def _sweeps(value: Any) -> tuple[Sweep, ...]:
    return tuple(map(_sweep, _few(value, MOST_SWEEPS)))


def _sweep(value: Any) -> Sweep:
    if not isinstance(value, list) or len(value) != len(Sweep._fields):
        raise _Wrong("lists of deadline, least, most, arrived, swept and emitted")
    deadline, least, most, *later = value
    return Sweep(_moment(deadline), _or_none(_moment)(least), _or_none(_moment)(most), *map(_moment, later))


def _spans(value: Any) -> tuple[tuple[float, float], ...]:
    spans = []
    for one in _few(value, MOST_SPANS):
        if not isinstance(one, list) or len(one) != 2:
            raise _Wrong("lists of start and length")
        spans.append((_number(one[0]), _number(one[1])))
    return tuple(spans)


def _few(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise _Wrong(f"a list of at most {most}")
    return value


def _factors(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) > MOST_FACTORS:
        raise _Wrong(f"a list of at most {MOST_FACTORS} numbers")
    for one in value:
        if type(one) not in (int, float) or not 0 <= one <= 1:
            raise _Wrong("numbers from 0 to 1")
    return tuple(map(float, value))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Wrong("a text")
    return value[:_MOST_TEXT]


def _or_none(kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else kind(value)


def _or(default: Any, kind: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of a field that older agents do not tell."""
    return lambda value: default if value is None else kind(value)


# fields of a row in the order of `EpochRow`
_EPOCH: Mapping[str, Callable[[Any], Any]] = {
    "e": _whole,
    "p": _factors,
    "n": _whole,
    "bi": _whole,
    "bs": _whole,
    "o": _whole,
    "u": _number,
    "b": _number,
    "i": _number,
    "d": _or_none(_number),
    "v": _or_none(_whole),
    "q": _or(0, _whole),
    "qb": _or(0, _whole),
    "l": _or_none(_signed),
    "x": _or_none(_forecast),
    "w": _or((), _sweeps),
    "t": _or((), _spans),
    "s": _or_none(_whole),
}
_CHANGE: Mapping[str, Callable[[Any], Any]] = {
    "epoch_us": _whole,
    "why": _text,
    "epochs": _or_none(_whole),
    "from": _factors,
    "to": _factors,
    "bytes_before": _or_none(_number),
    "bytes_after": _or_none(_number),
}


class _RowsField(serializers.Field):
    """A list of objects, the newest last: the last `most` of them are read. What is not known of them is left out."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"default": list, **options})

    def read(self, data: Any, kinds: Mapping[str, Callable[[Any], Any]], most: int) -> list[dict[str, Any]]:
        if not isinstance(data, list):
            raise serializers.ValidationError("allowed: a list")
        return [_object(row, kinds, place) for place, row in enumerate(data[-most:])]


@extend_schema_field({"type": "array", "items": {"type": "object"}, "maxItems": MOST_EPOCHS})
class EpochsField(_RowsField):
    """Rows of epochs: `e` when it began (microseconds), `p` load factors, `n` records in, `bi` bytes in, `bs` bytes
    sent, `o` records overflowing, `u` CPU seconds used, `b` to be had and `i` idle, `d` delay in seconds or null, `v`
    refined version or null. Of scheduling, each of which may be missing: `q` records waiting and `qb` their bytes, `l`
    slack in seconds, `x` the next sweeping watermark as expected, `w` windows that were swept, `t` when it ran, `s`
    version of the agent's refined schedule."""

    def to_internal_value(self, data: Any) -> list[EpochRow]:
        return [EpochRow(*row.values()) for row in self.read(data, _EPOCH, MOST_EPOCHS)]


@extend_schema_field({"type": "array", "items": {"type": "object"}, "maxItems": MOST_CHANGES})
class ChangesField(_RowsField):
    """The last changes of load factors and how long each took to settle."""

    def to_internal_value(self, data: Any) -> list[dict[str, Any]]:
        return [
            {**row, "from": list(row["from"]), "to": list(row["to"])} for row in self.read(data, _CHANGE, MOST_CHANGES)
        ]


def _object(row: Any, kinds: Mapping[str, Callable[[Any], Any]], place: int) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise serializers.ValidationError(f"row {place} is no object")
    read = {}
    for name, kind in kinds.items():
        try:
            read[name] = kind(row.get(name))
        except _Wrong as wrong:
            raise serializers.ValidationError(f"{name} of row {place}: allowed: {wrong}") from None
    return read
