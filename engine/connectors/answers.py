"""Answers of engines as they came: found by the path asked, checked field by field, with all faults at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from engine.connectors.picture import Finding, FindingLevel
from engine.errors import DocumentError, Fault, join_path, value_words

__all__ = ["AnswerObject", "Answers", "Asking", "normal_path", "number_of"]

_MAX_FAULTS = 20
_ORIGIN = re.compile(r"^[a-z]+://[^/]*", re.IGNORECASE)
_VERSION = re.compile(r"^/v\d+(?=/)")
_LONG_MIN = -(2.0**63)
_MAX_NUMBER = 1e20  # above every long: sums of what is larger would overflow


def normal_path(path: str) -> str:
    """A path as answers are looked up by: without origin, version prefix, escapes and a slash at its end.

    Examples
    --------
    >>> normal_path("http://jm:8081/v1/jobs/overview/"), normal_path("/taskmanagers/10.0.0.1%3A41/metrics?get=a%5B1%5D")
    ('/jobs/overview', '/taskmanagers/10.0.0.1:41/metrics?get=a[1]')
    """
    path = _VERSION.sub("", _ORIGIN.sub("", path.strip()))
    return unquote("/" + path.strip("/"))


def number_of(value: Any) -> float | None:
    """A number, also one written as text; None for ``"NaN"``, infinities, Flink's lowest long, 1e20, and all else.

    Examples
    --------
    >>> number_of("990"), number_of("NaN"), number_of(-9.223372036854776e+18), number_of(True)
    (990.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and _LONG_MIN < number < _MAX_NUMBER else None


@dataclass(frozen=True, slots=True)
class Asking:
    """Paths to ask next, each a GET, and about how many bytes they will answer with. Empty: everything is known."""

    paths: tuple[str, ...]
    answer_bytes: int

    @property
    def requests(self) -> int:
        return len(self.paths)


class AnswerObject:
    """An object of an answer. What it lacks, or holds in a wrong form, becomes a fault of its `Answers`."""

    def __init__(self, answers: Answers, where: str, path: str, fields: Mapping[str, object]) -> None:
        self._answers, self._where, self._path, self.fields = answers, where, path, fields

    def _fault(self, key: str, allowed: str) -> None:
        shown = value_words(self.fields[key]) if key in self.fields else None
        message = f"{key} is missing; allowed: {allowed}" if shown is None else f"{key} is {shown}; allowed: {allowed}"
        self._answers.add_fault(self._where, join_path(self._path, key), message)

    def text(self, key: str) -> str:
        """A text that must be there and not be empty."""
        value = self.fields.get(key)
        if isinstance(value, str) and value:
            return value
        self._fault(key, "a non-empty text")
        return ""

    def number(self, key: str, *, least: float | None = None) -> float:
        """A number that must be there."""
        value = number_of(self.fields.get(key))
        if value is not None and (least is None or value >= least):
            return value
        self._fault(key, "a number" if least is None else f"a number of at least {least:g}")
        return 0.0

    def optional(self, key: str) -> float | None:
        """A number that may be missing or NaN."""
        return number_of(self.fields.get(key))

    def record(self, key: str, *, required: bool = True) -> AnswerObject:
        """An object within this one; an empty one where it is missing."""
        value = self.fields.get(key)
        if isinstance(value, Mapping):
            return AnswerObject(self._answers, self._where, join_path(self._path, key), value)
        if required or value is not None:
            self._fault(key, "an object")
        return AnswerObject(self._answers, self._where, join_path(self._path, key), {})

    def records(self, key: str, *, required: bool = True) -> Iterator[AnswerObject]:
        """The objects of a list within this one."""
        value = self.fields.get(key)
        if not isinstance(value, (list, tuple)):
            if required or value is not None:
                self._fault(key, "a list")
            return
        for i, item in enumerate(value):
            path = f"{join_path(self._path, key)}[{i}]"
            if isinstance(item, Mapping):
                yield AnswerObject(self._answers, self._where, path, item)
            else:
                self._answers.add_fault(self._where, path, f"item {i} is {value_words(item)}; allowed: an object")


class Answers:
    """Decoded answers by the path that was asked, the faults found in them and what reading them brought up.

    An answer that was no JSON is given as its text, so that HTML of a proxy is refused in clear words.

    `what`: the set in words, for the error: ``answers of Flink``.
    """

    def __init__(self, answers: Any, what: str) -> None:
        self.what = what
        self.findings: list[Finding] = []
        self._faults: list[Fault] = []
        self._by_path: dict[str, object] = {}
        if isinstance(answers, Mapping):
            self._by_path = {normal_path(str(path)): answer for path, answer in answers.items()}
        else:
            self.add_fault("", "", f"it is {value_words(answers)}; allowed: an object of answers by the path asked")

    def __contains__(self, path: str) -> bool:
        return normal_path(path) in self._by_path

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_path)

    def add_fault(self, where: str, path: str, message: str) -> None:
        self._faults.append(Fault(" ".join(part for part in (where, path) if part), message))

    def take_faults(self, seen: int) -> list[Fault]:
        """Faults beyond the first `seen`, which are none of the whole any more: of a part that is left out."""
        taken, self._faults = self._faults[seen:], self._faults[:seen]
        return taken

    @property
    def fault_count(self) -> int:
        return len(self._faults)

    def add_faults(self, faults: Iterable[Fault]) -> None:
        self._faults += faults

    def find(self, level: FindingLevel, code: str, subject: str, kind: str = "", /, **values: object) -> None:
        self.findings.append(Finding.of(level, code, subject, kind, **values))

    def refusal(self, path: str) -> str:
        """The engine's own words where it answered with an error; empty otherwise."""
        answer = self._by_path.get(normal_path(path))
        errors = answer.get("errors") if isinstance(answer, Mapping) else None
        if not isinstance(errors, (list, tuple)) or not errors:
            return ""
        first = str(errors[0]).strip().splitlines()
        return re.sub(r"^[\w.$]*(?:Exception|Error):\s*", "", first[0])[:300] if first else "an error without words"

    def raw(self, path: str) -> Any:
        """The answer as it came; None where it was not asked, or refused."""
        return None if self.refusal(path) else self._by_path.get(normal_path(path))

    def record(self, path: str) -> AnswerObject | None:
        """An answer that is an object. None where it was not asked or the engine refused it; all else is a fault."""
        if path not in self or self.refusal(path):
            return None
        answer = self._by_path[normal_path(path)]
        if isinstance(answer, Mapping):
            return AnswerObject(self, path, "", answer)
        self.add_fault(path, "", f"it answered {value_words(answer)}; allowed: a JSON object")
        return None

    def check(self) -> None:
        """Raise what was found wrong, all at once.

        Raises
        ------
        DocumentError
        """
        if not self._faults:
            return
        shown = self._faults[:_MAX_FAULTS]
        if len(self._faults) > _MAX_FAULTS:
            shown.append(Fault("", f"and {len(self._faults) - _MAX_FAULTS} more faults of the same answers"))
        raise DocumentError(shown, self.what)
