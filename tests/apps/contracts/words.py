"""Faults in what a page says: one quantity in two spellings, words of the program in sentences, holes in templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from html.parser import HTMLParser
from itertools import combinations

from apps.ui.marks import EVIDENCE, STATES, VERDICTS

__all__ = ["faults_of", "text_lines"]

#: Elements within a line; every other begins one.
_INLINE = frozenset(
    {"a", "abbr", "b", "code", "em", "i", "kbd", "small", "span", "strong", "sub", "sup", "time", "wbr"}
)
_SILENT = frozenset({"script", "style", "template"})
_VERBATIM = frozenset({"code", "kbd", "pre", "samp", "textarea"})  # stands for itself: names, documents, commands
_SPOKEN = ("title", "aria-label", "placeholder", "alt")
_CODE = "␣"  # in place of what stands for itself


class _Text(HTMLParser):
    """Lines as they are read, one for each block, and those of attributes that are shown or spoken."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = [""]
        self.spoken: list[str] = []
        self._silent = self._verbatim = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.spoken += [text for name in _SPOKEN if (text := given.get(name))]
        self._silent += tag in _SILENT
        if tag in _VERBATIM:
            self._verbatim += 1
            self.lines[-1] += _CODE
        if tag not in _INLINE:
            self.lines.append("")
        if tag == "span" and given.get("class") == "u":  # a unit, which stands off by its margin
            self.lines[-1] += " "

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in _SILENT
        self._verbatim -= tag in _VERBATIM
        if tag not in _INLINE:
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        if not self._silent and not self._verbatim:
            self.lines[-1] += data


def text_lines(html: str) -> list[str]:
    """Texts of a page or of a part of one."""
    reader = _Text()
    reader.feed(html)
    return [line for text in reader.lines + reader.spoken if (line := re.sub(r"\s+", " ", text).strip())]


_NUMBER = r"(?<![\w.,:/#+-])(\d[\d,]*(?:\.\d+)?) "
#: Units of a kind, by what they are worth.
_TIMES = {"µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "days": 86_400.0}
_UNITS = (
    _TIMES,
    {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    {"/s": 1.0, "k/s": 1e3, "M/s": 1e6, "G/s": 1e9, "events/s": 1.0},
    {"B/s": 1.0, "kB/s": 1e3, "MB/s": 1e6, "GB/s": 1e9},
)
_LARGEST = 1e12  # what is more stands for no end
_AMOUNT = rf"{_NUMBER}({'|'.join(_TIMES)})\b"
#: Ages and spans of two units are of another kind than latencies.
_SPAN = re.compile(r"(\d+ days? )?\d+ h \d+ min|\d+ days? \d+ h|\d+ \w+ (ago|later)\b|\bin \d+ (min|h)\b")


def _spellings(lines: Sequence[str]) -> Iterator[str]:
    """6.4 ms beside 0.0064 s, and 49.5 ms beside 0.05 s."""
    text = _SPAN.sub(" ", "\n".join(lines))
    for units in _UNITS:
        names = "|".join(sorted(map(re.escape, units), key=len, reverse=True))
        found = {match[0]: match for match in re.finditer(rf"{_NUMBER}({names})(?![\w/²])", text)}
        for pair in combinations(found.values(), 2):
            (one, one_end), (other, other_end) = (_rounded(match[1], units[match[2]]) for match in pair)
            is_near = abs(one - other) <= max(one_end, other_end) and 0.9 * one < other < min(1.1 * one, _LARGEST)
            if is_near and pair[0][2] != pair[1][2]:
                yield f"{pair[0][0]} beside {pair[1][0]}"


def _rounded(text: str, unit: float) -> tuple[float, float]:
    """Worth of a number, and by how much it may be rounded."""
    decimals = len(text.partition(".")[2])
    return float(text.replace(",", "")) * unit, 0.50005 * 10.0**-decimals * unit


def _bounds(lines: Sequence[str]) -> Iterator[str]:
    """66.5 min of its 60 s, and up to 5.5 s of 4.2 s."""
    for line in lines:
        for match in re.finditer(rf"{_AMOUNT}(?: \[[^]]*\])? of (?:its |their |the |an? )?{_AMOUNT}", line):
            value, bound = (_rounded(match[k], _TIMES[match[k + 1]])[0] for k in (1, 3))
            if value > bound:
                yield match[0]


_NOUNS = "node|operator|agent|window|hour|day|record|event|core|objective|source|second|minute"
_LABELS = {key for marks in (STATES, VERDICTS, EVIDENCE) for key in marks if "_" in key}
_PATTERNS = {
    "a word of the program": r"(?<![\w/.$&{<-])[a-z]+(?:_[a-z0-9]+)+(?![\w/.(=]).* |.* [a-z]+(?:_[a-z0-9]+)+[.,;:]?$",
    "a time as programs write it": r"(?<!such as )(?<! or )\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d",
    "a quantile as programs write it": r"\bq0\.\d",
    "one of many": rf"(?<![\w.,:#-])(?<!ersion )(?<! to )1 (?:(?:{_NOUNS})s|queries)\b",
    "many of one": rf"(?<![\w.,:#-])(?:[2-9]|[1-9]\d+) (?:{_NOUNS}|query)\b(?!-)",
    "no value": r"(?:^|[ (:,→])(?:None(?=$|[.;:)])|nan|NaN|-?inf|-?Infinity|undefined|True|False)(?=$|[ .,;:)])",
    "a hole in a template": r"\{\{|\{%|\}\}|%\}|%\([a-z_]+\)|\{[a-z_]+(?::[^}]*)?\}",
    "a hole in a sentence": r"\w [.;:](?= |$)|\w\.\.(?= |$)|,,|, ?\.(?= |$)|\( ?\)",
    "steps of the grid": r"\bsubintervals? \d",
    "a number as programs write it": r"\b\d(?:\.\d+)?e[+-]\d|\d\.\d{7,}",
    "a sentence that begins small": r"[a-z0-9)]\. (?:core \d|the link from) ",
}


def _pattern(pattern: str) -> Callable[[Sequence[str]], Iterator[str]]:
    compiled = re.compile(pattern)
    return lambda lines: (line for line in lines if compiled.search(line))


def _two_words(lines: Sequence[str]) -> Iterator[str]:
    """`at_risk`, where people read At risk."""
    return (line for line in lines if line in _LABELS)


_RULES: dict[str, Callable[[Sequence[str]], Iterator[str]]] = {
    "one quantity in two spellings": _spellings,
    "over its bound without a word": _bounds,
    "a state as programs write it": _two_words,
    **{name: _pattern(pattern) for name, pattern in _PATTERNS.items()},
}


def faults_of(html: str, names: Collection[str] = ()) -> list[str]:
    """Faults in the words of a page, each with the rule that it breaks; `names` are words of its users."""
    known = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b" if names else "$^")
    lines = [known.sub(_CODE, line) for line in text_lines(html)]
    return [f"{rule}: {fault}" for rule, find in _RULES.items() for fault in dict.fromkeys(find(lines))]
