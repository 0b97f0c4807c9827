"""HTML of a page as tests compare it: without the line breaks and indentation of its templates, and without the
random letters of its forms, in which a short word stands now and then.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["body", "one_line"]

_RANDOM = re.compile(r'((?:"csrfmiddlewaretoken" value=|"X-CSRFToken": )")\w+')
_KEPT = re.compile(r"(<(textarea|pre|script)\b.*?</\2>)", re.DOTALL)
_AT_TAG = re.compile(r"(?<=>)[ \t]*\n\s*|[ \t]*\n[ \t\n]*(?=<)")
_BREAK = re.compile(r"[ \t]*\n[ \t\n]*")


def one_line(html: str) -> str:
    """A break beside a tag is nothing, one inside a text is a blank; what a browser keeps to the letter stays."""
    parts = _KEPT.split(html)
    del parts[2::3]  # names of the kept tags
    parts[::2] = [_BREAK.sub(" ", _AT_TAG.sub("", part)) for part in parts[::2]]
    return "".join(parts)


def body(response: Any) -> str:
    """The page on one line."""
    return one_line(_RANDOM.sub(r"\1", response.content.decode()))
