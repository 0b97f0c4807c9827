"""Parts that most pages are laid out of: breadcrumbs, heads, panels, tables, facts, callouts, dialogs, live parts.

Django loads them, with those of `ui` and `static`, into every template: none needs a `{% load %}` for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django import template
from django.forms.utils import flatatt
from django.template.base import render_value_in_context
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from apps.ui.marks import icon
from apps.ui.name_search import name_attributes

register = template.Library()


@register.simple_tag
def static_files(*paths: str) -> SafeString:
    """Style sheets and scripts of a page: `{% static_files "css/fleet.css" "js/fleet.js" %}`."""
    return format_html_join(
        "\n",
        "{}",
        (
            (format_html('<link rel="stylesheet" href="{}">', static(path)),)
            if path.endswith(".css")
            else (format_html('<script src="{}" defer></script>', static(path)),)
            for path in paths
        ),
    )


def _trail(context: template.Context, parts: Sequence[Any]) -> dict[str, list[tuple[Any, str]]]:
    """Breadcrumbs of labels and addresses in turn: `"Fleet" "pages:fleet" "Pools" "pages:pools" pool.name`.

    An address is a URL or the name of a page, of the cluster in the context where the page belongs to one. The last
    label may stand alone.
    """
    pairs = [(parts[n], parts[n + 1] if n + 1 < len(parts) else "") for n in range(0, len(parts), 2)]
    return {"crumbs": [(label, _address(context, str(to))) for label, to in pairs]}


def _address(context: template.Context, to: str, *identities: Any) -> str:
    if "/" in to or not to:
        return to
    cluster = context.get("cluster")
    try:
        return reverse(to, args=[*([cluster.slug] if cluster else []), *identities])
    except NoReverseMatch:
        return reverse(to, args=identities)


@register.simple_tag(name="actions")
@register.simple_tag(name="body")
def parted() -> str:
    """`{% actions %}` in a page's head, `{% body %}` in a panel or table: what stands before belongs to its head."""
    return _PART


_PART = "\0"  # no text has this character


@register.simple_block_tag(takes_context=True)
def page_head(context: template.Context, content: str, title: Any = "", note: Any = "", *trail: Any) -> SafeString:
    """The head of a page: its breadcrumbs (see `_trail`), title, a sentence below, and its actions as content.

    What the content has before `{% actions %}` stands below the title, and in place of it where none is given.
    """
    below, _, beside = content.rpartition(_PART)
    return format_html(
        '<div class="head">\n<div>{}{}{}{}</div>\n{}</div>',
        render_to_string("ui/crumbs.html", _trail(context, trail)) if trail else "",
        format_html("\n<h1>{}</h1>", _shown(context, title)) if title else "",
        format_html("\n<p>{}</p>", _shown(context, note)) if note else "",
        mark_safe(below),
        mark_safe(beside),
    )


@register.simple_block_tag(takes_context=True)
def panel(
    context: template.Context,
    content: str,
    heading: str,
    title: Any = "",
    note: Any = "",
    css: str = "",
    anchor: str = "",
) -> SafeString:
    """A panel under a title: `{% panel "t-load" "Load" facts.when %}…{% endpanel %}`; `heading` is the title's id.

    What the content has before `{% body %}` stands in its header, and in place of the title where none is given.
    """
    beside, _, body = content.rpartition(_PART)
    return format_html(
        '<section class="panel{}" aria-labelledby="{}"{}>\n<header>{}{}{}</header>\n{}</section>',
        f" {css}" if css else "",
        heading,
        format_html(' id="{}"', anchor) if anchor else "",
        format_html('\n<h2 id="{}">{}</h2>', heading, _shown(context, title)) if title else "",
        format_html("\n<p>{}</p>", _shown(context, note)) if note else "",
        mark_safe(beside),
        mark_safe(body),
    )


@register.simple_block_tag(takes_context=True)
def table(
    context: template.Context,
    content: str,
    label: str,
    *columns: Any,
    css: str = "rec",
    caption: str = "",
    box: str = "",
) -> SafeString:
    """A table laid out by hand: `{% table "nodes" "Node" "num:Load" "vh:Actions" %}<tr>…</tr>{% endtable %}`.

    The content is its rows; what it has before `{% body %}` are further headings. A column begins with `num:` where it
    holds numbers, and with `vh:` where its heading is for screen readers alone.
    """
    headings, _, rows = content.rpartition(_PART)
    return format_html(
        '<div class="tw{}" tabindex="0" role="region" aria-label="Table: {}"><table{}>{}<thead><tr>{}{}</tr></thead>'
        "<tbody>{}</tbody></table></div>",
        f" {box}" if box else "",
        label,
        format_html(' class="{}"', css) if css else "",
        format_html('<caption class="vh">{}</caption>', caption) if caption else "",
        format_html_join("", "{}", ((_heading(_shown(context, column)),) for column in columns)),
        mark_safe(headings),
        mark_safe(rows),
    )


def _heading(column: str) -> SafeString:
    if column.startswith("num:"):
        return format_html('\n<th scope="col" class="num">{}</th>', mark_safe(column[4:]))
    if column.startswith("vh:"):
        return format_html('\n<th scope="col"><span class="vh">{}</span></th>', mark_safe(column[3:]))
    return format_html('\n<th scope="col">{}</th>', mark_safe(column))


@register.simple_tag
def options(choices: Iterable[Any], chosen: Any) -> SafeString:
    """The `<option>`s of values, which are told without their underscores, or of pairs of a value and its label;
    `chosen` is selected.
    """
    pairs = [choice if isinstance(choice, tuple) else (choice, str(choice).replace("_", " ")) for choice in choices]
    marked = [(value, mark_safe(" selected" if value == chosen else ""), label) for value, label in pairs]
    return format_html_join("", '<option value="{}"{}>{}</option>', marked)


@register.simple_tag
def copyable(anchor: str, text: Any, label: str = "") -> SafeString:
    """Code with a button that copies it; `label` names the button where a page has several."""
    return format_html(
        '<div class="codewrap"><pre class="code" tabindex="0" id="{}">{}</pre>'
        '<button class="btn tiny copy" type="button" data-copy="{}"{}>Copy</button></div>',
        anchor,
        text,
        anchor,
        format_html(' aria-label="{}"', label) if label else "",
    )


@register.simple_tag(takes_context=True)
def key_stroke(context: template.Context, path: str, colour: str, words: Any, **attributes: str) -> SafeString:
    """An entry of the key below a picture: a stroke in one of the colours of `tokens.css`, and what it means."""
    return format_html(
        '<span><svg viewBox="0 0 22 10" aria-hidden="true"><path d="{}" stroke="var(--{})"{} /></svg> {}</span>',
        path,
        colour,
        _attributes(context, attributes),
        _shown(context, words),
    )


@register.simple_tag(takes_context=True)
def named(context: template.Context, name: Any, url: str) -> SafeString:
    """A name, as a link where there is something to lead to."""
    text = _shown(context, name)
    return format_html('<a class="name" href="{}">{}</a>', url, text) if url else text


@register.simple_tag(takes_context=True)
def fact(context: template.Context, name: Any, value: Any) -> SafeString:
    """One line of a `<dl>`."""
    return format_html("<dt>{}</dt>\n<dd>{}</dd>", _shown(context, name), _shown(context, value))


@register.simple_block_tag
def callout(content: str, tone: str = "", drawing: str = "", role: str = "") -> SafeString:
    """A notice of one paragraph: `{% callout "watch" role="status" %}…{% endcallout %}`."""
    return format_html(
        '<div class="callout{}"{}>{}<p>{}</p></div>',
        f" {tone}" if tone else "",
        format_html(' role="{}"', role) if role else "",
        icon(drawing or tone or "info"),
        mark_safe(content),
    )


@register.simple_block_tag(takes_context=True)
def dialog(context: template.Context, content: str, anchor: str, heading: str, title: Any) -> SafeString:
    """A dialog under a title, with its button that closes it; a button `data-open` with its id opens it."""
    return format_html(
        '<dialog class="dialog" id="{}" aria-labelledby="{}"><header><h2 id="{}">{}</h2>'
        '<button class="btn quiet icon tiny" type="button" data-close aria-label="Close">{}</button></header>'
        "{}</dialog>",
        anchor,
        heading,
        heading,
        _shown(context, title),
        icon("close"),
        mark_safe(content),
    )


@register.simple_block_tag(takes_context=True)
def post(
    context: template.Context, content: str, to: Any = "", *identities: Any, css: str = "", **attributes: Any
) -> SafeString:
    """A form that changes something: `{% post "pages:node-state" node.name css="row" %}…{% endpost %}`.

    `to` is a URL or the name of a page, as in breadcrumbs, with what the page's address has after the cluster; the
    address of the present page where it is empty. `data_confirm="…"` and the like become attributes.
    """
    return format_html(
        '<form method="post"{}{}{}><input type="hidden" name="csrfmiddlewaretoken" value="{}">{}</form>',
        format_html(' class="{}"', css) if css else "",
        format_html(' action="{}"', _address(context, str(to), *identities)) if to else "",
        _attributes(context, attributes),
        context.get("csrf_token"),
        mark_safe(content),
    )


def _attributes(context: template.Context, values: Mapping[str, Any]) -> SafeString:
    """`data_confirm="…"` as ` data-confirm="…"`; True stands for the name alone."""
    named = ((name.replace("_", "-"), value) for name, value in values.items())
    return format_html_join(
        "", "{}", ((f" {n}" if v is True else format_html(' {}="{}"', n, _shown(context, v)),) for n, v in named)
    )


@register.simple_tag(takes_context=True)
def name_search(context: template.Context, of: str) -> SafeString:
    """Attributes of a text field that suggests names of the cluster: `<input … {% name_search "nodes" %}>`."""
    return flatatt(name_attributes(context["cluster"].slug, of))


@register.simple_tag(takes_context=True)
def entry(
    context: template.Context,
    anchor: str,
    name: str,
    label: Any,
    kind: str = "text",
    unit: Any = "",
    hint: Any = "",
    optional: bool = False,
    errors: Iterable[str] = (),
    **attributes: Any,
) -> SafeString:
    """An input that belongs to no Django form: `{% entry "rate" "rate" "Rate" kind="number" unit="events/s" %}`."""
    if hint:
        attributes["aria_describedby"] = f"{anchor}-hint"
    if errors:
        attributes["aria_invalid"] = "true"
    box = format_html(
        '<input type="{}" id="{}" name="{}"{}>',
        kind,
        anchor,
        name,
        _attributes(context, attributes),
    )
    return format_html(
        '<div class="field"><label for="{}">{}{}</label>\n{}\n{}{}</div>',
        anchor,
        _shown(context, label),
        mark_safe('<span class="opt">optional</span>') if optional else "",
        format_html('<span class="unit">{}<span class="muted">{}</span></span>', box, unit) if unit else box,
        format_html('<span class="hint" id="{}-hint">{}</span>', anchor, hint) if hint else "",
        render_to_string("ui/errors.html", {"errors": errors}) if errors else "",
    )


@register.simple_tag(takes_context=True)
def action(
    context: template.Context,
    label: Any,
    to: Any,
    *identities: Any,
    css: str = "btn",
    drawing: str = "",
    **attributes: Any,
) -> SafeString:
    """A button that changes something by itself: `{% action "Stop" "pages:admission-trial-stop" ask.pk %}`."""
    button = format_html(
        '<button class="{}">{}{}</button>', css, icon(drawing) if drawing else "", _shown(context, label)
    )
    return post(context, button, to, *identities, **attributes)


@register.simple_tag(takes_context=True)
def link(
    context: template.Context,
    label: Any,
    to: Any,
    *identities: Any,
    css: str = "btn",
    drawing: str = "",
    **attributes: Any,
) -> SafeString:
    """A link that looks like a button: `{% link "New query" "pages:query-new" css="btn pri" drawing="plus" %}`."""
    return format_html(
        '<a class="{}" href="{}"{}>{}{}</a>',
        css,
        _address(context, str(to), *identities),
        _attributes(context, attributes),
        icon(drawing) if drawing else "",
        _shown(context, label),
    )


@register.simple_tag(takes_context=True)
def live_part(
    context: template.Context, anchor: str, *topics: str, url: str = "", css: str = "live-part stack"
) -> SafeString:
    """Attributes of a part that fetches itself again when a topic changes: `<div {% live_part "forecast" topic %}>`."""
    return format_html(
        'class="{}" id="{}" hx-get="{}" {} hx-select="#{}" hx-swap="outerHTML"',
        css,
        anchor,
        url or context["request"].get_full_path(),
        live(*topics),
        anchor,
    )


@register.simple_tag
def live(*topics: str) -> SafeString:
    """`hx-trigger` for a part that shows these topics: `<div hx-get="…" {% live "jobs" %} hx-swap="outerHTML">`."""
    events = [f"changed:{topic} from:body" for topic in (*topics, "*")]
    return format_html('hx-trigger="{}"', ", ".join(events))


def _shown(context: template.Context, value: Any) -> Any:
    """A value as `{{ value }}` writes it."""
    return mark_safe(render_value_in_context(value, context))
