"""Chained operators of a Flink vertex: what their names and the plan's descriptions tell of label, kind and window.

Names are those of Flink 1.14 to 2.3: ``Source: clicks[4] -> Calc[5]``, ``Window(TumblingEventTimeWindows(5000), …)``.
Numbers in brackets count a session's operators, so they change with each submission and are left out.
"""

from __future__ import annotations

import html
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

__all__ = [
    "Chain",
    "ChainWindow",
    "PlanWord",
    "duration_s",
    "plan_words",
    "read_chain",
    "unread_names",
    "waits_for_watermark",
    "waits_for_window",
    "waits_outside",
]


#: Words whose results leave as soon as their events are worked on: all time that passes is busy time, or a queue.
_AT_ONCE = frozenset(
    """
    Calc PythonCalc Correlate PythonCorrelate Expand Union Values Exchange Limit SortLimit Rank Deduplicate
    ChangelogNormalize DropUpdateBefore ConstraintEnforcer NotNullEnforcer SinkMaterializer RowKindSetter
    DataStreamScan TableSourceScan LegacyTableSourceScan Sink LegacySink DataSteamToTable TableToDataSteam
    DataStreamToTable TableToDataStream InputConversion OutputConversion SourceConversion SinkConversion
    WatermarkAssigner TimestampInserter StreamRecordTimestampInserter MultipleInput
    GroupAggregate GlobalGroupAggregate LocalGroupAggregate IncrementalGroupAggregate GroupTableAggregate
    PythonGroupAggregate PythonGroupTableAggregate LocalWindowAggregate WindowTableFunction
    Join MultiJoin DeltaJoin IntervalJoin LookupJoin
    """.split()  # noqa: SIM905 - a table of words
)
#: Words that keep every row that they have read, unless the plan or a setting gives it a time to live.
_KEEPING = frozenset(("Join", "MultiJoin"))
_TTL = re.compile(r"ttl|time.to.live", re.IGNORECASE)
#: Words that hold results until a window closes.
_WINDOWED = frozenset(
    """
    WindowAggregate GlobalWindowAggregate GroupWindowAggregate GroupWindowTableAggregate PythonGroupWindowAggregate
    WindowJoin WindowRank WindowDeduplicate Window WindowAll AllWindow TriggerWindow
    """.split()  # noqa: SIM905 - a table of words
)
#: Words that hold rows until a watermark has passed their row time; by processing time they do not.
_BY_WATERMARK = frozenset(("OverAggregate", "PythonOverAggregate", "TemporalSort", "TemporalJoin", "Match"))
#: Words that gather rows for an interval of the plan's.
_BUNDLING = frozenset(("MiniBatchAssigner",))
#: Words that wait for what no plan tells, and for what.
_UNTOLD = {
    "Match": "its results wait for the events that complete a pattern",
    "ProcessTableFunction": "its function may hold rows by timers",
}
#: Words whose rows wait for answers from outside.
_OUTSIDE = frozenset(
    """
    AsyncCalc AsyncCorrelate MLPredictTableFunction AsyncMLPredictTableFunction VectorSearchTableFunction
    """.split()  # noqa: SIM905 - a table of words
)
_KNOWN = _AT_ONCE | _WINDOWED | _BY_WATERMARK | _BUNDLING | _OUTSIDE | frozenset(_UNTOLD)
#: Names of the DataStream API that wait for what no plan tells: generated ones, and those that speak of it.
_OUTSIDE_NAME = re.compile(r"async", re.IGNORECASE)
_PATTERN_NAME = re.compile(r"\bCEP\b|CepOperator|PatternStream")
#: A name that speaks of a window although nothing in the plan says which.
_WINDOW_NAME = re.compile(r"window|sessioni[sz]e", re.IGNORECASE)

_NUMBERED = re.compile(r"^\[\d+\]\s*:\s*([A-Za-z]\w*)\b")  # [9]:Calc(select=[…])
_BRACKETED = re.compile(r"^([A-Z]\w*)\[\d+\]$")  # Calc[9]
_CALLED = re.compile(r"^([A-Z]\w*)\((?=[^)]*=\[)")  # Calc(select=[…]), before Flink 1.15
_WINDOW_CALL = re.compile(r"^(Window|WindowAll|AllWindow|TriggerWindow)\(")
_OUTER = re.compile(r"joinType=\[(?:Left|Right|Full)OuterJoin\]|joinType=\[\w*Anti\w*\]")
_ASYNC = re.compile(r"async=\[(?!\s*(?:false)?\s*\])|lookupType=\[async", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PlanWord:
    """An operator of a plan: its word, and the text that stands for it, with its arguments where they are told."""

    name: str
    text: str


def plan_words(texts: Iterable[str]) -> tuple[PlanWord, ...]:
    """Words among the names and descriptions of a chain, each once: with its arguments where one text tells them.

    Examples
    --------
    >>> [word.name for word in plan_words(["Calc[5]", "enrich", "[5]:Calc(select=[a])", "Sink: out[6]"])]
    ['Calc']
    """
    told: dict[str, list[str]] = {}
    for text in texts:
        for pattern in (_NUMBERED, _BRACKETED, _CALLED, _WINDOW_CALL):
            if found := pattern.match(text):
                told.setdefault(found[1], []).append(text)
                break
    return tuple(word for name, texts_ in told.items() for word in _told_words(name, texts_))


def _told_words(name: str, texts: Sequence[str]) -> Iterator[PlanWord]:
    full = [text for text in texts if "(" in text]
    for text in dict.fromkeys(full or texts[:1]):
        yield PlanWord(name, text)


def waits_for_window(word: PlanWord) -> bool:
    """Whether results are held until a window closes; of functions that assign windows, those of sessions hold."""
    return word.name in _WINDOWED or (word.name == "WindowTableFunction" and "SESSION(" in word.text)


def waits_for_watermark(word: PlanWord) -> bool:
    """Whether rows are held until a watermark has passed them, if they are ordered by row time."""
    return word.name in _BY_WATERMARK


def waits_outside(words: Iterable[PlanWord], names: Iterable[str]) -> bool:
    """Whether events of a chain wait for answers from outside, with no thread busy; arguments as in `unread_names`.

    Examples
    --------
    >>> waits_outside((), ["async wait operator", "score"]), waits_outside((), ["score"])
    (True, False)
    """
    return any(map(_is_asynchronous, words)) or any(map(_OUTSIDE_NAME.search, names))


def _is_asynchronous(word: PlanWord) -> bool:
    return word.name in _OUTSIDE or (word.name == "LookupJoin" and bool(_ASYNC.search(word.text)))


def unread_names(words: Iterable[PlanWord], names: Iterable[str], *, has_window: bool) -> Iterator[str]:
    """Names of a chain that no reader understands, each with the reason.

    `names`: names and descriptions of the chain that are no words, sources and sinks left out. `has_window`: whether a
    window of the chain is read.

    Examples
    --------
    >>> list(unread_names(plan_words(["[4]:Ponder(by=[k])"]), ["enrich"], has_window=False))
    ['Ponder: the operator is not known']
    """
    for word in words:
        if _is_asynchronous(word):
            yield f"{word.name}: its rows wait for answers from outside, which is no busy time"
        elif word.name not in _KNOWN:
            yield f"{word.name}: the operator is not known"
        elif word.name in _UNTOLD:
            yield f"{word.name}: {_UNTOLD[word.name]}"
        elif word.name == "IntervalJoin" and _OUTER.search(word.text):
            yield "IntervalJoin: rows without a partner wait until the interval is over"
    for name in dict.fromkeys(names):
        if _OUTSIDE_NAME.search(name):
            yield f"{name}: its events wait for answers from outside, which is no busy time"
        elif _PATTERN_NAME.search(name):
            yield f"{name}: its results wait for the events that complete a pattern"
        elif not has_window and _WINDOW_NAME.search(name):
            yield f"{name}: its name speaks of a window, and nothing tells which"


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
_TOKEN = re.compile(r"->|[(),]|[^-(),]+|-")
_TOKEN_OF_ARGUMENTS = re.compile(r"'(?:[^']|'')*'|->|[(),]|[^-(),']+|[-']")  # a literal may hold any of these
_PLANNED = re.compile(r"^[A-Z]\w*\[\d+\]$")  # Calc[5], GlobalWindowAggregate[10]: an operator that SQL's planner named
_SOURCE = re.compile(r"^(?:Source|TableSourceScan)\s*:\s*(.+)$")
_SINK = re.compile(r"^Sink\s*:\s*(.+)$")
_TABLE = re.compile(r"\btable=\[\[([^\]]+)\]")
_SINK_PART = re.compile(r"^(.+?)\s*:\s*(?:Writer|Committer|Global Committer)$")

_JOIN = re.compile(r"join|co-?process|connect|comap|coflatmap", re.IGNORECASE)
_WINDOW = re.compile(r"WindowAggregate|GroupWindow|^Window\(|Windows\(|WindowDeduplicate|WindowRank|WindowedStream")
_AGGREGATE = re.compile(r"Aggregat|Reduce|Deduplicate|Rank|^Sum|^Count|TopN|Keyed Aggregation", re.IGNORECASE)
_FILTER = re.compile(r"^filter\b", re.IGNORECASE)
_MAP = re.compile(r"^(?:flat\s*)?map\b|^Calc\b|^Correlate\b|^Expand\b|^Project", re.IGNORECASE)
#: Parts that do no work of their own worth a kind.
_HELPERS = re.compile(r"WatermarkAssigner|Timestamps/Watermarks|TimestampInserter|MiniBatchAssigner|ConstraintEnforcer")

_SQL_WINDOW = re.compile(r"\b(?:left|right)?[wW]indow=\[\s*(TUMBLE|HOP|CUMULATE|SESSION)\(([^()]*)\)")
_OLD_SQL_WINDOW = re.compile(r"(Tumbling|Sliding|Session)GroupWindow\('\w+\$?,\s*\w+,\s*(\d+)(?:,\s*(\d+))?\)")
_EARLY = re.compile(r"emit=\[early (?:delay (\d+\s*\w+)|no delay)")
_JAVA_WINDOW = re.compile(r"(Tumbling|Sliding)(?:(EventTime|ProcessingTime)|Time)Windows\((\d+)(?:,\s*(\d+))?")
_JAVA_SESSION = re.compile(r"(EventTime|ProcessingTime)SessionWindows\((\d+)")
_COUNT_WINDOW = re.compile(
    r"Count(?:Tumbling|Sliding)WindowAssigner\((\d+)(?:,\s*(\d+))?|GlobalWindows\(.*?CountTrigger\((\d+)\)"
)
_OTHER_JAVA_WINDOW = re.compile(r"\b\w*(?:SessionWindows|GlobalWindows|(?:Tumbling|Sliding)\w*Windows)\b")
_TRIGGER = re.compile(r"\b(?:Async)?(\w*Trigger)\b(?:\((\d+)\))?")
_AT_CLOSE = ("EventTimeTrigger", "ProcessingTimeTrigger")  # the usual triggers
_BUNDLE = re.compile(r"MiniBatchAssigner\(interval=\[(\d+)ms\],\s*mode=\[(\w+)\]")
_SESSION_DOUBT = "a session lasts as long as events of its key come, so that busy keys wait longest"
#: Words whose windows keep rows in a buffer and work on them when a slice ends.
_AT_CLOSE_WORDS = frozenset(
    ("WindowAggregate", "GlobalWindowAggregate", "WindowJoin", "WindowRank", "WindowDeduplicate")
)
_WATERMARK = re.compile(r"watermark=\[\(?(?:-\()?\s*`?(\w+)`?\s*(?:[-,]\s*(\d+):INTERVAL[^)\]]*)?\)?\]")
_WATERMARKED = re.compile(r"watermark=\[")


@dataclass(frozen=True, slots=True)
class ChainWindow:
    """Window of a chain, or another hold that is like one."""

    words: str
    size_s: float | None  #: none where its kind has no fixed size
    slide_s: float | None = None
    event_time: bool | None = None  #: none where nothing tells
    #: interval in which results leave before it closes; 0 where each event changes them at once
    early_s: float | None = None
    events: float | None = None  #: of a window that closes by count: how many events it takes
    is_session: bool = False  #: of each key, ended by `size_s` without events
    works_at_close: bool = False  #: whether what it holds is worked on when it closes
    is_attached: bool = False  #: whether its rows have the window already, of an operator before it
    doubt: str = ""  #: what of it is not understood; empty where all is

    @property
    def is_early(self) -> bool:
        """Whether results leave before it closes."""
        return self.early_s is not None and self.size_s is not None and self.early_s < (self.slide_s or self.size_s)

    def to_document(self, watermark_delay_s: float | None) -> Mapping[str, object] | None:
        """The window as a deployment document has it; None where its size is not known."""
        if self.events is not None:
            return {"policy": "count", "type": "tumbling", "size": self.events}
        if self.size_s is None:
            return None
        if self.is_early and self.early_s:  # by the clock, as a window of that size closes
            return {"policy": "time", "type": "tumbling", "size": self.early_s}
        kind = "session" if self.is_session else "sliding" if self.slide_s else "tumbling"
        window: dict[str, object] = {"policy": "time", "type": kind}
        window |= {"size": self.size_s} | ({"slide": self.slide_s} if self.slide_s else {})
        if self.is_early:
            return window | {"emit": "on_update"}
        if self.works_at_close:
            window["work_at"] = "close"
        if self.event_time:
            window["watermark_delay_s"] = watermark_delay_s or 0.0
        return window

    def closes_with(self, other: ChainWindow) -> bool:
        """Whether both close at the same moments."""
        own, others = ((w.size_s, w.slide_s, w.events, w.is_session) for w in (self, other))
        return own == others


@dataclass(frozen=True, slots=True)
class Chain:
    """Label, kind, window and watermarks of a vertex, by its names and descriptions.

    `watermarks` maps row times to the seconds that watermarks lag behind; None: their expression is another one.
    `by_watermark` tells that rows wait for a watermark if they are ordered by row time; of a pattern of the DataStream
    API they are, unless it says otherwise, and no plan tells the watermarks (`is_pattern`). `unread` is what of its
    plan nobody understands, each with the reason.
    """

    label: str
    stream: str
    kind: str
    window: ChainWindow | None = None
    watermarks: Mapping[str, float | None] = field(default_factory=dict)
    processing_time: bool = False
    by_watermark: bool = False
    is_pattern: bool = False
    waits_outside: bool = False  #: whether its events wait for answers from outside, with no thread busy
    keeps_rows: bool = False  #: whether a word of it keeps every row for good
    unread: tuple[str, ...] = ()


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
    text = re.sub(r"<br\s*/?>", "\n", html.unescape(html.unescape(description)))
    lines = [line for row in text.splitlines() for line in _chained(row.strip(" +-|:"))]
    words = plan_words([*parts, *lines])
    windows = list(_windows(words, [*parts, *lines]))
    window = max(windows, key=lambda window: window.size_s or 0.0, default=None)
    kind = _kind(parts, lines, has_inputs=has_inputs, has_readers=has_readers)
    names = [text for text in (*parts, *lines) if not _is_word(text, words) and not _is_outside(text)]
    return Chain(
        label=_label(parts),
        stream=next((_stream(found[1]) for part in parts if (found := _SOURCE.match(part))), ""),
        kind="window" if window is not None and kind in ("aggregate", "other", "sink") else kind,
        window=window,
        watermarks=dict(_watermarks(lines)),
        processing_time=any("PROCTIME()" in line for line in lines),
        by_watermark=any(waits_for_watermark(word) for word in words),
        is_pattern=any(map(_PATTERN_NAME.search, names)),
        waits_outside=waits_outside(words, names),
        keeps_rows=any(word.name in _KEEPING and not _TTL.search(word.text) for word in words),
        unread=(*unread_names(words, names, has_window=window is not None), *_window_doubts(windows)),
    )


def _is_word(text: str, words: Iterable[PlanWord]) -> bool:
    plain = re.sub(r"^\[\d+\]\s*:\s*", "", text)
    return any(re.match(rf"{word.name}(?:\[\d+\]$|\(|$)", plain) for word in words)


def _is_outside(text: str) -> bool:
    """Whether a text names a source or a sink, which may be called as they like."""
    return bool(_SOURCE.match(text) or _SINK.match(text) or _SINK_PART.match(text) or "TableSourceScan" in text)


def _chained(row: str) -> Iterator[str]:
    """Operators of a row of a description: one, or in old versions a chain of them."""
    yield from (part.strip() for part in re.split(r"\s+->\s+", row) if part.strip())


def _parts(name: str) -> Iterator[str]:
    """Names of the chained operators, in order; branches of a chain stand in parentheses, as arguments do.

    >>> list(_parts("Source: a[1] -> (LocalWindowAggregate[3], Calc(select=[a, b]) -> x[6]: Writer)"))
    ['Source: a[1]', 'LocalWindowAggregate[3]', 'Calc(select=[a, b])', 'x[6]: Writer']
    """
    text, at = html.unescape(html.unescape(name)), 0
    part, open_ = "", ""  # of parentheses: b opens branches, a arguments
    while (found := (_TOKEN_OF_ARGUMENTS if "a" in open_ else _TOKEN).match(text, at)) is not None:
        token, at, before = found[0], found.end(), open_
        if token == "(":
            open_ += "a" if part.strip() or "a" in open_ else "b"
        elif token == ")":
            open_ = open_[:-1]
        ends = token in ("->", "(", ")") or (token == "," and bool(open_))
        if not ends or "a" in before + open_:
            part += token
            continue
        if part.strip():
            yield part.strip()
        part = ""
    if part.strip():
        yield part.strip()


def _plain(name: str) -> str:
    """Name without the numbers of a session and without parentheses that have no partner.

    >>> _plain("Calc[5])"), _plain("clicks (eu)[3]"), _plain("TableSourceScan(table=[[shop")
    ('Calc', 'clicks (eu)', 'TableSourceScan')
    """
    kept, opened = "", list[int]()
    for letter in _NUMBER.sub("", name):
        if letter == ")" and not opened:
            continue
        if letter == "(":
            opened.append(len(kept))
        elif letter == ")":
            opened.pop()
        kept += letter
    return (kept[: opened[0]] if opened else kept).strip() or name.strip("() ") or name


def _stream(name: str) -> str:
    """Name of what a source reads: as people gave it, whatever is in it."""
    return _given(name) if _TABLE.search(name) else _plain(name)


def _given(name: str) -> str:
    """Name of a source or a sink; of a scan of the planner that of its table.

    >>> _given("TableSourceScan(table=[[shop, main, bids, project=[a]]], fields=[a])"), _given("print(2)")
    ('bids', 'print(2)')
    """
    found = _TABLE.search(name)
    path = [] if found is None else [*itertools.takewhile(lambda part: "=" not in part, found[1].split(","))]
    return _plain((path or name.split(","))[-1 if path else 0].strip())


def _label(parts: Sequence[str]) -> str:
    """Name as people gave it, of the last operator that has one; otherwise the planner's, of more than a Calc."""
    for part in reversed(parts):
        given = _SOURCE.match(part) or _SINK.match(part) or _SINK_PART.match(part)
        if given:
            return _given(given[1])
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


def _windows(words: Sequence[PlanWord], texts: Sequence[str]) -> Iterator[ChainWindow]:
    """Windows that hold a chain's results, in its order: of SQL by its description, of Java by its name or description.

    The local half of a two-phase window aggregation only prepares slices: the global one holds them.
    """
    for word in words:
        if found := _BUNDLE.search(word.text):
            if float(found[1]):
                yield ChainWindow(found[0], int(found[1]) / 1000, event_time=found[2].lower() == "rowtime")
        elif waits_for_window(word):
            window = _sql_window(word.text) or _java_window(word.text)
            if window is not None:
                yield replace(window, works_at_close=word.name in _AT_CLOSE_WORDS and not window.is_session)
            elif "(" in word.text:
                yield ChainWindow(word.name, None, doubt="nothing tells its size")
    if not any(waits_for_window(word) for word in words):  # a name that people gave, of one that tells itself
        yield from [window for text in texts if not _is_outside(text) and (window := _java_window(text))][:1]
    elif not any("(" in word.text for word in words if waits_for_window(word)):
        yield ChainWindow(
            next(word.name for word in words if waits_for_window(word)), None, doubt="it is not described"
        )


def _window_doubts(windows: Sequence[ChainWindow]) -> Iterator[str]:
    yield from dict.fromkeys(f"{window.words}: {window.doubt}" for window in windows if window.doubt)
    if any(not window.closes_with(windows[0]) for window in windows):
        yield "several windows in one chain: the wait of the longest alone is counted"


def _sql_window(text: str) -> ChainWindow | None:
    """Window of an operator of SQL; of a join the longer of its two."""
    early = _EARLY.search(text)
    early_s = None if early is None else duration_s(early[1] or "0")
    if found := _OLD_SQL_WINDOW.search(text):
        size_s, slide_s = int(found[2]) / 1000, int(found[3]) / 1000 if found[3] else None
        if found[1] == "Session":
            return ChainWindow(found[0], size_s, early_s=early_s, is_session=True, doubt=_SESSION_DOUBT)
        return ChainWindow(found[0], size_s, slide_s if found[1] == "Sliding" else None, early_s=early_s)
    windows = [_table_window(*found) for found in _SQL_WINDOW.findall(text)]
    chosen = max(windows, key=lambda window: window.size_s or 0.0, default=None)
    return None if chosen is None else replace(chosen, early_s=early_s)


def _table_window(function: str, arguments: str) -> ChainWindow:
    """A window of SQL's table-valued functions; one of CUMULATE tells what it has with each step."""
    values = dict(re.findall(r"(\w+)=\[([^\]]*)\]", arguments))
    words = f"{function}({arguments})"
    is_attached = "win_end" in values or "win_start" in values
    event_time = True if is_attached or "slice_end" in values else None
    names = {"CUMULATE": "step", "SESSION": "gap"}
    size_s = duration_s(values.get(names.get(function, "size"), ""))
    if function == "SESSION":
        return ChainWindow(words, size_s, None, event_time, is_session=True, doubt=_SESSION_DOUBT)
    if size_s is None:
        return ChainWindow(words, None, event_time=event_time, doubt="nothing tells its size")
    slide_s = duration_s(values.get("slide", "")) if function == "HOP" else None
    return ChainWindow(words, size_s, slide_s, event_time, is_attached=is_attached)


def _java_window(text: str) -> ChainWindow | None:
    """Window of the DataStream API, with what its trigger tells."""
    if found := _COUNT_WINDOW.search(text):
        events = float(found[2] or found[1] or found[3])
        return ChainWindow(f"{found[0]})", None, events=events, doubt="it counts the events of each key apart")
    if found := _JAVA_WINDOW.search(text):
        slide_s = int(found[4]) / 1000 if found[4] and found[1] == "Sliding" else None
        event_time = None if found[2] is None else found[2] == "EventTime"
        return _triggered(ChainWindow(f"{found[0]})", int(found[3]) / 1000, slide_s, event_time), text[found.end() :])
    if found := _JAVA_SESSION.search(text):
        gap_s, by_event_time = int(found[2]) / 1000, found[1] == "EventTime"
        return ChainWindow(f"{found[0]})", gap_s, event_time=by_event_time, is_session=True, doubt=_SESSION_DOUBT)
    if found := _OTHER_JAVA_WINDOW.search(text):
        return ChainWindow(found[0], None, doubt="nothing tells when it closes")
    return None


def _triggered(window: ChainWindow, text: str) -> ChainWindow:
    """A window with its trigger: one that fires by an interval, or one that nobody knows."""
    found = next((found for found in _TRIGGER.finditer(text) if found[1] not in ("PurgingTrigger",)), None)
    if found is None or found[1] in _AT_CLOSE:
        return window
    if found[1].startswith("Continuous") and found[2]:
        return replace(window, early_s=int(found[2]) / 1000)
    return replace(window, doubt=f"{found[1]} closes it, or lets results go before; its whole size is counted")


def _watermarks(lines: Iterable[str]) -> Iterator[tuple[str, float | None]]:
    """Delay of each row time's watermark in seconds; None where the expression is another one."""
    for line in lines:
        found = _WATERMARK.search(line)
        if found:
            yield found[1], int(found[2]) / 1000 if found[2] else 0.0
        elif _WATERMARKED.search(line):
            yield "", None
