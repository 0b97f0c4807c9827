"""Chained operators of a Flink vertex: what their names and the plan's descriptions tell of label, kind and window.

Names are those of Flink 1.14 to 2.3: ``Source: clicks[4] -> Calc[5]``, ``Window(TumblingEventTimeWindows(5000), …)``.
Numbers in brackets count a session's operators, so they change with each submission and are left out.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Chain", "ChainWindow", "duration_s", "read_chain"]

_UNITS_S = {
    **dict.fromkeys(("ns", "nano", "nanos", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "micro", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
}
_DURATION = re.compile(r"(-?\d+(?:\.\d+)?)\s*([a-zµ]*)", re.IGNORECASE)
_NUMBER = re.compile(r"\[\d+\]")
_PLANNED = re.compile(r"^[A-Z]\w*\[\d+\]$")  # Calc[5], GlobalWindowAggregate[10]: an operator that SQL's planner named
_SOURCE = re.compile(r"^(?:Source|TableSourceScan)\s*:\s*(.+)$")
_SINK = re.compile(r"^Sink\s*:\s*(.+)$")
_SINK_PART = re.compile(r"^(.+?)\s*:\s*(?:Writer|Committer|Global Committer)$")

_JOIN = re.compile(r"join|co-?process|connect|comap|coflatmap", re.IGNORECASE)
_WINDOW = re.compile(r"WindowAggregate|GroupWindow|^Window\(|Windows\(|WindowDeduplicate|WindowRank|WindowedStream")
_AGGREGATE = re.compile(r"Aggregat|Reduce|Deduplicate|Rank|^Sum|^Count|TopN|Keyed Aggregation", re.IGNORECASE)
_FILTER = re.compile(r"^filter\b", re.IGNORECASE)
_MAP = re.compile(r"^(?:flat\s*)?map\b|^Calc\b|^Correlate\b|^Expand\b|^Project", re.IGNORECASE)
#: Parts that do no work of their own worth a kind.
_HELPERS = re.compile(r"WatermarkAssigner|Timestamps/Watermarks|TimestampInserter|MiniBatchAssigner|ConstraintEnforcer")

_SQL_WINDOW = re.compile(r"window=\[\s*(TUMBLE|HOP|CUMULATE|SESSION)\(([^()]*)\)")
_OLD_SQL_WINDOW = re.compile(r"(Tumbling|Sliding|Session)GroupWindow\('\w+\$?,\s*\w+,\s*(\d+)(?:,\s*(\d+))?\)")
_JAVA_WINDOW = re.compile(r"(Tumbling|Sliding)(EventTime|ProcessingTime)Windows\((\d+)(?:,\s*(\d+))?")
_OTHER_JAVA_WINDOW = re.compile(r"(?:EventTime|ProcessingTime)SessionWindows|GlobalWindows")
_WATERMARK = re.compile(r"watermark=\[\(?(?:-\()?\s*`?(\w+)`?\s*(?:[-,]\s*(\d+):INTERVAL[^)\]]*)?\)?\]")
_WATERMARKED = re.compile(r"watermark=\[")


@dataclass(frozen=True, slots=True)
class ChainWindow:
    """Window of a chain. `size_s` is None where its kind has no fixed size, `event_time` None where nothing tells."""

    words: str
    size_s: float | None
    slide_s: float | None = None
    event_time: bool | None = None

    def to_document(self, watermark_delay_s: float | None) -> Mapping[str, object] | None:
        """The window as a deployment document has it; None where its size is not known."""
        if self.size_s is None:
            return None
        window: dict[str, object] = {"policy": "time", "type": "sliding" if self.slide_s else "tumbling"}
        window |= {"size": self.size_s} | ({"slide": self.slide_s} if self.slide_s else {})
        if self.event_time:
            window["watermark_delay_s"] = watermark_delay_s or 0.0
        return window


@dataclass(frozen=True, slots=True)
class Chain:
    """Label, kind, window and watermarks of a vertex, by its names and descriptions.

    `watermarks` maps row times to the seconds that watermarks lag behind; None: their expression is another one.
    """

    label: str
    stream: str
    kind: str
    window: ChainWindow | None = None
    watermarks: Mapping[str, float | None] = field(default_factory=dict)
    processing_time: bool = False


def duration_s(text: str) -> float | None:
    """Seconds of a duration as Flink writes them; without a unit milliseconds.

    Examples
    --------
    >>> duration_s("5 s"), duration_s("100ms"), duration_s("250"), duration_s("1 min"), duration_s("soon")
    (5.0, 0.1, 0.25, 60.0, None)
    """
    found = _DURATION.fullmatch(text.strip())
    unit = _UNITS_S.get((found[2] or "ms").lower()) if found else None
    return None if found is None or unit is None else round(float(found[1]) * unit, 9)


def read_chain(name: str, description: str, *, has_inputs: bool, has_readers: bool) -> Chain:
    """Label, kind, window and watermarks of a vertex from its name and the description of its node in the plan.

    Examples
    --------
    >>> chain = read_chain("Source: clicks[4] -&gt; Calc[5]", "", has_inputs=False, has_readers=True)
    >>> chain.label, chain.stream, chain.kind
    ('clicks', 'clicks', 'source')
    """
    parts = list(_parts(name))
    lines = [line.strip(" +-|") for line in re.split(r"<br\s*/?>|\n", html.unescape(description)) if line.strip(" +-|")]
    window = _window(parts, lines)
    kind = _kind(parts, lines, has_inputs=has_inputs, has_readers=has_readers)
    return Chain(
        label=_label(parts),
        stream=next((_plain(found[1]) for part in parts if (found := _SOURCE.match(part))), ""),
        kind="window" if window is not None and kind in ("aggregate", "other", "sink") else kind,
        window=window,
        watermarks=dict(_watermarks(lines)),
        processing_time=any("PROCTIME()" in line for line in lines),
    )


def _parts(name: str) -> Iterator[str]:
    """Names of the chained operators, in order; branches of a chain stand in parentheses."""
    for part in re.split(r"\s*->\s*", html.unescape(html.unescape(name))):
        stripped = part.strip()
        if stripped.startswith("("):
            stripped = stripped.strip("() ")
        if stripped:
            yield stripped


def _plain(name: str) -> str:
    return _NUMBER.sub("", name).strip() or name


def _label(parts: Sequence[str]) -> str:
    """Name as people gave it, of the last operator that has one; otherwise the planner's, of more than a Calc."""
    for part in reversed(parts):
        given = _SOURCE.match(part) or _SINK.match(part) or _SINK_PART.match(part)
        if given:
            return _plain(given[1].split(",")[0])
        if not _PLANNED.match(part) and not _HELPERS.search(part):
            return _plain(part.split("(")[0]) if part.split("(")[0].strip() else _plain(part)
    planned = [_plain(part) for part in parts if not _HELPERS.search(part)] or [_plain(part) for part in parts]
    return next((part for part in reversed(planned) if not _MAP.search(part)), planned[-1] if planned else "")


def _kind(parts: Sequence[str], lines: Sequence[str], *, has_inputs: bool, has_readers: bool) -> str:
    if not has_inputs:
        return "source"
    bare = [_plain(part) for part in parts if not _HELPERS.search(part)]
    for kind, pattern in (("join", _JOIN), ("window", _WINDOW), ("aggregate", _AGGREGATE)):
        if any(pattern.search(part) for part in bare if not (_SINK.match(part) or _SINK_PART.match(part))):
            return kind
    if not has_readers or any(_SINK.match(part) or _SINK_PART.match(part) for part in bare):
        return "sink"
    if any(_FILTER.search(part) for part in bare) or any("Calc(" in line and "where=[" in line for line in lines):
        return "filter"
    return "map" if any(_MAP.search(part) for part in bare) else "other"


def _window(parts: Iterable[str], lines: Sequence[str]) -> ChainWindow | None:
    """The window that holds a chain's results: of SQL by its description, of Java by its name or description.

    The local half of a two-phase window aggregation only prepares slices: the global one holds them.
    """
    for line in lines:
        if "LocalWindowAggregate" in line or "LocalGroupAggregate" in line:
            continue
        if found := _SQL_WINDOW.search(line):
            return _sql_window(found[1], found[2])
        if found := _OLD_SQL_WINDOW.search(line):
            size, slide = int(found[2]) / 1000, found[3] and int(found[3]) / 1000
            return ChainWindow(found[0], None if found[1] == "Session" else size, slide or None)
    for part in (*parts, *lines):  # a window that was given a name tells itself in its description
        if found := _JAVA_WINDOW.search(part):
            slide = found[4] if found[1] == "Sliding" else None
            size_s, slide_s = int(found[3]) / 1000, int(slide) / 1000 if slide else None
            return ChainWindow(found[0], size_s, slide_s, event_time=found[2] == "EventTime")
        if found := _OTHER_JAVA_WINDOW.search(part):
            return ChainWindow(found[0], None)
    return None


def _sql_window(function: str, arguments: str) -> ChainWindow:
    values = dict(re.findall(r"(\w+)=\[([^\]]*)\]", arguments))
    words = f"{function}({arguments})"
    sliced = any(name in values for name in ("slice_end", "win_end", "win_start"))
    event_time = True if sliced else None
    size_s, slide_s = duration_s(values.get("size", "")), duration_s(values.get("slide", ""))
    if function not in ("TUMBLE", "HOP"):
        return ChainWindow(words, None, event_time=event_time)
    return ChainWindow(words, size_s, slide_s if function == "HOP" else None, event_time)


def _watermarks(lines: Iterable[str]) -> Iterator[tuple[str, float | None]]:
    """Delay of each row time's watermark in seconds; None where the expression is another one."""
    for line in lines:
        found = _WATERMARK.search(line)
        if found:
            yield found[1], int(found[2]) / 1000 if found[2] else 0.0
        elif _WATERMARKED.search(line):
            yield "", None
