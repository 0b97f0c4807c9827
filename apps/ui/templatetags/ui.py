"""`{% load ui %}`: icons, marks, numbers, times, pictures, charts, fields, REST blocks, live parts."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

from django import template
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe

from apps.ui import marks, numbers, pictures, tables, times
from apps.ui import marks as ui_marks
from apps.ui.svg.axes import span_words, strip_axis
from engine.words import counted, listed, statistic_words

register = template.Library()

# -- shapes and words
register.simple_tag(ui_marks.icon, name="icon")
register.simple_tag(marks.state_mark, name="state")
register.simple_tag(marks.expected_mark, name="expected")
register.simple_tag(marks.expected_icon, name="expected_icon")
register.simple_tag(marks.verdict_badge, name="verdict")
register.simple_tag(marks.evidence_mark, name="evidence")
register.simple_tag(marks.verdict_icon, name="verdict_icon")
register.simple_tag(marks.state_badge, name="state_badge")
register.simple_tag(marks.state_icon, name="state_icon")
register.filter("tone", marks.tone)

# -- pictures
register.simple_tag(pictures.headroom_bar, name="headroom_bar")
register.simple_tag(pictures.before_after_bar, name="before_after_bar")
register.simple_tag(pictures.sparkline, name="sparkline")
register.simple_tag(pictures.heat_strip, name="heat_strip")
register.simple_tag(pictures.load_bar, name="load_bar")
register.simple_tag(pictures.share_bar, name="share_bar")
register.simple_tag(strip_axis)
register.simple_tag(span_words)

# -- numbers: `{{ x|seconds }}` has the unit set smaller, `{{ x|seconds_text }}` is plain text
for _name, _function in {
    "seconds": numbers.seconds,
    "percent": numbers.percent,
    "rate": numbers.rate,
    "cps": numbers.cps,
    "bytes": numbers.bytes_size,
    "byte_rate": numbers.byte_rate,
    "factor": numbers.factor,
    "scaled": numbers.scaled,
}.items():
    register.filter(_name, lambda value, function=_function: function(value).html)
    register.filter(f"{_name}_text", lambda value, function=_function: str(function(value)))
register.filter("number", numbers.significant)
register.filter("count", numbers.count)
register.filter("ratio", numbers.ratio)
register.filter("money", numbers.money)
register.filter("statistic", statistic_words)


@register.filter(name="counted")
def counted_noun(number: int, nouns: str) -> str:
    """`{{ n|counted:"node" }}` or `{{ n|counted:"query,queries" }}`: a number with its noun."""
    return counted(number, *nouns.split(","))


@register.filter(name="listed")
def listed_names(names: Sequence[str], most: int = 3) -> str:
    """`{{ names|listed }}`: a, b and 4 more; `{{ names|listed:5 }}` names more of them."""
    return listed(names, most)


@register.filter
def coded(text: Any) -> SafeString:
    """`{{ field.help_text|coded }}`: what stands between backquotes as code."""
    parts = conditional_escape(text).split("`")
    return mark_safe("".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)))


@register.filter
def plain(value: str) -> str:
    """`{{ source.kind|plain }}`: `log file` of a value that documents write `log_file`."""
    return value.replace("_", " ")


# -- times
register.filter("clock", times.clock_time)
register.filter("exact", times.exact)


@register.filter
def when(moment: Any) -> SafeString:
    """`{{ job.created_at|when }}`: 22 min ago, with the exact time as its title."""
    return times.time_tag(moment)


@register.filter
def at(moment: Any) -> SafeString:
    """`{{ preview.valid_until|at }}`: 14:44, or 17 Nov, 10:41."""
    return times.time_tag(moment, relative=False)


@register.filter
def big(quantity: numbers.Quantity) -> SafeString:
    """A Quantity for a stat strip: the unit in <small>."""
    if not isinstance(quantity, numbers.Quantity):
        return format_html("{}", quantity)
    return format_html("{} <small>{}</small>", quantity.text, quantity.unit) if quantity.unit else quantity.html


@register.simple_tag
def seconds_against(value: Any, bound: Any) -> SafeString:
    """A latency with enough digits to tell it from its objective."""
    return numbers.seconds(value, apart_from=bound).html


@register.simple_tag
def chart_key(entries: list[tuple[str, str]]) -> SafeString:
    """The key below a picture from [(kind, words), …]."""
    return format_html('<div class="key">{}</div>', pictures.legend(*entries))


# -- texts
@register.simple_block_tag
def placeholder(
    content: str, icon: str, title: str, url: str = "", action: str = "", action_icon: str = ""
) -> SafeString:
    """Text in place of an empty list: `{% placeholder "key" "No tokens yet" %}…{% endplaceholder %}`.

    With `url`, a button `action` that leads there.
    """
    empty = {"icon": icon, "title": title, "text": mark_safe(content.strip())}
    return render_to_string(
        "ui/empty.html", {"empty": {**empty, "url": url, "action": action, "action_icon": action_icon}}
    )


@register.inclusion_tag("ui/errors.html")
def errors(bound: Any) -> dict[str, object]:
    """The faults of one field, where its parts are laid out by hand."""
    return {"errors": bound.errors}


# -- frame
@register.simple_tag
def page_url(name: str, *args: Any, **kwargs: Any) -> str:
    """The address of a named page; empty if there is no such page, so that a link can be left out."""
    try:
        return reverse(name, args=args or None, kwargs=kwargs or None)
    except NoReverseMatch:
        return ""


@register.filter
def topic(identity: Any, kind: str) -> str:
    """`{{ job.pk|topic:"job" }}`: the name under which changes of a thing are announced."""
    return f"{kind}:{identity}"


@register.simple_tag(takes_context=True)
def with_query(context: template.Context, **changes: Any) -> str:
    """The present address with query parameters changed."""
    return tables.address(context["request"], **changes)


@register.inclusion_tag("ui/rest.html", takes_context=True)
def rest(context: template.Context, method: str, *parts: Any, body: Any = None, extra: str = "") -> dict[str, str]:
    """The REST call behind the page, ready to copy: `{% rest "GET" "/api/v1/jobs/" job.pk %}`.

    `body` is put in as JSON; `extra` is a further curl option.
    """
    path = "".join(str(part) for part in parts)
    request: HttpRequest | None = context.get("request")
    base = request.build_absolute_uri("/").rstrip("/") if request else ""
    lines = ["-s" if method == "GET" else f"-s -X {method}", '-H "Authorization: Bearer $SLUICE_TOKEN"']
    if body is not None:
        lines.append('-H "Content-Type: application/json"')
        lines.append("-d " + _quoted(json.dumps(body, ensure_ascii=False)))
    if extra:
        lines.append(extra)
    lines.append(f'"{base}{path}"')
    name = f"rest-{zlib.crc32(f'{method} {path}'.encode()):08x}"
    return {"method": method, "path": path, "lines": " \\\n  ".join(lines), "id": name}


def _quoted(text: str) -> str:
    """A shell word in single quotes."""
    return "'" + text.replace("'", "'\\''") + "'"


# -- forms
@register.inclusion_tag("ui/field.html")
def field(bound: Any, unit: str = "", wide: bool = False, origin: str = "") -> dict[str, object]:
    """One field: label above, hint below, then what is wrong. `origin` is the evidence of what stands in it."""
    kind = getattr(bound.field.widget, "input_type", "")
    initial = bound.form.initial.get(bound.name)
    if isinstance(initial, float) and initial.is_integer():
        bound.form.initial[bound.name] = int(initial)  # 60, not 60.0
    return {
        "field": bound,
        "unit": unit,
        "wide": wide,
        "origin": origin,
        "is_check": kind == "checkbox" and not hasattr(bound.field, "choices"),
    }


@register.inclusion_tag("ui/faults.html")
def form_faults(form: Any) -> dict[str, list[tuple[Any, str]]]:
    """Everything wrong with a form, on top of it, each entry leading to its field."""
    entries = [(None, message) for message in form.non_field_errors()]
    for bound in form:
        entries += [(bound, message) for message in bound.errors]
    return {"entries": entries}
