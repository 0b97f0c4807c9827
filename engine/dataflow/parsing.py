r"""How a parse operation finds the text of its columns: patterns of regular expressions and of key-value pairs."""

from __future__ import annotations

from typing import Any

from engine.dataflow.patterns import PatternError, portable
from engine.errors import Fault
from engine.wording import join, show

__all__ = ["parse_patterns"]

_FIELDS = {"regex": {"pattern"}, "kv": {"separator", "assign"}, "json": set[str]()}


def parse_patterns(kept: dict[str, Any], path: str, faults: list[Fault]) -> tuple[tuple[str, int], ...]:
    """For every column of `into`, in the order of the alphabet, a pattern and the group with its text."""
    form = kept["as"]
    given = {"pattern", "separator", "assign"} & set(kept)
    faults.extend(
        Fault(join(path, name), f"{name} is {show(kept[name])}; allowed: not with as {form!r}")
        for name in sorted(given - _FIELDS[form])
    )
    names = sorted(kept["into"])
    if form == "kv":
        return tuple((_pair(name, kept), 1) for name in names)
    return _groups(names, kept, path, faults) if form == "regex" else ()


def _pair(name: str, kept: dict[str, Any]) -> str:
    """A key at the beginning or behind a separator, and its value up to the next separator."""
    separator, assign = kept.get("separator", " "), kept.get("assign", "=")
    sign = {"\t": r"\t", "|": r"\|"}.get(separator, separator)
    return portable(f"(?:^|{sign}){name}{assign}([^{sign}]*)").text


def _groups(names: list[str], kept: dict[str, Any], path: str, faults: list[Fault]) -> tuple[tuple[str, int], ...]:
    at = join(path, "pattern")
    if "pattern" not in kept:
        faults.append(Fault(at, "pattern is missing; a parse as 'regex' needs it"))
        return ()
    try:
        pattern, groups = portable(kept["pattern"])
    except PatternError as error:
        faults.append(Fault(at, f"pattern is {show(kept['pattern'])}: {error}"))
        return ()
    if missing := [name for name in names if name not in groups]:
        named = ", ".join(name for name in groups if name) or "none"
        text = f"pattern is {show(kept['pattern'])} with the named groups {named}; allowed: also {', '.join(missing)}"
        faults.append(Fault(at, text))
        return ()
    return tuple((pattern, groups.index(name) + 1) for name in names)
