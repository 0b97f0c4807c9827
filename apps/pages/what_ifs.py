"""What-ifs that were asked: their list, and one with its answer."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.pages.asked import asked_columns
from apps.pages.base import ClusterPage
from apps.pages.provisioning_words import change_words, option_words
from apps.pages.what_if_results import RESULTS
from apps.planning.choices import Find, WhatIfState
from apps.planning.models import WhatIf
from apps.planning.selectors import Standing, what_if_result, what_if_standing, what_ifs_listed
from apps.ui.marks import state_mark
from apps.ui.tables import Choice, Column, Filter, Table

__all__ = ["WhatIfPage", "WhatIfsPage"]

_STATES = {
    WhatIfState.ASKED: "running",
    WhatIfState.ANSWERED: "succeeded",
    WhatIfState.FAILED: "failed",
    WhatIfState.CANCELLED: "cancelled",
}


class WhatIfsPage(ClusterPage):
    """`/c/<slug>/provisioning/what-ifs/`: what was asked on purpose, newest first."""

    template_name = "pages/provisioning/what_ifs.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        table = _table(request, self.cluster)
        return table.csv_response() if table.wants_csv else self.page({"table": table})


class WhatIfPage(ClusterPage):
    """`/c/<slug>/provisioning/what-ifs/<uuid>/`"""

    template_name = "pages/provisioning/what_if.html"

    def get(self, request: HttpRequest, slug: str, pk: UUID) -> HttpResponse:
        row = what_ifs_listed().filter(cluster=self.cluster, pk=pk).first()
        if row is None:
            raise Missing(f"Cluster {self.cluster.slug!r} has no what-if {pk}.")
        return self.page({"one": WhatIfDetail(row)})


class WhatIfDetail:
    """What the page of a what-if shows."""

    def __init__(self, row: WhatIf) -> None:
        self.row, self.cluster = row, row.cluster

    @property
    def topic(self) -> str:
        return f"what-if:{self.row.pk}"

    @property
    def title(self) -> str:
        return self.row.get_find_display()

    @cached_property
    def result(self) -> Any:
        """What the answer says, as the template of its kind shows it; None while there is none."""
        answer = what_if_result(self.row)
        return None if answer is None else RESULTS[Find(self.row.find)](self.row, answer)

    @property
    def template(self) -> str:
        return f"pages/provisioning/found_{self.row.find}.html"

    @cached_property
    def standing(self) -> Standing:
        return what_if_standing(self.row)

    @property
    def moved(self) -> str:
        """What has moved since, in words."""
        few = list(self.standing.changes[:6])
        more = len(self.standing.changes) - len(few)
        return ", ".join(few) + (f" and {more} more" if more > 0 else "")

    @property
    def question(self) -> list[tuple[str, list[str]]]:
        """(scenario, its changes in words)."""
        return [(one["name"], [change_words(change) for change in one["changes"]]) for one in self.row.scenarios]

    @property
    def options(self) -> list[tuple[str, str]]:
        return option_words(self.row.options)

    @property
    def rest_path(self) -> str:
        return f"/api/v1/what-ifs/{self.row.pk}"

    @property
    def rest_body(self) -> dict[str, Any]:
        """The call that asks the same."""
        scenarios = [one.get("id") or one for one in self.row.scenarios if one["changes"] or one.get("id")]
        body: dict[str, Any] = {"cluster": self.cluster.slug, "find": self.row.find}
        body |= {"scenarios": scenarios} if scenarios else {}
        return body | ({"options": self.row.options} if self.row.options else {})


def _table(request: HttpRequest, cluster: Cluster) -> Table:
    finds = [Choice(value, label) for value, label in Find.choices]
    return Table(
        request,
        [
            Column("find", "Question", partial(_heading, cluster), sort="find", csv=lambda row: row.find),
            Column("about", "About", _about, csv=_about),
            Column("state", "State", _state, sort="state", csv=lambda row: row.state),
            *asked_columns(),
        ],
        what_ifs_listed().filter(cluster=cluster, from_bench=False),
        caption="Answers",
        default_sort="-created",
        filters=[Filter("find", finds, lambda rows, value: rows.filter(find=value), "Every question")],
        file_name=f"what-ifs-{cluster.slug}",
        empty={
            "icon": "tune",
            "title": "Nothing asked yet",
            "text": "Compare scenarios or start a search on the bench; answers are kept here.",
            "url": reverse("pages:provisioning", args=[cluster.slug]),
            "action": "Open the bench",
        },
    )


def _heading(cluster: Cluster, row: WhatIf) -> SafeString:
    url = reverse("pages:what-if", args=[cluster.slug, row.pk])
    return format_html('<a class="name" href="{}">{}</a>', url, row.get_find_display())


def _about(row: WhatIf) -> str:
    """The scenarios' names, or the changes of the only one."""
    names = [one["name"] for one in row.scenarios]
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}"


def _state(row: WhatIf) -> SafeString:
    return state_mark(_STATES[WhatIfState(row.state)], WhatIfState(row.state).label)
