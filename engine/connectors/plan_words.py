"""Operators in the words of Flink's plans: those that a reader knows, and what each makes its results wait for.

A word is a planner's own (``[9]:WindowJoin(leftWindow=[…], …)``, ``Calc[5]``) or a generated name of the DataStream API
(``Window(TumblingEventTimeWindows(5000), EventTimeTrigger, …)``). The vocabulary is closed: of a word that is not in it
nobody knows how long its results wait, so it is told as unread. Names that people gave (``enrich``) are no words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["PlanWord", "plan_words", "unread_names", "waits_for_watermark", "waits_for_window"]

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
    "AsyncCalc": "its rows wait for answers from outside, which is no busy time",
    "AsyncCorrelate": "its rows wait for answers from outside, which is no busy time",
    "MLPredictTableFunction": "its rows wait for answers from outside, which is no busy time",
    "AsyncMLPredictTableFunction": "its rows wait for answers from outside, which is no busy time",
    "VectorSearchTableFunction": "its rows wait for answers from outside, which is no busy time",
    "ProcessTableFunction": "its function may hold rows by timers",
}
_KNOWN = _AT_ONCE | _WINDOWED | _BY_WATERMARK | _BUNDLING | frozenset(_UNTOLD)
#: Generated names of the DataStream API that wait for what no plan tells.
_UNTOLD_NAMES = (
    (
        re.compile(r"async wait operator", re.IGNORECASE),
        "its events wait for answers from outside, which is no busy time",
    ),
    (re.compile(r"\bCEP\b|CepOperator|PatternStream"), "its results wait for the events that complete a pattern"),
)
#: A name that speaks of a window although nothing in the plan says which.
_WINDOW_NAME = re.compile(r"window|sessioni[sz]e", re.IGNORECASE)

_NUMBERED = re.compile(r"^\[\d+\]\s*:\s*([A-Za-z]\w*)\b")  # [9]:Calc(select=[…])
_BRACKETED = re.compile(r"^([A-Z]\w*)\[\d+\]$")  # Calc[9]
_CALLED = re.compile(r"^([A-Z]\w*)\((?=[^)]*=\[)")  # Calc(select=[…]), before Flink 1.15
_JAVA_WINDOW = re.compile(r"^(Window|WindowAll|AllWindow|TriggerWindow)\(")
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
        for pattern in (_NUMBERED, _BRACKETED, _CALLED, _JAVA_WINDOW):
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


def unread_names(words: Iterable[PlanWord], names: Iterable[str], *, has_window: bool) -> Iterator[str]:
    """Names of a chain that no reader understands, each with the reason.

    Parameters
    ----------
    names : iterable of str
        Names and descriptions of the chain that are no words, sources and sinks left out.
    has_window : bool
        Whether a window of the chain is read.

    Examples
    --------
    >>> list(unread_names(plan_words(["[4]:Ponder(by=[k])"]), ["enrich"], has_window=False))
    ['Ponder: the operator is not known']
    """
    for word in words:
        if word.name not in _KNOWN:
            yield f"{word.name}: the operator is not known"
        elif word.name in _UNTOLD:
            yield f"{word.name}: {_UNTOLD[word.name]}"
        elif word.name == "LookupJoin" and _ASYNC.search(word.text):
            yield "LookupJoin: its rows wait for answers from outside, which is no busy time"
        elif word.name == "IntervalJoin" and _OUTER.search(word.text):
            yield "IntervalJoin: rows without a partner wait until the interval is over"
    for name in dict.fromkeys(names):
        reason = next((reason for pattern, reason in _UNTOLD_NAMES if pattern.search(name)), "")
        if reason:
            yield f"{name}: {reason}"
        elif not has_window and _WINDOW_NAME.search(name):
            yield f"{name}: its name speaks of a window, and nothing tells which"
