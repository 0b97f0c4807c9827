"""JSON as requests may carry it: strict, with the line and column of what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.parsers import BaseParser

from apps.core.errors import Malformed, TooLarge
from apps.core.limits import MAX_JSON_DEPTH

__all__ = ["StrictJSONParser", "strict_json"]

# PostgreSQL stores no text with a zero character. An even number of backslashes before it is text about escapes.
_ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
# Escapes from here on stand in pairs for one character; a single one is no text, and nothing can store or show it.
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def strict_json(data: bytes) -> Any:
    """Parse UTF-8 JSON; NaN, Infinity, huge numbers, duplicate keys and nesting beyond `MAX_JSON_DEPTH` are refused."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"The body is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}.") from None
    _check_depth(text)
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


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
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


def _check_depth(text: str) -> None:
    """Nesting is counted before parsing, so that no parser's recursion limit is ever reached."""
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return
    depth, inside, escaped = 0, False, False
    for position, letter in enumerate(text):
        if inside:
            if escaped:
                escaped = False
            elif letter == "\\":
                escaped = True
            elif letter == '"':
                inside = False
        elif letter == '"':
            inside = True
        elif letter in "[{":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                line = text.count("\n", 0, position) + 1
                raise Malformed(f"The body nests deeper than {MAX_JSON_DEPTH} levels at line {line}.")
        elif letter in "]}":
            depth -= 1


class StrictJSONParser(BaseParser):
    """`application/json` for REST framework, limited to `UPLOAD_MAX_BYTES`; `read` parses the bytes."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        limit = settings.UPLOAD_MAX_BYTES
        data = stream.read(limit + 1)
        if len(data) > limit:
            raise TooLarge(f"The body is larger than {limit / 1e6:g} MB.")
        return self.read(data)

    @staticmethod
    def read(data: bytes) -> Any:
        """The value of a body."""
        return strict_json(data)
