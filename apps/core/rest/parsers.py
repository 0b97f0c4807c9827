"""JSON as requests may carry it: strict, with the line and column of what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import accumulate
from typing import IO, Any

from rest_framework.parsers import BaseParser

from apps.core.body_sizes import DOCUMENT, oversize, size_of_view
from apps.core.errors import Malformed, TooLarge
from apps.core.limits import MAX_JSON_DEPTH

__all__ = ["SizedParser", "StrictJSONParser", "check_shape", "strict_json"]

# PostgreSQL stores no text with a zero character. An even number of backslashes before it is text about escapes.
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# Escapes from here on stand in pairs for one character; a single one is no text, and nothing can store or show it.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BRACKETS = b"[]{}"
_ALL_BUT_BRACKETS = bytes(byte for byte in range(256) if byte not in _BRACKETS)


def strict_json(data: bytes, max_values: int = DOCUMENT.max_values) -> Any:
    """Parse UTF-8 JSON; NaN, Infinity, huge numbers, duplicate keys and nesting beyond `MAX_JSON_DEPTH` are refused."""
    check_shape(data, max_values)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"The body is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}.") from None
    zero = _ZERO.search(text)
    if zero:
        raise Malformed(f"The body holds a text with a zero character{_place(text[: zero.end()], zero[0])}.")
    try:
        value = json.loads(
            text, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole, object_pairs_hook=_no_duplicates
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise Malformed(f"The body is not JSON: {error.msg} at {place}.", [("", f"{error.msg} at {place}")]) from None
    except _Refused as error:
        raise Malformed(f"The body is not JSON: {error}{_place(text, error.needle)}.") from None
    if _HALF.search(text):
        _check_characters(value)
    return value


def _check_characters(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise Malformed(f"The body holds half of a character: {half} has no partner.") from None


class _Refused(ValueError):
    """Something Python reads but JSON or we do not allow; `needle` is searched for to name its place."""

    def __init__(self, message: str, needle: str) -> None:
        super().__init__(message)
        self.needle = needle


def _no_constant(name: str) -> Any:
    raise _Refused(f"{name} is not a number of JSON", name)


def _finite(text: str) -> float:
    value = float(text)
    if value in {float("inf"), float("-inf")}:
        raise _Refused(f"{text} is too large a number", text)
    return value


def _whole(text: str) -> int:
    if len(text) > 20:
        raise _Refused(f"{text[:20]}… is too large a number", text)
    return int(text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values:
            raise _Refused(f'the key "{key}" stands twice in one object', json.dumps(key, ensure_ascii=False))
        values[key] = value
    return values


def _place(text: str, needle: str) -> str:
    """Line and column of the last `needle`; a doubled key is its own last occurrence in all but contrived bodies."""
    position = text.rfind(needle)
    if position < 0:
        return ""
    return f" at line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def check_shape(data: bytes, max_values: int) -> None:
    """Count values and nesting before parsing, which takes far longer and a hundred times the memory.

    Raises
    ------
    TooLarge
        More values than `max_values`; each object, array and part of one counts.
    Malformed
        Nesting beyond `MAX_JSON_DEPTH`, so that no parser's recursion limit is ever reached.
    """
    values, openings = _count_values(data)
    if values > max_values or openings > MAX_JSON_DEPTH:
        bare = _TEXT.sub(b"", data)  # what stands in texts counts for nothing
        values, _ = _count_values(bare)
        if values > max_values:
            raise TooLarge(f"The body holds {values:,} values of JSON; at most {max_values:,} are taken here.")
        steps = bare.translate(None, _ALL_BUT_BRACKETS)
        if max(accumulate(1 if step in b"[{" else -1 for step in steps), default=0) > MAX_JSON_DEPTH:
            raise Malformed(f"The body nests deeper than {MAX_JSON_DEPTH} levels at line {_deep_line(data)}.")


def _count_values(data: bytes) -> tuple[int, int]:
    openings = data.count(b"[") + data.count(b"{")
    return data.count(b",") + openings + 1, openings


def _deep_line(data: bytes) -> int:
    depth = 0
    for token in re.finditer(_TEXT.pattern + rb"|[\[\]{}]", data, re.DOTALL):
        depth += {b"[": 1, b"{": 1, b"]": -1, b"}": -1}.get(token[0], 0)
        if depth > MAX_JSON_DEPTH:
            return data.count(b"\n", 0, token.start()) + 1
    return 1


class SizedParser(BaseParser):
    """Reads a body up to the size that its view names (`apps.core.body_sizes`)."""

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        context = parser_context or {}
        size = size_of_view(context["view"], context["request"].method or "")
        data = stream.read(size.text_bytes + 1)
        refusal = oversize(len(data), size.text_bytes)
        if refusal is not None:
            raise refusal
        return self.read(data, size.max_values)

    def read(self, data: bytes, max_values: int) -> Any:
        """The value of a body."""
        return data


class StrictJSONParser(SizedParser):
    """`application/json` for REST framework."""

    media_type = "application/json"

    def read(self, data: bytes, max_values: int) -> Any:
        return strict_json(data, max_values)
