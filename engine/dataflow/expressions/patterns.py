r"""Regular expressions that RE2 (agents) and Java (Spark) read alike.

`portable_pattern` checks a pattern against the common subset and rewrites what the two spell differently: ``\s`` holds
a vertical tab in Java alone, ``.`` leaves out more ends of lines there, ``$`` also stands before the last end of line.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PatternError", "PortablePattern", "fits_nothing", "name_groups", "portable_pattern"]

MAX_REPEATS = 1_000
_SPACE = r"\t\n\f\r "
_CLASSES: Final = {"d": "0-9", "w": "0-9A-Za-z_", "s": _SPACE}
_CONTROLS: Final = "tnrf"


class PatternError(ValueError):
    """A pattern outside the common subset; the message says what and what is allowed."""


class PortablePattern(NamedTuple):
    """A pattern that both engines read; its groups have numbers alone, `names` says what they were called."""

    text: str
    names: tuple[str | None, ...]


def portable_pattern(pattern: str) -> PortablePattern:
    """The pattern as both engines read it.

    Raises
    ------
    PatternError
        It is no pattern of the common subset.
    """
    reader = _PatternReader(pattern)
    made = PortablePattern(reader.read(), tuple(reader.names))
    try:
        pc.match_substring_regex(pa.scalar(""), made.text)
    except pa.ArrowInvalid as error:
        raise PatternError(f"it cannot be read ({error})") from None
    return made


def fits_nothing(text: str) -> bool:
    """Whether a portable pattern is found in an empty text; engines replace such places each in its own way."""
    return bool(pc.match_substring_regex(pa.scalar(""), text).as_py())


def name_groups(text: str) -> str:
    """A portable pattern with a name for every group, g1, g2 and so on, as Arrow wants it."""
    parts: list[str] = []
    at, within, count = 0, False, 0
    while at < len(text):
        mark = text[at : at + 2] if text[at] == "\\" else text[at]
        at += len(mark)
        if mark == "(" and not within and not text.startswith("?", at):
            count += 1
            mark = f"(?P<g{count}>"
        within = mark == "[" or (within and mark != "]")
        parts.append(mark)
    return "".join(parts)


class _PatternReader:
    """One pass over a pattern, character by character."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.names: list[str | None] = []
        self.open: list[bool] = []  # of every open group: does it capture, or hold one that does
        self.captures = False  # whether what a repetition would now repeat captures
        self.repeatable = False

    def read(self) -> str:
        while self.at < len(self.pattern):
            self._step(self._take())
        if self.open:
            raise PatternError("a group is not closed; allowed: a ) for every (")
        return "".join(self.out)

    def _take(self) -> str:
        if self.at >= len(self.pattern):
            raise PatternError("it ends too early; allowed: a complete pattern")
        self.at += 1
        return self.pattern[self.at - 1]

    def _step(self, mark: str) -> None:
        if mark in "*+?{":
            self._repeat(mark)
        elif mark == "(":
            self._open()
        elif mark == ")":
            self._close()
        elif mark in "^$|":
            self._put({"$": r"\z"}.get(mark, mark), repeatable=False)
        elif mark in "]}":
            raise PatternError(f"{mark} stands alone; allowed: \\{mark}")
        else:
            self._put(self._atom(mark))

    def _put(self, text: str, *, repeatable: bool = True, captures: bool = False) -> None:
        self.out.append(text)
        self.repeatable, self.captures = repeatable, captures

    def _atom(self, mark: str) -> str:
        if mark == "[":
            return self._class()
        if mark == ".":
            return r"[^\n]"
        return self._escape(within=False) if mark == "\\" else mark

    def _escape(self, *, within: bool) -> str:
        mark = self._take()
        if mark in _CLASSES:
            return _CLASSES[mark] if within else f"[{_CLASSES[mark]}]"
        if mark.lower() in _CLASSES and not within:
            return f"[^{_CLASSES[mark.lower()]}]"
        if mark in _CONTROLS or (mark.isascii() and not mark.isalnum() and mark.isprintable() and mark != " "):
            return f"\\{mark}"
        raise PatternError(f"\\{mark} is not common; allowed: \\d \\w \\s \\D \\W \\S \\t \\n \\r \\f and signs")

    def _class(self) -> str:
        parts = ["["]
        if self.pattern.startswith("^", self.at):
            parts.append(self._take())
        while (mark := self._take()) != "]":
            if mark == "\\":
                parts.append(self._escape(within=True))
            else:
                parts.append(f"\\{mark}" if mark in "[&^" else mark)
        if parts[-1] in ("[", "^"):
            raise PatternError(r"[] is empty; allowed: at least one character, \] for a bracket")
        return "".join([*parts, "]"])

    def _open(self) -> None:
        if not self.pattern.startswith("?", self.at):
            self._capture(None)
            return
        if self.pattern.startswith("?:", self.at):
            self.at += 2
            self.open.append(False)
            self._put("(?:", repeatable=False)
            return
        end = self.pattern.find(">", self.at)
        name = self.pattern[self.at + 3 : end]
        if not self.pattern.startswith("?P<", self.at) or end < 0 or not _is_name(name):
            raise PatternError("a group begins with (?; allowed: (…), (?:…), (?P<name>…)")
        if name in self.names:
            raise PatternError(f"two groups have the name {name!r}; allowed: each name once")
        self.at = end + 1
        self._capture(name)

    def _capture(self, name: str | None) -> None:
        self.names.append(name)
        self.open.append(True)
        self._put("(", repeatable=False)

    def _close(self) -> None:
        if not self.open:
            raise PatternError(r") closes nothing; allowed: \)")
        captures = self.open.pop()
        if captures and self.open:
            self.open[-1] = True
        self._put(")", captures=captures)

    def _repeat(self, mark: str) -> None:
        if not self.repeatable:
            raise PatternError(f"{mark} repeats nothing; allowed: after a character, a class or a group, \\{mark}")
        text = self._counted() if mark == "{" else mark
        if self.captures and text != "?":
            raise PatternError("a group that captures is repeated; allowed: (?:…), with the captured part around it")
        lazy = self.pattern.startswith("?", self.at)
        self.at += lazy
        self._put(text + "?" * lazy, repeatable=False, captures=self.captures)

    def _counted(self) -> str:
        end = self.pattern.find("}", self.at)
        bounds = self.pattern[self.at : end].split(",") if end >= 0 else []
        numbers = [int(bound) for bound in bounds if bound.isascii() and bound.isdigit()]
        whole = len(numbers) == len(bounds) or (len(bounds) == 2 and len(numbers) == 1 and not bounds[1])
        if not numbers or len(bounds) > 2 or not whole or max(numbers) > MAX_REPEATS or numbers != sorted(numbers):
            raise PatternError(f"a repetition cannot be read; allowed: {{n}}, {{n,}}, {{n,m}} up to {MAX_REPEATS}")
        text = self.pattern[self.at - 1 : end + 1]
        self.at = end + 1
        return text


def _is_name(name: str) -> bool:
    return name.isascii() and name.isidentifier()
