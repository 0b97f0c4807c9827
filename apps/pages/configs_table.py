"""The list of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.refinement.choices import ConfigOrigin, ConfigState
from apps.refinement.models import RefinedConfig
from apps.ui.icons import icon
from apps.ui.numbers import MISSING
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["CONFIG_MARKS", "config_badge", "configs_table", "made_by"]

#: Drawing, tone.
CONFIG_MARKS: dict[str, tuple[str, str]] = {
    ConfigState.DRAFT: ("assumed", ""),
    ConfigState.REFUSED: ("reject", "bad"),
    ConfigState.ROLLING: ("jobs", "queue"),
    ConfigState.CURRENT: ("ok", "ok"),
    ConfigState.SUPERSEDED: ("undo", ""),
    ConfigState.ROLLED_BACK: ("undo", "bad"),
    ConfigState.STOPPED: ("pause", ""),
}


def config_badge(config: RefinedConfig, css: str = "st") -> SafeString:
    """Shape and word of where it stands."""
    drawing, tone = CONFIG_MARKS.get(config.state, ("unknown", ""))
    label = config.get_state_display()
    return format_html('<span class="{} {}">{}{}</span>', css, tone, icon(drawing), label)


def made_by(config: RefinedConfig) -> str:
    """`Spark`, `Rollback` or who made it by hand."""
    if config.origin == ConfigOrigin.PERSON and config.author is not None:
        return config.author.get_username()
    return str(config.get_origin_display())


def configs_table(
    request: HttpRequest, cluster: Cluster, rows: QuerySet[RefinedConfig], held: Mapping[int, int]
) -> Table:
    """The newest first; `held` counts agents by the version that they have."""
    return Table(
        request,
        _columns(cluster.slug, held),
        rows,
        caption="Configs",
        default_sort="-config",
        filters=_filters(rows),
        search=("words", "author__username"),
        search_label="What it changes",
        file_name=f"configs-{cluster.slug}",
        empty={
            "icon": "tune",
            "title": "No config yet",
            "text": "Spark proposes the first one once it has measured what operators cost at the agents, after about a"
            " thousand records of each. Until then agents find their load factors by themselves.",
        },
    )


def _columns(slug: str, held: Mapping[int, int]) -> list[Column]:
    return [
        Column("config", "Config", lambda row: _named(slug, row), sort="number", csv=lambda row: row.name),
        Column("words", "What it changes", lambda row: row.words or MISSING, csv=lambda row: row.words, full=True),
        Column("origin", "Made by", made_by, sort="origin"),
        Column("state", "State", config_badge, sort="state", csv=lambda row: row.get_state_display()),
        Column(
            "when",
            "Made",
            lambda row: time_tag(row.created_at),
            sort="created_at",
            csv=lambda row: row.created_at,
            high_first=True,
        ),
        Column("held", "Agents on it", lambda row: _held(held, row), csv=lambda row: held.get(row.number, 0), num=True),
    ]


def _held(held: Mapping[int, int], row: Any) -> Any:
    count = held.get(row.number, 0)
    return count or format_html('<span class="muted">{}</span>', "none")


def _named(slug: str, row: RefinedConfig) -> SafeString:
    url = reverse("pages:config", args=[slug, row.number])
    after = format_html(' <small class="muted">after {}</small>', row.parent.name) if row.parent else ""
    return format_html('<span class="nm"><a class="name" href="{}">{}</a>{}</span>', url, row.name, after)


def _filters(rows: QuerySet[RefinedConfig]) -> list[Filter]:
    states = dict(_counted(rows, "state"))
    origins = dict(_counted(rows, "origin"))
    found = []
    if len(states) > 1:
        marks = [(state, *CONFIG_MARKS[state]) for state in ConfigState if states.get(state)]
        choices = [Choice(state.value, str(state.label), states[state], drawing, tone or "muted")
                   for state, drawing, tone in marks]  # fmt: skip
        keep = lambda kept, value: kept.filter(state=value)  # noqa: E731
        found.append(Filter("state", choices, keep, "All", sum(states.values())))
    if len(origins) > 1:
        choices = [Choice(one.value, str(one.label), origins[one]) for one in ConfigOrigin if origins.get(one)]
        keep = lambda kept, value: kept.filter(origin=value)  # noqa: E731
        found.append(Filter("origin", choices, keep, "Anybody's"))
    return found


def _counted(rows: QuerySet[RefinedConfig], field: str) -> list[tuple[str, int]]:
    return list(rows.order_by().values_list(field).annotate(n=Count("pk")))
