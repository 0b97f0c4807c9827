"""Sentences of the console: each a template of whole sentences, so that they can be read and changed as a whole."""

from __future__ import annotations

import re
from typing import Any

from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

from engine.words import server_words

__all__ = ["sentence", "server_tag"]

_BREAKS = re.compile(r"[ \n]+")  # not unbroken spaces


def sentence(template: str, **facts: Any) -> SafeString:
    """The template's text on one line."""
    return mark_safe(_BREAKS.sub(" ", render_to_string(template, facts)).strip())


def server_tag(server: str) -> SafeString:
    """A server by its short name, n1#2, for dense tables; its title says it in words: Core 2 of n1."""
    words, short = server_words(server, begins=True), server.replace("->", " → ")
    return format_html('<span title="{}">{}</span>', words, short) if words != server else format_html("{}", server)
