"""Templates of sentences: Python's format strings, with formats for numbers, units and lists as people write them."""

from __future__ import annotations

from collections.abc import Callable, Sized
from string import Formatter
from typing import Any

from engine.words import (
    counted,
    duration_words,
    listed,
    load_words,
    percent_words,
    seconds_words,
    server_words,
    size_words,
    statistic_words,
    step_words,
)

__all__ = ["Template", "fill"]

#: A format string, or where numbers choose the clauses a function.
Template = str | Callable[..., str]


def fill(template: str, /, *names: object, **values: object) -> str:
    """A template filled with names by their position, and with values.

    Examples
    --------
    >>> fill("{count:counted query|queries} {count:either waits|wait} for {0}, {share:percent} of {names:listed}",
    ...      "n1", count=2, share=0.5, names=["a", "b"])
    '2 queries wait for n1, 50% of a and b'
    >>> fill("{names:counted node} {names:either is|are} full", names=["n1"])
    '1 node is full'
    """
    return _TEMPLATES.vformat(template, names, values)


class _Templates(Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        name, _, rest = format_spec.partition(" ")
        one, _, many = rest.partition("|")
        match name:
            case "percent":
                return percent_words(value)
            case "seconds":
                return seconds_words(value)[0]
            case "duration":
                return duration_words(value)
            case "step":
                return step_words(value)
            case "size":
                return size_words(value)
            case "megabytes":
                return size_words(1e6 * value)
            case "in_all":
                return "" if value is None else f" ({size_words(value)} in all)"
            case "listed":
                return listed([str(name) for name in value], int(rest or 3))
            case "comma":
                return ", ".join(map(str, value))
            case "quoted":
                return ", ".join(f"`{name}`" for name in value)
            case "counted":
                return counted(_number(value), one, many)
            case "either":
                return one if _number(value) == 1 else many
            case "server":
                return server_words(value)
            case "servers":
                return listed([server_words(server) for server in value])
            case "statistic":
                return statistic_words(value)
            case "load":
                return load_words(value, 1.0)[0]
            case "article":
                return f"{'an' if value[0] in 'aeiou' else 'a'} {value}"
        return str(super().format_field(value, format_spec))


def _number(value: int | Sized) -> int:
    return len(value) if isinstance(value, Sized) else value


_TEMPLATES = _Templates()
