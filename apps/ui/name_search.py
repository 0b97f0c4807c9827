"""Fields in which a name is searched for: suggestions as one types, however many names there are."""

from __future__ import annotations

from django.urls import reverse
from django.utils.http import urlencode

__all__ = ["name_attributes"]


def name_attributes(slug: str, of: str) -> dict[str, str]:
    """Attributes of a text field that suggests names of a cluster, which `pages:names` finds by `of`.

    They go into the page's only `<datalist id="names">`, which is that of the field with the focus.
    """
    return {
        "list": "names",
        "autocomplete": "off",
        "spellcheck": "false",
        "hx-get": f"{reverse('pages:names', args=[slug])}?{urlencode({'of': of})}",
        "hx-trigger": "focus, input changed delay:200ms",
        "hx-target": "#names",
        "hx-swap": "innerHTML",
    }
