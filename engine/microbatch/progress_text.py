"""Texts that hold StreamingQueryProgress: JSON in any arrangement, Spark's event logs, and the log of a driver.

`recentProgress` prints objects one after the other, indented or not, in Python as literals; Spark logs each batch
behind ``made progress:``; an event log has it in an event, or as a text. What is no progress is left out and named.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import DocumentError, Fault
from engine.words import counted

__all__ = ["ProgressText", "read_progress_text", "shorten_faults"]

_MAX_LISTED = 20  # faults: a file of the wrong kind has one fault a line
_WHAT = "progress of a Spark query"
_EVENT = "QueryProgressEvent"
_MAX_DAMAGED_SHARE = 0.1  # of the objects of a text; more is a text of another kind
_MARK = re.compile(r"made progress:\s*")
_BEGINNING = re.compile(r"^[\[{]", re.MULTILINE)
_BETWEEN = re.compile(r"[\s,\x1e]*")
#: Beginnings that collectors of containers' logs put before each line: a name, a time.
_PREFIX = re.compile(r"(?:[\w.\-/\[\] ]{1,80}\| ?)?(?:\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d) )?")
_PYTHON = re.compile(r"'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\"|\bNone\b|\bTrue\b|\bFalse\b")
_PYTHON_WORDS = {"None": "null", "True": "true", "False": "false"}
_CUT = "it ends in the middle: the file was cut off, or was still being written"
_FORMS = (
    "StreamingQueryProgress as JSON (one object a line, objects one after the other, or a list), Spark's event log, or "
    "a driver's log with lines of `Streaming query made progress`"
)


@dataclass(frozen=True, slots=True)
class ProgressText:
    """Progress objects of a text in their order, and what of it could not be read."""

    documents: tuple[Any, ...]
    left_out: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """A value of the text, or the reason why what stands there is none."""

    line: int
    value: Any = None
    reason: str = ""
    is_damaged: bool = True  # what begins like JSON; other words between objects are no damage
    is_cut: bool = False  # the text ends in the middle of it


def read_progress_text(text: str) -> ProgressText:
    """The progress objects of a text. Other events of a Spark log are no progress, and nobody misses them.

    Raises
    ------
    DocumentError
        Nothing in it is progress, or more than a tenth of its objects is damaged: each by its line.

    Examples
    --------
    >>> read_progress_text('{"batchId": 1}\\n{"batchId": 2}\\n').documents
    ({'batchId': 1}, {'batchId': 2})
    >>> log = '26/03/01 INFO MicroBatchExecution: Streaming query made progress: {\\n  "batchId": 7\\n}\\n'
    >>> read_progress_text(log).documents
    ({'batchId': 7},)
    """
    parts = list(_parts(_without_prefixes(text.lstrip("\ufeff"))))
    read = [part for part in parts if not part.reason]
    damaged = [part for part in parts if part.reason and part.is_damaged]
    words = [part for part in parts if part.reason and not part.is_damaged]
    documents = tuple(document for part in read for document in _unwrapped_all(part.value))
    broken = sum(not part.is_cut for part in damaged)
    if broken > _MAX_DAMAGED_SHARE * len(parts) or (not documents and (damaged or words)):
        faults = [_fault(part) for part in parts if part.reason]
        raise DocumentError(shorten_faults(faults), _WHAT)
    if not documents:
        raise DocumentError([Fault("", f"there is no progress in it; allowed: {_FORMS}")], _WHAT)
    left_out = [Fault(f"line {part.line}", part.reason) for part in damaged]
    if words:
        lines = counted(len(words), "line")
        left_out.append(Fault(f"line {words[0].line}", f"{lines} without JSON from there on"))
    return ProgressText(documents, tuple(shorten_faults(left_out)))


def shorten_faults(faults: Sequence[Fault]) -> list[Fault]:
    """The first faults, and how many more there are."""
    if len(faults) <= _MAX_LISTED:
        return list(faults)
    rest = counted(len(faults) - _MAX_LISTED, "more fault")
    return [*faults[:_MAX_LISTED], Fault("", f"and {rest} of the same file")]


def _fault(part: _Part) -> Fault:
    where = f"line {part.line}"
    return Fault(where, f"{where} is not JSON ({part.reason}); allowed: {_FORMS}")


def _parts(text: str) -> Iterator[_Part]:
    try:
        yield _Part(1, json.loads(text))
        return
    except RecursionError:
        raise
    except ValueError:
        pass
    if _MARK.search(text) and not text.lstrip().startswith("{"):
        yield from _logged(text)
    else:
        yield from _concatenated(text)


def _logged(text: str) -> Iterator[_Part]:
    """Values behind the marks of a log; its other lines are the driver's."""
    for mark in _MARK.finditer(text):
        value, _, reason = _decode(text, mark.end())
        yield _Part(_line(text, mark.start()), value, reason, is_cut=reason == _CUT)


def _concatenated(text: str) -> Iterator[_Part]:
    """Values one after the other; after what is none it goes on at the next line that begins like one."""
    place, line, counted_to = 0, 1, 0
    while True:
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
        if place >= len(text):
            return
        line, counted_to = line + text.count("\n", counted_to, place), place
        if text[place] in "[{":
            value, end, reason = _decode(text, place)
            if not reason:
                yield _Part(line, value)
                place = end
                continue
            yield _Part(line, reason=reason, is_cut=reason == _CUT)
            following = _BEGINNING.search(text, place + 1)
            place = following.start() if following else len(text)
        else:
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
            yield _Part(line, reason="no JSON begins there", is_damaged=False)
            place = end


def _decode(text: str, place: int) -> tuple[Any, int, str]:
    """The value that begins at `place` and where it ends, or why it is none."""
    try:
        value, end = json.JSONDecoder().raw_decode(text, place)
        return value, end, ""
    except json.JSONDecodeError as error:
        if text.startswith(("{'", "[{'"), place):
            return _decode_python(text, place)
        if error.pos >= len(text.rstrip()) - 1 or error.msg.startswith("Unterminated"):
            return None, place, _CUT
        return None, place, error.msg


def _decode_python(text: str, place: int) -> tuple[Any, int, str]:
    """A literal of Python, as `print(query.lastProgress)` writes it, to the end of its line."""
    end = text.find("\n", place)
    end = len(text) if end < 0 else end
    try:
        return json.loads(_PYTHON.sub(_json_token, text[place:end])), end, ""
    except (ValueError, SyntaxError):
        return None, place, "neither JSON nor a literal of Python"


def _json_token(token: re.Match[str]) -> str:
    word = token[0]
    return _PYTHON_WORDS.get(word) or json.dumps(ast.literal_eval(word))


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _without_prefixes(text: str) -> str:
    """The text without what a collector of logs has put before every line of it."""
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    if len(filled) < 2 or any(not (match := _PREFIX.match(line)) or not match[0] for line in filled):
        return text
    return "\n".join(_PREFIX.sub("", line, count=1) for line in lines)


def _unwrapped_all(value: Any) -> Iterator[Any]:
    for item in value if isinstance(value, list) else [value]:
        document = _unwrapped(item)
        if document is not None:
            yield document


def _unwrapped(document: Any) -> Any:
    """A progress itself, also out of an event or of a structured line of a log; None for anything else of these."""
    if not isinstance(document, Mapping) or "runId" in document:
        return document
    if "Event" in document:
        if not str(document["Event"]).endswith(_EVENT):
            return None
        return _of_text(document.get("progress"))
    message = next((document[name] for name in ("msg", "message", "log") if isinstance(document.get(name), str)), None)
    if message is None:
        return document
    mark = _MARK.search(message)
    return _of_text(message[mark.end() :]) if mark else None


def _of_text(progress: Any) -> Any:
    """A progress that is JSON within a text, as an object."""
    if not isinstance(progress, str):
        return progress
    value, _, reason = _decode(progress, 0) if progress[:1] in ("{", "[") else (None, 0, "no JSON")
    return progress if reason else value
