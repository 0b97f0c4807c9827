"""The options of every collector and the columns that it makes. Light: whoever checks a configuration reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.errors import Fault
from engine.fields import BAD, Choice, Field, Flag, Kind, Listed, Mapped, Number, Table, Text
from engine.wording import join, show

__all__ = ["COLUMNS_OF", "GENERATED", "HOST_COLUMNS", "KINDS", "OPTIONS", "PROBE_COLUMNS"]

ADDRESS = Text(r"[^\s:]+:\d{1,5}", "host:port")
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


class OneOf(Kind):
    """An object with exactly one of the given fields: what a generated column is made by."""

    def __init__(self, name: str, *fields: Field) -> None:
        self._table = Table(name, *fields)

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        read = self._table.read(value, parent, key, faults)
        if read is BAD or len(read) == 1:
            return read
        allowed = ", ".join(field.name for field in self._table.fields)
        faults.append(Fault(join(parent, key), f"{key} has {len(read)} fields; allowed: exactly one of {allowed}"))
        return BAD

    def schema(self) -> dict[str, Any]:
        return self._table.schema() | {"minProperties": 1, "maxProperties": 1}


class Value(Kind):
    """A text, a finite number, true or false."""

    def read(self, value: Any, parent: str, key: str | int, faults: list[Fault]) -> Any:
        if isinstance(value, (str, bool)) or Number().fits(value):
            return value
        faults.append(Fault(join(parent, key), f"{key} is {show(value)}; allowed: a text, a number, true or false"))
        return BAD

    def schema(self) -> dict[str, Any]:
        return {"type": ["string", "number", "boolean"]}


PAIR = Listed(Number(), least=2, most=2)
DRAWN = (
    Field("constant", Value(), help="always this value"),
    Field("sequence", Number(least=1, whole=True), help="0, 1, 2 ... and again from 0 at this number"),
    Field("uniform", PAIR, help="between these two; whole numbers where the column is int64"),
    Field("normal", PAIR, help="mean and standard deviation"),
    Field("lognormal", PAIR, help="median and standard deviation of the logarithm"),
    Field("choice", Listed(Value(), least=1), help="one of these, each as often"),
    Field("skewed", Listed(Value(), least=1), help="one of these; the n-th is drawn 1/n times as often as the first"),
)
TEMPLATE = Table(
    "a template",
    Field("text", Text(), required=True, help="with {name} for each part"),
    Field("parts", Mapped(OneOf("a part", *DRAWN)), required=True),
)
GENERATED = OneOf("a generated column", *DRAWN, Field("template", TEMPLATE, help="a text made of parts"))
PEER = Table(
    "a peer",
    Field("address", ADDRESS, required=True),
    Field("name", Text(), help="how records call it; the host of the address"),
    Field("cluster", Text(), help="its cluster in the records; the prober's own"),
)
OPTIONS: dict[str, Table] = {
    "tcp_probe": Table(
        "options of tcp_probe",
        Field("listen", ADDRESS, help="where this agent answers the probes of others; without it, it only probes"),
        Field("name", Text(), help="how records call this host; the host of listen, else the host name"),
        Field("cluster", Text(), help="src_cluster of the records; default"),
        Field("peers", Listed(PEER, most=50_000), help="whom to probe"),
        Field("interval_s", Number(least=0.001, most=3600), help="each peer is probed once in this time; 5"),
        Field("timeout_s", Number(least=0.01, most=60), help="no answer for longer is an error; 1"),
        Field("buffer_records", BUFFER, help="records kept for the runtime before the newest are shed; 100,000"),
    ),
    "host_metrics": Table(
        "options of host_metrics",
        Field("interval_s", Number(least=0.1, most=3600), help="1"),
        Field("disk", Text(), help="the path whose file system disk_percent is of; /"),
        Field("host", Text(), help="how records call this host; its name"),
    ),
    "log_file": Table(
        "options of log_file",
        Field("path", Text(), required=True, help="a file, or a pattern such as /var/log/app/*.log"),
        Field("begin", Choice(("start", "end")), help="where to begin in files that are there at the first start; end"),
        Field("encoding", Text(), help="utf-8"),
        Field("max_line_bytes", Number(least=64, most=2**24, whole=True), help="longer lines are cut; 65,536"),
        Field("time_pattern", Text(), help="a regular expression whose first group is the time in a line"),
        Field("time_format", Text(), help="its format as in strptime, or s, ms or us since 1970; ISO 8601"),
    ),
    "replay": Table(
        "options of replay",
        Field("path", Text(), required=True, help="a recorded file; .gz and .xz are read as they are"),
        Field("format", Choice(("csv", "tsv", "arrow", "lines")), help="by the file's name"),
        Field("time_column", Text(), help="the column of the file with the event time"),
        Field("time_unit", Choice(("s", "ms", "us", "ns")), help="of a time column of numbers; s"),
        Field("time_format", Text(), help="of a time column of texts, as in strptime; ISO 8601"),
        Field("time_pattern", Text(), help="lines: a regular expression whose first group is the time"),
        Field("rebase", Flag(), help="event times begin when the replay does, not when the file did; true"),
        Field("speed", POSITIVE, help="how many times faster than it was recorded; 1"),
        Field("rate_per_s", POSITIVE, help="records per second instead of the file's own times"),
        Field("loop", Flag(), help="begin again at the end; false"),
    ),
    "generator": Table(
        "options of generator",
        Field("rate_per_s", POSITIVE, required=True, help="records per second"),
        Field("times", POSITIVE, help="the rate times this; 1"),
        Field("curve", Listed(PAIR, least=1), help="[second, factor] pairs: the rate's factor runs straight between"),
        Field("period_s", POSITIVE, help="the curve repeats after this time"),
        Field("seed", Number(least=0, whole=True), help="0"),
        Field("records", Number(least=1, whole=True), help="end after so many; without it, there is no end"),
        Field("max_lag_s", POSITIVE, help="what could not be given out for longer is shed; 60"),
        Field("columns", Mapped(GENERATED), required=True),
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
