"""Options of every collector, the columns it makes, and the rules beyond single fields. Light to import."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

from engine.errors import Fault, join_path, value_words
from engine.fields import BAD, Enumeration, Field, FieldKind, FieldTable, Flag, ListOf, MapOf, Number, String

__all__ = ["COLUMNS_OF", "GENERATED", "HOST_COLUMNS", "KINDS", "OPTIONS", "PROBE_COLUMNS", "check_options"]


ADDRESS = String(r"[^\s:]+:\d{1,5}", "host:port")
POSITIVE = Number(above=0)
BUFFER = Number(least=1000, most=10_000_000, whole=True)

#: As the paper's 86-byte record (Jarvis, section II-B); the round trip is null where there was none.
PROBE_COLUMNS = {
    "src_ip": "string",
    "src_cluster": "string",
    "dst_ip": "string",
    "dst_cluster": "string",
    "rtt_us": "int64",
    "err_code": "int64",
}
HOST_COLUMNS = {
    "host": "string",
    "cpu_percent": "float64",
    "load_1": "float64",
    "memory_percent": "float64",
    "memory_used_bytes": "int64",
    "swap_percent": "float64",
    "disk_percent": "float64",
    "disk_read_bytes": "int64",
    "disk_write_bytes": "int64",
    "net_in_bytes": "int64",
    "net_out_bytes": "int64",
    "processes": "int64",
}
PAIR = ListOf(Number(), least=2, most=2)
PEER = FieldTable(
    "a peer",
    Field("address", ADDRESS, required=True),
    Field("name", String(), help="how records call it; the host of the address"),
    Field("cluster", String(), help="its cluster in the records; the prober's own"),
)
_NUMBERS: Callable[[Any], tuple[str, ...]] = lambda how: ("int64", "float64")  # noqa: E731


class OneOf(FieldKind):
    """An object with exactly one of the given fields: the rule by which a generated column is made."""

    def __init__(self, name: str, *fields: Field) -> None:
        self._table = FieldTable(name, *fields)

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        read = self._table.read(value, parent, key, faults)
        if read is BAD or len(read) == 1:
            return read
        allowed = ", ".join(field.name for field in self._table.fields)
        faults.append(Fault(join_path(parent, key), f"{key} has {len(read)} fields; allowed: exactly one of {allowed}"))
        return BAD

    def schema(self) -> dict[str, Any]:
        return self._table.schema() | {"minProperties": 1, "maxProperties": 1}


class Value(FieldKind):
    """A text, a finite number, true or false."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if isinstance(value, (str, bool)) or Number().fits(value):
            return value
        faults.append(
            Fault(join_path(parent, key), f"{key} is {value_words(value)}; allowed: a text, a number, true or false")
        )
        return BAD

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


DRAWN = (
    Field("constant", Value(), help="always this value"),
    Field("sequence", Number(least=1, whole=True), help="0, 1, 2 ... and again from 0 at this number"),
    Field("uniform", PAIR, help="between these two; whole numbers where the column is int64"),
    Field("normal", PAIR, help="mean and standard deviation"),
    Field("lognormal", PAIR, help="median and standard deviation of the logarithm"),
    Field("choice", ListOf(Value(), least=1), help="one of these, each as often"),
    Field("skewed", ListOf(Value(), least=1), help="one of these; the n-th is drawn 1/n times as often as the first"),
)
TEMPLATE = FieldTable(
    "a template",
    Field("text", String(), required=True, help="with {name} for each part"),
    Field("parts", MapOf(OneOf("a part", *DRAWN)), required=True),
)
GENERATED = OneOf("a generated column", *DRAWN, Field("template", TEMPLATE, help="a text made of parts"))
OPTIONS: dict[str, FieldTable] = {
    "tcp_probe": FieldTable(
        "options of tcp_probe",
        Field("listen", ADDRESS, help="where this agent answers the probes of others; without it, it only probes"),
        Field("name", String(), help="how records call this host; the host of listen, else the host name"),
        Field("cluster", String(), help="src_cluster of the records; default"),
        Field("peers", ListOf(PEER, most=50_000), help="whom to probe"),
        Field("interval_s", Number(least=0.001, most=3600), help="each peer is probed once in this time; 5"),
        Field("timeout_s", Number(least=0.01, most=60), help="no answer for longer is an error; 1"),
        Field("buffer_records", BUFFER, help="records kept for the runtime before the newest are shed; 100,000"),
    ),
    "host_metrics": FieldTable(
        "options of host_metrics",
        Field("interval_s", Number(least=0.1, most=3600), help="1"),
        Field("disk", String(), help="the path whose file system disk_percent is of; /"),
        Field("host", String(), help="how records call this host; its name"),
    ),
    "log_file": FieldTable(
        "options of log_file",
        Field("path", String(), required=True, help="a file, or a pattern such as /var/log/app/*.log"),
        Field(
            "begin",
            Enumeration(("start", "end")),
            help="where to begin in files that are there at the first start; end",
        ),
        Field("encoding", String(), help="utf-8"),
        Field("max_line_bytes", Number(least=64, most=2**24, whole=True), help="longer lines are cut; 65,536"),
        Field("time_pattern", String(), help="a regular expression whose first group is the time in a line"),
        Field("time_format", String(), help="its format as in strptime, or s, ms or us since 1970; ISO 8601"),
    ),
    "replay": FieldTable(
        "options of replay",
        Field("path", String(), required=True, help="a recorded file; .gz and .xz are read as they are"),
        Field("format", Enumeration(("csv", "tsv", "arrow", "lines")), help="by the file's name"),
        Field("time_column", String(), help="the column of the file with the event time"),
        Field("time_unit", Enumeration(("s", "ms", "us", "ns")), help="of a time column of numbers; s"),
        Field("time_format", String(), help="of a time column of texts, as in strptime; ISO 8601"),
        Field("time_pattern", String(), help="lines: a regular expression whose first group is the time"),
        Field("rebase", Flag(), help="event times begin when the replay does, not when the file did; true"),
        Field("speed", POSITIVE, help="how many times faster than it was recorded; 1"),
        Field("rate_per_s", POSITIVE, help="records per second instead of the file's own times"),
        Field("loop", Flag(), help="begin again at the end; false"),
    ),
    "generator": FieldTable(
        "options of generator",
        Field("rate_per_s", POSITIVE, required=True, help="records per second"),
        Field("times", POSITIVE, help="the rate times this; 1"),
        Field("curve", ListOf(PAIR, least=1), help="[second, factor] pairs: the rate's factor runs straight between"),
        Field("period_s", POSITIVE, help="the curve repeats after this time"),
        Field("seed", Number(least=0, whole=True), help="0"),
        Field("records", Number(least=1, whole=True), help="end after so many; without it, there is no end"),
        Field("max_lag_s", POSITIVE, help="what could not be given out for longer is shed; 60"),
        Field("columns", MapOf(GENERATED), required=True),
    ),
}
KINDS = tuple(OPTIONS)


def _made(fixed: Mapping[str, str]) -> Callable[[Mapping[str, Any], str], Mapping[str, str] | None]:
    return lambda options, time: {time: "timestamp"} | dict(fixed)


def _generated(options: Mapping[str, Any], time: str) -> Mapping[str, str] | None:
    return None


#: The columns that a collector makes under its options and a name for the time column; None: known at run time only.
COLUMNS_OF: dict[str, Callable[[Mapping[str, Any], str], Mapping[str, str] | None]] = {
    "tcp_probe": _made(PROBE_COLUMNS),
    "host_metrics": _made(HOST_COLUMNS),
    "log_file": _made({"line": "string", "file": "string"}),
    "replay": _generated,
    "generator": _generated,
}


Options = Mapping[str, Any]
Columns = Mapping[str, str]
Faults = list[Fault]


def check_options(kind: str, options: Options, columns: Columns, time: str, path: str, faults: Faults) -> None:
    """Append the faults of a source's options, taken together and with its columns."""
    check = _CHECKS.get(kind)
    if check is not None and BAD not in options.values():
        check(options, {name: column for name, column in columns.items() if name != time}, path, faults)


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
        faults.append(Fault(f"{path}.encoding", f"encoding is {value_words(encoding)}; allowed: {allowed}"))


def _check_pattern(options: Options, path: str, faults: Faults) -> None:
    pattern = options.get("time_pattern")
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        faults.append(Fault(f"{path}.time_pattern", f"time_pattern is {value_words(pattern)}: {error}"))
        return
    if not groups:
        message = f"time_pattern is {value_words(pattern)}; allowed: a pattern with a group around the time"
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
