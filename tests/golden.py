"""Golden records: whole answers as they were recorded, so that a change of one byte shows as a diff.

A record is a folder: `digests.json` has a digest of each answer, which shows in a commit what has changed, and a file
`PART.xz` the answers themselves. `RECORD_GOLDEN=1` writes them anew; an answer changes on purpose.

Last digits of floating point depend on the processor: its vector instructions add in an order of their own. On another
one than that of the record, numbers count as equal within 1e-9, and everything else as it is.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import lzma
import math
import os
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from llvmlite.binding import get_host_cpu_name

__all__ = ["GoldenRecord", "is_recording"]

_MACHINE = "recorded on"
_SHOWN_ANSWERS, _SHOWN_LINES = 5, 60
_TOLERANCE = 1e-9


def is_recording() -> bool:
    """Whether records are written anew."""
    return os.environ.get("RECORD_GOLDEN") == "1"


class GoldenRecord:
    """Answers by part and name, each a list of lines of JSON or of text; kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._digests = folder, folder / "digests.json"

    def check(self, part: str, answers: Mapping[str, list[str]], *, in_common: bool = False) -> None:
        """Compare the answers of one part, or record them; with `in_common` those alone that both sides have.

        Raises
        ------
        AssertionError
            They differ from what was recorded; with a readable diff of the first ones.
        """
        digests = {name: _digest(lines) for name, lines in answers.items()}
        recorded = json.loads(self._digests.read_text()) if self._digests.exists() else {}
        known = recorded.get(part, {})
        if is_recording():
            if digests != {name: digest for name, digest in known.items() if name != _MACHINE}:
                self._write(part, answers, recorded | {part: {_MACHINE: _machine(), **digests}})
            return
        machine = known.pop(_MACHINE, "")
        if in_common:
            digests, known = ({name: one[name] for name in one if name in other}
                              for one, other in ((digests, known), (known, digests)))  # fmt: skip
        others = ", ".join(sorted(digests.keys() ^ known.keys()))
        assert not others, f"recorded alone, or answered alone: {others}; RECORD_GOLDEN=1 records what is answered"
        if digests == known:
            return
        tolerance = 0.0 if machine == _machine() else _TOLERANCE
        before = self.answers(part)
        changed = [name for name in known if not _same(before[name], answers[name], tolerance)]
        shown = [line for name in changed[:_SHOWN_ANSWERS] for line in _difference(name, before[name], answers[name])]
        assert not changed, "\n".join([f"{len(changed)} answers are not as recorded: {', '.join(changed)}", *shown])

    def parts(self) -> set[str]:
        """Names of the recorded parts, by their files."""
        return {file.stem for file in self._folder.glob("*.xz")}

    def answers(self, part: str) -> dict[str, list[str]]:
        """The recorded answers of one part."""
        answers: dict[str, list[str]] = json.loads(lzma.decompress(self._file(part).read_bytes()))
        return answers

    def _write(self, part: str, answers: Mapping[str, list[str]], digests: Mapping[str, Any]) -> None:
        self._folder.mkdir(exist_ok=True)
        self._digests.write_text(json.dumps(dict(sorted(digests.items())), indent=1) + "\n")
        text = json.dumps(answers, indent=0, ensure_ascii=False)
        self._file(part).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))

    def _file(self, part: str) -> Path:
        return self._folder / f"{part}.xz"


def _machine() -> str:
    return f"{platform.machine()} {get_host_cpu_name()}"


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _same(before: list[str], after: list[str], tolerance: float) -> bool:
    if not tolerance or len(before) != len(after):
        return before == after
    return all(_close(_value(one), _value(other), tolerance) for one, other in zip(before, after, strict=True))


def _value(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return line


def _close(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_close(one[key], other[key], tolerance) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_close(a, b, tolerance) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=tolerance, abs_tol=tolerance)
    return type(one) is type(other) and bool(one == other)


def _difference(name: str, before: list[str], after: list[str]) -> Iterator[str]:
    texts = [[row for line in lines for row in _pretty(line)] for lines in (before, after)]
    rows = list(difflib.unified_diff(*texts, f"recorded {name}", f"answered {name}", n=2, lineterm=""))
    yield from rows[:_SHOWN_LINES]
    if len(rows) > _SHOWN_LINES:
        yield f"... and {len(rows) - _SHOWN_LINES} lines more"


def _pretty(line: str) -> list[str]:
    value = _value(line)
    return [line] if value is line else json.dumps(value, indent=1, ensure_ascii=False).splitlines()
