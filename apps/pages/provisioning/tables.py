"""Tables of provisioning: scenarios with their last answers, what-ifs, and their changes in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.fleet.models import Cluster
from apps.pages.jobs import run_state_mark
from apps.pages.saved_views.bar import open_views
from apps.planning.choices import Find
from apps.planning.models import Scenario, WhatIf
from apps.planning.scenarios import scenarios_visible
from apps.planning.what_ifs import WHAT_IF, WhatIfFilter, scenario_answers
from apps.saved_views.models import SavedList
from apps.ui.marks import expected_mark
from apps.ui.numbers import MISSING, as_float, factor, money, seconds
from apps.ui.tables import Choice, Column, Filter, Table, request_columns
from engine.provisioning.answers.scenarios import ComparedScenario
from engine.words import counted, listed

__all__ = [
    "LABELS",
    "ScenarioRow",
    "change_words",
    "option_words",
    "outcome_mark",
    "outcome_state",
    "scenario_row",
    "scenarios_table",
]


def change_words(change: Mapping[str, Any]) -> str:
    """A change of a scenario as a phrase."""
    kind = next(iter(change.keys() & _WORDS.keys()), "")
    return _WORDS[kind](change) if kind else ", ".join(f"{name} {value}" for name, value in change.items())


def option_words(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Parameters of a search as (name, value) a reader knows; lists have a place of their own on the page."""
    rows = [(name, value) for name, value in options.items() if not isinstance(value, (list, dict))]
    return [(_OPTIONS.get(name, name.replace("_", " ")), _value_words(value)) for name, value in rows]


def _value_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


_OPTIONS = {
    "lose_one": "Hold with any one node lost",
    "keep_present": "The nodes of now stay",
    "pool": "Nodes are added to pool",
    "headroom_s": "Headroom, s",
    "max_nodes": "At most nodes",
    "bound_s": "Objective of every query, s",
    "objective_factor": "Every objective times",
    "factor": "Every source times",
    "seed": "Seed",
    "most": "Largest growth looked at",
    "flow": "With Flow",
    "intervals": "With intervals",
}

_WORDS: dict[str, Any] = {
    "scale_source": lambda c: (
        f"every source at {c['by']:g} times its load"
        if c["scale_source"] == "*"
        else f"{c['scale_source']} at {c['by']:g} times its load"
    ),
    "scale_query": lambda c: f"{c['scale_query']} at {c['by']:g} times its load",
    "add_nodes": lambda c: (
        f"{counted(c['add_nodes'], 'node')} more like {c['like']}"
        if c.get("like")
        else f"{counted(c['add_nodes'], 'node')} more"
    ),
    "lose_node": lambda c: f"{c['lose_node']} lost",
    "capacity": lambda c: f"another capacity of {c['capacity']}",
    "resize_pool": lambda c: f"{counted(c['nodes'], 'node')} in pool {c['resize_pool']}",
    "objective": lambda c: f"{c['objective']} within {seconds(c['bound_s'])}",
    "add_query": lambda c: f"{c['add_query'].get('query', 'a query')} added",
    "remove_query": lambda c: f"{c['remove_query']} removed",
    "arrivals": lambda c: f"other arrivals of {c['arrivals']}",
}


LABELS = {
    "holds": "Would hold",
    "fragile": "Breaks if a node is lost",
    "at_risk": "At risk",
    "breached": "Would be late",
    "unknown": "Not known",
    "infeasible": "Cannot be placed",
    "none": "No objectives",
    "no_estimate": "Not answered yet",
}
_MARKS = {"fragile": "at_risk", "infeasible": "breached"}


def outcome_state(part: ComparedScenario) -> str:
    """State of a scenario: infeasible, breached, at risk, unknown, fragile (only with a node lost), holds."""
    if part.infeasible:
        return "infeasible"
    for queries, state in ((part.broken, "breached"), (part.at_risk, "at_risk"), (part.unknown, "unknown")):
        if queries:
            return state
    if part.lost is not None and (part.lost.late or part.lost.stuck):
        return "fragile"
    return "holds" if part.kept else "none"


@dataclass(frozen=True)
class ScenarioRow:
    """A scenario and the newest answer that speaks of it as it is."""

    scenario: Scenario
    what_if: WhatIf | None = None
    part: ComparedScenario | None = None

    @property
    def pk(self) -> int:
        return self.scenario.pk

    @property
    def rate(self) -> float | None:
        """The factor of all sources; None where single sources or queries have their own."""
        kinds = [change for change in self.scenario.changes if "scale_query" in change or "arrivals" in change]
        if kinds or any(change.get("scale_source", "*") != "*" for change in self.scenario.changes):
            return None
        product = 1.0
        for change in self.scenario.changes:
            product *= change["by"] if "scale_source" in change else 1.0
        return product

    @property
    def state(self) -> str:
        return outcome_state(self.part) if self.part is not None else "no_estimate"

    @property
    def nodes(self) -> int | None:
        return None if self.part is None else self.part.node_count

    @property
    def cost(self) -> float | None:
        return None if self.part is None else self.part.cost_per_hour

    @property
    def worst_s(self) -> float | None:
        """Largest worst case of a query."""
        return None if self.part is None else self.part.worst_s

    @property
    def words(self) -> list[str]:
        """Its changes."""
        return [change_words(change) for change in self.scenario.changes]

    @property
    def mark(self) -> SafeString:
        return outcome_mark(self.state)

    @property
    def lost_s(self) -> float | None:
        return None if self.part is None or self.part.lost is None else as_float(self.part.lost.worst_s)


def scenarios_table(request: HttpRequest, cluster: Cluster) -> Table:
    """By name, with a box before each to compare them."""
    answers = scenario_answers(cluster)
    rows = [ScenarioRow(scenario, *answers.get(scenario.pk, (None, None))) for scenario in scenarios_visible(cluster)]
    return Table(
        request,
        _columns(cluster),
        rows,
        caption="Scenarios",
        default_sort="name",
        page_size=20,
        file_name=f"scenarios-{cluster.slug}",
        select=True,
        empty={
            "icon": "tune",
            "title": "No scenarios yet",
            "text": "Set the inputs, then save them under a name to compare them with others.",
        },
    )


def scenario_row(scenario: Scenario) -> ScenarioRow:
    """One scenario with its newest answer."""
    return ScenarioRow(scenario, *scenario_answers(scenario.cluster).get(scenario.pk, (None, None)))


def _heading(cluster: Cluster, row: ScenarioRow) -> SafeString:
    url = reverse("pages:scenario", args=[cluster.slug, row.pk])
    return format_html('<a class="name" href="{}">{}</a>', url, row.scenario.name)


def outcome_mark(state: str) -> SafeString:
    """The mark and words of a scenario's state."""
    return expected_mark(_MARKS.get(state, state), LABELS[state])


def _seconds(name: str, row: ScenarioRow) -> Any:
    value = getattr(row, name)
    return MISSING if value is None else seconds(value).html


def _rate(row: ScenarioRow) -> Any:
    return "mixed" if row.rate is None else factor(row.rate).html


def _columns(cluster: Cluster) -> list[Column]:
    def raw(name: str) -> Any:
        return lambda row: getattr(row, name)

    def tone(row: ScenarioRow) -> str:
        return "bad" if row.state == "breached" else ""

    return [
        Column("name", "Scenario", partial(_heading, cluster), sort=lambda r: r.scenario.name.lower(), csv=_name),
        Column("nodes", "Nodes", lambda row: row.nodes or MISSING, sort=raw("nodes"), csv=raw("nodes"), num=True),
        Column("rate", "Rate", _rate, sort=raw("rate"), csv=raw("rate"), num=True),
        Column(
            "up", "All up", partial(_seconds, "worst_s"), sort=raw("worst_s"), csv=raw("worst_s"), num=True, css=tone
        ),
        Column("lost", "One lost", partial(_seconds, "lost_s"), sort=raw("lost_s"), csv=raw("lost_s"), num=True),
        Column(
            "cost",
            "Cost per h",
            lambda row: money(row.cost, cluster.currency),
            sort=raw("cost"),
            csv=raw("cost"),
            num=True,
        ),
        Column("result", "Result", lambda row: row.mark, csv=lambda row: LABELS[row.state], full=True),
    ]


def _name(row: ScenarioRow) -> str:
    return row.scenario.name


def what_ifs_table(request: HttpRequest, cluster: Cluster) -> Table:
    finds = [Choice(value, label) for value, label in Find.choices]
    return Table(
        request,
        [
            Column("find", "Question", partial(_what_if_heading, cluster), sort="find", csv=lambda row: row.find),
            Column("about", "About", _scenario_names, csv=_scenario_names),
            Column("state", "State", _state, sort="state", csv=lambda row: row.state),
            *request_columns(),
        ],
        WHAT_IF.visible().filter(cluster=cluster, from_bench=False),
        caption="Answers",
        default_sort="-created",
        filters=[Filter("find", finds, all_label="Any question")],
        filterset=WhatIfFilter,
        views=open_views(request, SavedList.WHAT_IFS),
        file_name=f"what-ifs-{cluster.slug}",
        empty={
            "icon": "tune",
            "title": "Nothing asked yet",
            "text": "Compare scenarios or start a search on the bench; answers are kept here.",
            "url": reverse("pages:provisioning", args=[cluster.slug]),
            "action": "Open the bench",
        },
    )


def _what_if_heading(cluster: Cluster, row: WhatIf) -> SafeString:
    url = reverse("pages:what-if", args=[cluster.slug, row.pk])
    return format_html('<a class="name" href="{}">{}</a>', url, row.get_find_display())


def _scenario_names(row: WhatIf) -> str:
    """The scenarios' names, or the changes of the only one."""
    return listed([scenario["name"] for scenario in row.scenarios], 4)


def _state(row: WhatIf) -> SafeString:
    return run_state_mark(row)
