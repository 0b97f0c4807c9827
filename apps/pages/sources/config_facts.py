"""Facts of configs: the table, one config in words, its check on recorded traffic, its rollout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from django.db.models import Count, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.saved_views.bar import open_views
from apps.rollouts.config_selectors import ConfigView, PartView
from apps.rollouts.models import ConfigOrigin, ConfigState, RefinedConfig
from apps.rollouts.predictions import ConfigCheck, QueryCheck, config_check_of
from apps.saved_views.models import SavedList
from apps.ui.marks import icon
from apps.ui.numbers import MISSING, bytes_size, count, percent, ratio, seconds, significant
from apps.ui.record_forms import setting_words
from apps.ui.sentences import sentence
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.jarvis.refined_config import OperatorPrior
from engine.jarvis.settings import AdaptationSettings
from engine.klink.settings import ScheduleSettings
from engine.records import record_fields
from engine.words import counted

__all__ = ["CheckPanel", "ConfigPanel", "configs_sentence", "configs_table"]

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
        search_label="Description",
        views=open_views(request, SavedList.CONFIGS),
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
        Column("words", "Description", lambda row: row.words or MISSING, csv=lambda row: row.words, full=True),
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
    filters = []
    if len(states) > 1:
        marks = [(state, *CONFIG_MARKS[state]) for state in ConfigState if states.get(state)]
        choices = [Choice(state.value, str(state.label), states[state], drawing, tone or "muted")
                   for state, drawing, tone in marks]  # fmt: skip
        keep = lambda kept, value: kept.filter(state=value)  # noqa: E731
        filters.append(Filter("state", choices, keep, "All", sum(states.values())))
    if len(origins) > 1:
        choices = [
            Choice(origin.value, str(origin.label), origins[origin]) for origin in ConfigOrigin if origins.get(origin)
        ]
        keep = lambda kept, value: kept.filter(origin=value)  # noqa: E731
        filters.append(Filter("origin", choices, keep, "Anybody's"))
    return filters


def _counted(rows: QuerySet[RefinedConfig], field: str) -> list[tuple[str, int]]:
    return list(rows.order_by().values_list(field).annotate(n=Count("pk")))


_MAX_PARTS = 60
_SETTINGS = set(record_fields(AdaptationSettings))


def configs_sentence(held: Mapping[int, int]) -> SafeString:
    """`40 of 46 agents have c-119, 5 an older one, 1 none.`"""
    newest = max(held, default=0)
    total, none, newest_held = sum(held.values()), held.get(0, 0), held.get(newest, 0)
    return sentence(
        "pages/sources/sentences/configs.html",
        total=total,
        none=none,
        newest=newest,
        newest_held=newest_held,
        older=total - none - newest_held,
    )


class CheckPanel:
    """Check of a config on recorded epochs."""

    def __init__(self, checked: ConfigCheck | None) -> None:
        self.checked = checked

    def __bool__(self) -> bool:
        return self.checked is not None

    @property
    def health(self) -> str:
        return self.checked.health if self.checked else ""

    @property
    def is_worse(self) -> bool:
        return self.health == "worse"

    @property
    def tone(self) -> str:
        return {"good": "ok", "worse": "bad"}.get(self.health, "")

    @property
    def drawing(self) -> str:
        return {"good": "ok", "worse": "reject"}.get(self.health, "unknown")

    @property
    def badge(self) -> str:
        return {"good": "Within the limits", "worse": "Worse than allowed"}.get(self.health, "Nothing to check it on")

    @property
    def reasons(self) -> tuple[str, ...]:
        return self.checked.reasons if self.checked else ()

    @property
    def rows(self) -> list[dict[str, object]]:
        """A line for each query, before and after."""
        return [self._row(query, check) for query, check in self.checked.queries.items()] if self.checked else []

    def _row(self, query: str, check: QueryCheck) -> dict[str, object]:
        return {
            "query": query,
            "agents": check.agents,
            "bytes": f"{bytes_size(check.bytes_before)} → {bytes_size(check.bytes_after)}",
            "bytes_rel": _signed(check.bytes_rel),
            "is_less": (check.bytes_rel or 0.0) < 0,
            "cpu": f"{seconds(check.cpu_before_s)} → {seconds(check.cpu_after_s)}",
            "overflow": f"{_plus(check.overflow_pp)} points",
        }

    @property
    def basis(self) -> str:
        if self.checked is None:
            return ""
        epochs, parts = counted(self.checked.epochs, "recorded epoch"), counted(self.checked.parts, "part")
        return f"Replayed on {epochs} of {self.checked.predicted_parts} of {parts}."


@dataclass(frozen=True)
class ConfigPart:
    """Part of a config for a query at an agent."""

    view: PartView

    @property
    def title(self) -> str:
        return f"{self.view.query} at {self.view.agent}"

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """Of what it holds of the operators; settings are the configuration's."""
        return [row for row in self.view.changes if row[0] not in _SETTINGS]

    @property
    def operators(self) -> list[dict[str, str]]:
        """A line for each, with the evidence behind it."""
        refined = self.view.refined
        factors = refined.plan_prior.load_factors if refined.plan_prior else ()
        return [_operator(*each) for each in zip_longest(refined.operators, factors)]

    @property
    def fitted(self) -> str:
        """`Seen at 40 to 120 records an epoch and 0.1 to 0.4 cores.`"""
        fitted = self.view.refined.fitted
        if fitted is None:
            return ""
        (low, high), (cores_low, cores_high) = fitted.records, fitted.cores
        cores = (
            f"{ratio(cores_low)} to {ratio(cores_high)} cores"
            if cores_low != cores_high
            else f"{ratio(cores_low)} cores"
        )
        return f"Seen at {count(low)} to {count(high)} records an epoch and {cores}."


def _operator(prior: OperatorPrior, factor: float | None) -> dict[str, str]:
    cost = str(seconds(prior.cost_s))
    return {
        "id": prior.id,
        "cost": cost if prior.standard_error is None else f"{cost} ± {percent(prior.standard_error)}",
        "group_cost": MISSING if prior.group_cost_s is None else str(seconds(prior.group_cost_s)),
        "groups": MISSING if prior.groups is None else count(prior.groups),
        "relay": significant(prior.relay),
        "records": count(prior.records),
        "factor": ratio(factor),
    }


def _plus(value: Any) -> str:
    number = float(value or 0.0)
    text = significant(abs(number)) if abs(number) >= 0.005 else "0"
    return text if text == "0" else f"{'+' if number > 0 else '−'}{text}"


def _signed(share: Any) -> str:
    if share is None:
        return MISSING
    text = str(percent(abs(share)))
    return text if text == "0%" else f"{'+' if share > 0 else '−'}{text}"


def _scheduling(name: str, before: str, after: str) -> tuple[str, str, str]:
    """A setting of scheduling as people read it."""
    label, now = setting_words(ScheduleSettings, name, after)
    return label, setting_words(ScheduleSettings, name, before)[1], now


class ConfigPanel:
    """A configuration as its page shows it."""

    def __init__(self, view: ConfigView, held: int, agents: int) -> None:
        self.view, self.held, self.agents = view, held, agents
        self.config = view.config
        self.check = CheckPanel(config_check_of(view.config))

    @property
    def badge(self) -> SafeString:
        return config_badge(self.config, "badge")

    @property
    def sentence(self) -> SafeString:
        return sentence("pages/sources/sentences/config.html", panel=self)

    @property
    def words(self) -> str:
        """Its author's words, with a full stop."""
        words = self.config.words
        return f"{words}." if words and not words.endswith(".") else words

    @property
    def made_by(self) -> str:
        return made_by(self.config)

    @property
    def settings(self) -> list[tuple[str, str, str]]:
        """(what, before, now) of what it sets."""
        rows = []
        for name, before, after in self.view.settings:
            label, now = setting_words(AdaptationSettings, name, after)
            rows.append((label, setting_words(AdaptationSettings, name, before)[1], now))
        return [*rows, *(_scheduling(*change) for change in self.view.schedule)]

    @property
    def schedules(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """(agent, [(what, before, now)]) of how agents share their cores by it."""
        return [
            (schedule.agent, [_scheduling(*change) for change in schedule.changes]) for schedule in self.view.schedules
        ]

    @property
    def parts(self) -> list[ConfigPart]:
        return [ConfigPart(part) for part in self.view.parts[:_MAX_PARTS]]

    @property
    def left_out(self) -> int:
        return max(0, len(self.view.parts) - _MAX_PARTS)

    @property
    def can_start(self) -> bool:
        return self.view.rollout is None and self.config.state in (ConfigState.DRAFT, ConfigState.REFUSED)

    @property
    def needs_force(self) -> bool:
        return self.config.state == ConfigState.REFUSED
