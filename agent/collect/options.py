"""Options of every collector, the columns it makes, and the rules beyond single fields. Light to import."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from string import Formatter
from typing import Annotated, Any, ClassVar

from engine.errors import Fault, join_path, value_words
from engine.kinds import Enumeration, FieldKind, Number, String
from engine.records import BAD, Flag, ItemCount, Record, Words

__all__ = [
    "HOST_COLUMNS",
    "OPTIONS",
    "PROBE_COLUMNS",
    "CollectorOptions",
    "DrawnColumn",
    "DrawnPart",
    "GeneratorOptions",
    "HostMetricsOptions",
    "LogFileOptions",
    "ProbedPeer",
    "ReplayOptions",
    "TcpProbeOptions",
    "TextTemplate",
]

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

_Text = Annotated[str, String()]
_Address = Annotated[str, String(r"[^\s:]+:\d{1,5}", "host:port")]
_Positive = Annotated[float, Number(above=0)]
_Pair = Annotated[tuple[Annotated[float, Number()], ...], ItemCount(2, 2)]


class _ValueKind(FieldKind):
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


_Value = Annotated[str | float | bool, _ValueKind()]
_Values = Annotated[tuple[_Value, ...], ItemCount(1)]


@dataclass(frozen=True)
class CollectorOptions(Record):
    """Options of a collector; `COLUMNS` are those it makes beside the time, None where only a run shows them."""

    COLUMNS: ClassVar[Mapping[str, str] | None] = None

    def find_column_faults(self, columns: Mapping[str, str]) -> Iterator[Fault]:
        """Faults of the options with the source's columns, without that of the time."""
        yield from ()


@dataclass(frozen=True)
class ProbedPeer(Record):
    """A host that is probed."""

    TITLE: ClassVar[str] = "a peer"

    address: _Address
    name: Annotated[_Text | None, Words("how records call it; the host of the address")] = None
    cluster: Annotated[_Text | None, Words("its cluster in the records; the prober's own")] = None


@dataclass(frozen=True)
class TcpProbeOptions(CollectorOptions):
    """Probes of other hosts."""

    TITLE: ClassVar[str] = "options of tcp_probe"
    COLUMNS = PROBE_COLUMNS

    listen: Annotated[
        _Address | None, Words("where this agent answers the probes of others; without it, it only probes")
    ] = None
    name: Annotated[_Text | None, Words("how records call this host; the host of listen, else the host name")] = None
    cluster: Annotated[_Text, Words("src_cluster of the records; default")] = "default"
    peers: Annotated[tuple[ProbedPeer, ...], ItemCount(most=50_000), Words("whom to probe")] = ()
    interval_s: Annotated[float, Number(least=0.001, most=3600), Words("each peer is probed once in this time; 5")] = (
        5.0
    )
    timeout_s: Annotated[float, Number(least=0.01, most=60), Words("no answer for longer is an error; 1")] = 1.0
    buffer_records: Annotated[
        int,
        Number(least=1000, most=10_000_000, whole=True),
        Words("records kept for the runtime before the newest are shed; 100,000"),
    ] = 100_000


@dataclass(frozen=True)
class HostMetricsOptions(CollectorOptions):
    """Figures of this host."""

    TITLE: ClassVar[str] = "options of host_metrics"
    COLUMNS = HOST_COLUMNS

    interval_s: Annotated[float, Number(least=0.1, most=3600), Words("1")] = 1.0
    disk: Annotated[_Text, Words("the path whose file system disk_percent is of; /")] = "/"
    host: Annotated[_Text | None, Words("how records call this host; its name")] = None


def _pattern_faults(pattern: str | None) -> Iterator[Fault]:
    if pattern is None:
        return
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        yield Fault("time_pattern", f"time_pattern is {value_words(pattern)}: {error}")
        return
    if not groups:
        allowed = "a pattern with a group around the time"
        yield Fault("time_pattern", f"time_pattern is {value_words(pattern)}; allowed: {allowed}")


_ALONE = Fault("time_format", "time_format is given; allowed: beside the time that it is of")


@dataclass(frozen=True)
class LogFileOptions(CollectorOptions):
    """Lines of files that are being written."""

    TITLE: ClassVar[str] = "options of log_file"
    COLUMNS = {"line": "string", "file": "string"}

    path: Annotated[_Text, Words("a file, or a pattern such as /var/log/app/*.log")]
    begin: Annotated[
        str,
        Enumeration(("start", "end")),
        Words("where to begin in files that are there at the first start; end"),
    ] = "end"
    encoding: Annotated[_Text, Words("utf-8")] = "utf-8"
    max_line_bytes: Annotated[int, Number(least=64, most=2**24, whole=True), Words("longer lines are cut; 65,536")] = (
        65_536
    )
    time_pattern: Annotated[_Text | None, Words("a regular expression whose first group is the time in a line")] = None
    time_format: Annotated[_Text | None, Words("its format as in strptime, or s, ms or us since 1970; ISO 8601")] = None

    def find_faults(self) -> Iterator[Fault]:
        """Patterns without a group, formats of no time, encodings whose lines end with several bytes."""
        yield from _pattern_faults(self.time_pattern)
        if self.time_format is not None and self.time_pattern is None:
            yield _ALONE
        try:
            fits = "\n".encode(codecs.lookup(self.encoding).name) == b"\n"
        except (LookupError, UnicodeError):
            fits = False
        if not fits:
            allowed = "a name of Python's in which a line ends with one byte, such as utf-8 or latin-1"
            yield Fault("encoding", f"encoding is {value_words(self.encoding)}; allowed: {allowed}")


@dataclass(frozen=True)
class ReplayOptions(CollectorOptions):
    """A recorded file."""

    TITLE: ClassVar[str] = "options of replay"

    path: Annotated[_Text, Words("a recorded file; .gz and .xz are read as they are")]
    format: Annotated[
        Annotated[str, Enumeration(("csv", "tsv", "arrow", "lines"))] | None, Words("by the file's name")
    ] = None
    time_column: Annotated[_Text | None, Words("the column of the file with the event time")] = None
    time_unit: Annotated[str, Enumeration(("s", "ms", "us", "ns")), Words("of a time column of numbers; s")] = "s"
    time_format: Annotated[_Text | None, Words("of a time column of texts, as in strptime; ISO 8601")] = None
    time_pattern: Annotated[_Text | None, Words("lines: a regular expression whose first group is the time")] = None
    rebase: Annotated[Flag, Words("event times begin when the replay does, not when the file did; true")] = True
    speed: Annotated[_Positive, Words("how many times faster than it was recorded; 1")] = 1.0
    rate_per_s: Annotated[_Positive | None, Words("records per second instead of the file's own times")] = None
    loop: Annotated[Flag, Words("begin again at the end; false")] = False

    def find_faults(self) -> Iterator[Fault]:
        """Patterns without a group, formats of no time, and recordings without any."""
        yield from _pattern_faults(self.time_pattern)
        if self.time_format is not None and self.time_pattern is None and self.time_column is None:
            yield _ALONE
        if self.time_column is None and self.time_pattern is None and self.rate_per_s is None:
            message = "time_column is missing; a replay needs it, for lines a time_pattern, or a rate_per_s"
            yield Fault("time_column", message)


def _types_of(values: Sequence[Any]) -> tuple[str, ...]:
    """Types of columns that hold all of these values."""
    if all(isinstance(value, bool) for value in values):
        return ("bool",)
    if all(isinstance(value, str) for value in values):
        return ("string",)
    if any(isinstance(value, (str, bool)) for value in values):
        return ()
    return ("int64", "float64") if all(float(value).is_integer() for value in values) else ("float64",)


@dataclass(frozen=True)
class DrawnPart(Record):
    """The rule by which values are made: exactly one of its fields."""

    TITLE: ClassVar[str] = "a part"

    constant: Annotated[_Value | None, Words("always this value")] = None
    sequence: Annotated[
        Annotated[int, Number(least=1, whole=True)] | None,
        Words("0, 1, 2 ... and again from 0 at this number"),
    ] = None
    uniform: Annotated[_Pair | None, Words("between these two; whole numbers where the column is int64")] = None
    normal: Annotated[_Pair | None, Words("mean and standard deviation")] = None
    lognormal: Annotated[_Pair | None, Words("median and standard deviation of the logarithm")] = None
    choice: Annotated[_Values | None, Words("one of these, each as often")] = None
    skewed: Annotated[_Values | None, Words("one of these; the n-th is drawn 1/n times as often as the first")] = None

    @property
    def rule(self) -> tuple[str, Any]:
        """Name and value of the one field that is given."""
        return next((field.name, value) for field in fields(self) if (value := getattr(self, field.name)) is not None)

    def find_faults(self) -> Iterator[Fault]:
        """More rules than one, or none; a range whose end is below its beginning."""
        names = [field.name for field in fields(self)]
        given = sum(getattr(self, name) is not None for name in names)
        if given != 1:
            yield Fault("", f"{self.TITLE} has {given} fields; allowed: exactly one of {', '.join(names)}")
        if self.uniform is not None and self.uniform[0] > self.uniform[1]:
            least, most = self.uniform
            yield Fault("uniform", f"uniform is {least:g} to {most:g}; allowed: the smaller first")

    def types(self) -> tuple[str, ...]:
        """Types of columns that it can make."""
        way, value = self.rule
        if way in ("sequence", "uniform", "normal", "lognormal"):
            return ("int64", "float64")
        return ("string",) if way == "template" else _types_of([value] if way == "constant" else value)


@dataclass(frozen=True)
class TextTemplate(Record):
    """A text made of parts."""

    TITLE: ClassVar[str] = "a template"

    text: Annotated[_Text, Words("with {name} for each part")]
    parts: Mapping[str, DrawnPart]

    def find_faults(self) -> Iterator[Fault]:
        """Parts of the text that are not there."""
        try:
            names = {name for _, name, _, _ in Formatter().parse(self.text) if name is not None}
        except ValueError:
            return
        for name in sorted(names - self.parts.keys()):
            yield Fault(f"parts.{name}", f"{name} is missing; text has {{{name}}}")


@dataclass(frozen=True)
class DrawnColumn(DrawnPart):
    """The rule by which a column is made: exactly one of its fields."""

    TITLE: ClassVar[str] = "a generated column"

    template: Annotated[TextTemplate | None, Words("a text made of parts")] = None


@dataclass(frozen=True, kw_only=True)
class GeneratorOptions(CollectorOptions):
    """Records that are made up."""

    TITLE: ClassVar[str] = "options of generator"

    rate_per_s: Annotated[_Positive, Words("records per second")]
    times: Annotated[_Positive, Words("the rate times this; 1")] = 1.0
    curve: Annotated[
        Annotated[tuple[_Pair, ...], ItemCount(1)] | None,
        Words("[second, factor] pairs: the rate's factor runs straight between"),
    ] = None
    period_s: Annotated[_Positive | None, Words("the curve repeats after this time")] = None
    seed: Annotated[int, Number(least=0, whole=True), Words("0")] = 0
    records: Annotated[
        Annotated[int, Number(least=1, whole=True)] | None, Words("end after so many; without it, there is no end")
    ] = None
    max_lag_s: Annotated[_Positive, Words("what could not be given out for longer is shed; 60")] = 60.0
    columns: Mapping[str, DrawnColumn]

    def find_faults(self) -> Iterator[Fault]:
        """Curves that go back, below 0, or are always 0."""
        curve = self.curve or ()
        seconds = [at for at, _ in curve]
        if seconds != sorted(set(seconds)) or any(factor < 0 for _, factor in curve):
            message = "curve has pairs out of order or below 0; allowed: ascending seconds, factors from 0 on"
            yield Fault("curve", message)
        elif curve and not any(factor for _, factor in curve):
            yield Fault("curve", "curve has factors of 0 alone; allowed: at least one above")

    def find_column_faults(self, columns: Mapping[str, str]) -> Iterator[Fault]:
        """Columns without a rule, rules of no column, and rules that make another type."""
        for name in columns.keys() - self.columns.keys():
            yield Fault(f"columns.{name}", f"{name} is missing; the source has such a column")
        for name, column in self.columns.items():
            if name not in columns:
                allowed = ", ".join(columns)
                yield Fault(f"columns.{name}", f"{name} is no column of the source; allowed: {allowed}")
            elif columns[name] not in (types := column.types()):
                made = f"{name} is {columns[name]} and made by {column.rule[0]}"
                yield Fault(f"columns.{name}", f"{made}; allowed: {' or '.join(types) or 'no column'}")


#: Options by the collector's kind.
OPTIONS: Mapping[str, type[CollectorOptions]] = {
    "tcp_probe": TcpProbeOptions,
    "host_metrics": HostMetricsOptions,
    "log_file": LogFileOptions,
    "replay": ReplayOptions,
    "generator": GeneratorOptions,
}
