"""Sentences of the console: each a template of whole sentences, so that they can be read and changed as a whole."""

from __future__ import annotations

import re
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import SafeString, mark_safe

__all__ = ["sentence"]

_BREAKS = re.compile(r"[ \n]+")  # not unbroken spaces


def sentence(template: str, **facts: Any) -> SafeString:
    """The template's text on one line."""
    return mark_safe(_BREAKS.sub(" ", render_to_string(template, facts)).strip())
