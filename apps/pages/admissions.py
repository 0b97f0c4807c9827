"""The list of admission requests, and the queue."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from django.db.models import Count, QuerySet
from django.db.models.fields.json import KT
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.admission.choices import AdmissionState, Verdict
from apps.admission.models import AdmissionRequest
from apps.admission.queueing import patience_ends_at
from apps.admission.selectors import admissions_visible, queue_of
from apps.fleet.models import Cluster
from apps.pages.base import ClusterPage
from apps.ui.marks import STATES, VERDICTS, state_mark, verdict_badge, verdict_icon
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["AdmissionsPage"]

_WAITING = (AdmissionState.PREVIEW, AdmissionState.AWAITING)


class AdmissionsPage(ClusterPage):
    """`/c/<slug>/admission/`"""

    template_name = "pages/admission/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        counts = _Counts(self.cluster)
        table = _table(request, self.cluster, counts, can_ask="operate" in request.user.scopes)
        if table.wants_csv:
            return table.csv_response()
        queue = [_Queued(place, found) for place, found in enumerate(queue_of(self.cluster), start=1)]
        return self.page({"table": table, "sentence": counts.sentence, "queue": queue})


class _Counts:
    """How many requests there are of each verdict and in each state."""

    def __init__(self, cluster: Cluster) -> None:
        rows = AdmissionRequest.objects.filter(cluster=cluster).order_by()
        by_both = rows.values_list("verdict", "state").annotate(n=Count("pk"))
        self.verdicts: dict[str, int] = {}
        self.states: dict[str, int] = {}
        for verdict, state, n in by_both:
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + n
            self.states[state] = self.states.get(state, 0) + n
        self.total = sum(self.states.values())

    @property
    def sentence(self) -> str:
        """2 wait for a decision, 1 is queued, 5 were applied."""
        if not self.total:
            return "None yet. A preview says what a query would do to the objectives of the others; nothing runs by it."
        waiting = sum(self.states.get(str(state), 0) for state in _WAITING)
        parts = [f"{waiting} wait{'s' if waiting == 1 else ''} for somebody to act"]
        queued, applied = (self.states.get(str(state), 0) for state in (AdmissionState.QUEUED, AdmissionState.APPLIED))
        parts += [f"{queued} queued"] if queued else []
        parts += [f"{applied} applied"] if applied else []
        return f"{', '.join(parts)}, of {self.total} request{'s' if self.total > 1 else ''}."


@dataclass(frozen=True)
class _Queued:
    """A request in the queue."""

    place: int
    request: AdmissionRequest

    @property
    def gives_up_at(self) -> SafeString:
        return time_tag(patience_ends_at(self.request), relative=False)


def _table(request: HttpRequest, cluster: Cluster, counts: _Counts, *, can_ask: bool) -> Table:
    """Newest first; chips by verdict and by state."""
    empty = {
        "icon": "admission",
        "title": "No requests yet",
        "text": "Preview a query to see its latency and what it does to the others.",
    }
    if can_ask:
        url = reverse("pages:admission-new", args=[cluster.slug])
        empty |= {"url": url, "action": "Preview an admission", "action_icon": "plus"}
    return Table(
        request,
        _columns(cluster.slug),
        admissions_visible().filter(cluster=cluster).annotate(headline=KT("result__headline")).defer("result"),
        caption="Admission requests",
        default_sort="-created",
        filters=[
            Filter("verdict", _verdicts(counts), _keep("verdict"), "Any verdict", counts.total),
            Filter("state", _states(counts), _keep("state"), "Any state"),
        ],
        search=["query__name", "requested_by__username", "reason"],
        search_label="Query, person or reason",
        file_name=f"admissions-{cluster.slug}",
        empty=empty,
    )


def _verdicts(counts: _Counts) -> list[Choice]:
    marks = [(value, VERDICTS[value]) for value in Verdict.values]
    return [Choice(value, mark.label, counts.verdicts.get(value, 0), mark.drawing, mark.tone) for value, mark in marks]


def _states(counts: _Counts) -> list[Choice]:
    """States that occur: nine chips, most of them 0, would only be in the way."""
    return [
        Choice(value, STATES[value].label, counts.states[value])
        for value in AdmissionState.values
        if counts.states.get(value)
    ]


def _keep(name: str) -> partial[QuerySet[AdmissionRequest]]:
    return partial(_kept, name)


def _kept(name: str, rows: QuerySet[AdmissionRequest], value: str) -> QuerySet[AdmissionRequest]:
    return rows.filter(**{name: value})


def _heading(slug: str, row: AdmissionRequest) -> SafeString:
    mark = verdict_icon(row.verdict) if row.verdict else state_mark(row.state, " ")
    url = reverse("pages:admission", args=[slug, row.pk])
    return format_html('<span class="nm">{}<a class="name" href="{}">{}</a></span>', mark, url, row.version)


def _verdict(row: AdmissionRequest) -> SafeString:
    if row.verdict:
        return verdict_badge(row.verdict)
    return format_html('<span class="muted">{}</span>', "none yet")


def _finding(row: AdmissionRequest) -> SafeString:
    """The headline, else what is known instead of one."""
    if row.headline:
        return format_html('<span class="finding">{}</span>', row.headline)
    text = row.job.error.get("message", "") if row.job and row.job.error else ""
    return format_html('<span class="finding muted">{}</span>', text or STATES[row.state].label)


def _asked(row: AdmissionRequest) -> SafeString:
    return format_html('{} <span class="muted sm">{}</span>', time_tag(row.created_at), row.requested_by or "rule")


def _state(row: AdmissionRequest) -> SafeString:
    by = f"by {row.decided_by}" if row.decided_by else ""
    word = "Applied, overridden" if row.overridden else ""
    return format_html('{} <span class="muted sm by">{}</span>', state_mark(row.state, word), by)


def _columns(slug: str) -> list[Column]:
    return [
        Column(
            "query", "Request", partial(_heading, slug), sort="query__name", csv=lambda row: str(row.version), full=True
        ),
        Column("verdict", "Verdict", _verdict, sort="verdict", csv=lambda row: row.verdict),
        Column("finding", "Finding", _finding, csv=lambda row: row.headline or "", full=True),
        Column("state", "State", _state, sort="state", csv=lambda row: row.state),
        Column("created", "Asked", _asked, sort="created_at", csv=lambda row: row.created_at, high_first=True),
    ]
