"""What options say together: rules beyond single fields, checked before a collector is made."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from engine.errors import Fault
from engine.fields import BAD
from engine.wording import show

__all__ = ["check_options"]

Options = Mapping[str, Any]
Columns = Mapping[str, str]
Faults = list[Fault]


def check_options(kind: str, options: Options, columns: Columns, time: str, path: str, faults: Faults) -> None:
    """Append what is wrong with a source's options, taken together and with its columns."""
    check = _CHECKS.get(kind)
    if check is not None and BAD not in options.values():
        check(options, {name: one for name, one in columns.items() if name != time}, path, faults)


def _check_lines(options: Options, columns: Columns, path: str, faults: Faults) -> None:
    _check_pattern(options, path, faults)
    if "time_format" in options and "time_pattern" not in options and "time_column" not in options:
        faults.append(Fault(f"{path}.time_format", "time_format is given; allowed: beside the time that it is of"))
    encoding = options.get("encoding", "utf-8")
    try:
        fits = "\n".encode(codecs.lookup(encoding).name) == b"\n"
    except (LookupError, UnicodeError):
        fits = False
    if not fits:
        allowed = "a name of Python's in which a line ends with one byte, such as utf-8 or latin-1"
        faults.append(Fault(f"{path}.encoding", f"encoding is {show(encoding)}; allowed: {allowed}"))


def _check_pattern(options: Options, path: str, faults: Faults) -> None:
    pattern = options.get("time_pattern")
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        faults.append(Fault(f"{path}.time_pattern", f"time_pattern is {show(pattern)}: {error}"))
        return
    if not groups:
        message = f"time_pattern is {show(pattern)}; allowed: a pattern with a group around the time"
        faults.append(Fault(f"{path}.time_pattern", message))


def _check_replay(options: Options, columns: Columns, path: str, faults: Faults) -> None:
    _check_lines(options, columns, path, faults)
    if not {"time_column", "time_pattern", "rate_per_s"} & options.keys():
        message = "time_column is missing; a replay needs it, for lines a time_pattern, or a rate_per_s"
        faults.append(Fault(f"{path}.time_column", message))


def _check_generator(options: Options, columns: Columns, path: str, faults: Faults) -> None:
    specs = options["columns"]
    path_of = f"{path}.columns"
    for name in columns.keys() - specs.keys():
        faults.append(Fault(f"{path_of}.{name}", f"{name} is missing; the source has such a column"))
    for name, spec in specs.items():
        if name not in columns:
            allowed = ", ".join(columns)
            faults.append(Fault(f"{path_of}.{name}", f"{name} is no column of the source; allowed: {allowed}"))
        elif spec is not BAD:
            _check_generated(name, spec, columns[name], f"{path_of}.{name}", faults)
    seconds = [at for at, _ in options.get("curve", ())]
    if seconds != sorted(set(seconds)) or any(factor < 0 for _, factor in options.get("curve", ())):
        message = "curve has pairs out of order or below 0; allowed: ascending seconds, factors from 0 on"
        faults.append(Fault(f"{path}.curve", message))
    elif options.get("curve") and not any(factor for _, factor in options["curve"]):
        faults.append(Fault(f"{path}.curve", "curve has factors of 0 alone; allowed: at least one above"))


def _check_generated(name: str, spec: Mapping[str, Any], kind: str, path: str, faults: Faults) -> None:
    ((way, how),) = spec.items()
    if how is BAD:
        return
    takes = _TAKES[way](how)
    if kind not in takes:
        faults.append(Fault(path, f"{name} is {kind} and made by {way}; allowed: {' or '.join(takes) or 'no column'}"))
    if way == "uniform" and how[0] > how[1]:
        faults.append(Fault(f"{path}.uniform", f"uniform is {how[0]:g} to {how[1]:g}; allowed: the smaller first"))
    if way == "template":
        parts = {part for _, part, _, _ in _parsed(how["text"]) if part is not None}
        for part in sorted(parts - how["parts"].keys()):
            faults.append(Fault(f"{path}.template.parts.{part}", f"{part} is missing; text has {{{part}}}"))


def _parsed(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(text))
    except ValueError:
        return [("", text, None, None)]


def _of_values(values: list[Any]) -> tuple[str, ...]:
    if all(isinstance(value, bool) for value in values):
        return ("bool",)
    if all(isinstance(value, str) for value in values):
        return ("string",)
    if any(isinstance(value, (str, bool)) for value in values):
        return ()
    return ("int64", "float64") if all(float(value).is_integer() for value in values) else ("float64",)


_NUMBERS: Callable[[Any], tuple[str, ...]] = lambda how: ("int64", "float64")  # noqa: E731
_TAKES: Mapping[str, Callable[[Any], tuple[str, ...]]] = {
    "constant": lambda how: _of_values([how]),
    "sequence": _NUMBERS,
    "uniform": _NUMBERS,
    "normal": _NUMBERS,
    "lognormal": _NUMBERS,
    "choice": _of_values,
    "skewed": _of_values,
    "template": lambda how: ("string",),
}
_CHECKS: Mapping[str, Callable[[Options, Columns, str, Faults], None]] = {
    "log_file": _check_lines,
    "replay": _check_replay,
    "generator": _check_generator,
}
