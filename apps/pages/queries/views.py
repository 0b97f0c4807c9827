"""The list of queries, the tabs of one, and the forms that describe and change it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django_htmx.http import HttpResponseClientRedirect

from apps.accounts.models import Team
from apps.accounts.permissions import signed_in_user
from apps.admission.previews import ADMISSION
from apps.admission.selectors import admission_headline
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Conflict, Fault, Forbidden, Malformed, Missing
from apps.core.reach import AskedOn, caller_now, check_cluster, check_row, is_seen_in_part, visible
from apps.estimates.capacities import capacity_request
from apps.estimates.selectors import query_history, run_latest
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_seen
from apps.ledger.selectors import changes_of
from apps.pages.accuracy.latency import LatencyParts
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.bulk import BulkAction, BulkPage, BulkQuestion
from apps.pages.changes.tables import UNDO_FORM, changes_table
from apps.pages.crud import Crud, kept_query
from apps.pages.queries.capacity import capacity_facts
from apps.pages.queries.charts import PlanPicture, history_chart, latency_chart
from apps.pages.queries.engine_job import imported_facts
from apps.pages.queries.facts import QueryDetail, version_difference
from apps.pages.queries.features import SourceFields, feature_lines
from apps.pages.queries.forms import (
    DocumentForm,
    OperatorLine,
    QueryForm,
    StatisticsForm,
    VersionForm,
    example_document,
    operator_lines,
    statistic_lines,
    statistics_sentence,
)
from apps.pages.queries.inputs import BacklogForm, source_lines
from apps.pages.queries.operators import MeasuredOperators, PlacementLines
from apps.pages.queries.parallelism import ParallelismFacts, ParallelismForm
from apps.pages.queries.remedies import RemediesFacts
from apps.pages.queries.tables import estimates_table, queries_sentence, queries_table
from apps.planning.parallelism import parallelism_request
from apps.planning.remedies import remedies_request, remedy_preview
from apps.predictions.choices import TargetMetric
from apps.predictions.services import prediction_of_new, prediction_request
from apps.queries.bodies import version_body
from apps.queries.choices import OperatorKind
from apps.queries.masks import arrivals_seen
from apps.queries.models import Query
from apps.queries.selectors import query_by_name, version_current, version_numbered, versions_listed
from apps.queries.services import query_create, query_delete, query_stop, query_update, query_version_create
from apps.ui.feedback import toast
from apps.ui.forms import show_faults
from apps.ui.numbers import seconds
from apps.ui.tables import Table

__all__ = [
    "ChangesTab",
    "DecisionsTab",
    "EstimatesTab",
    "OperatorRow",
    "ParallelismTab",
    "PlacementTab",
    "PlanTab",
    "QueriesChange",
    "QueriesPage",
    "QueryBacklog",
    "QueryCapacityLook",
    "QueryCrud",
    "QueryExample",
    "QueryNew",
    "QueryPredict",
    "QueryStop",
    "QueryTab",
    "QueryVersionNew",
    "RemediesTab",
    "RemedyPreviewStart",
    "StatisticsTab",
    "VersionsTab",
]


_KEY = [("bar", "Estimate"), ("band", "Interval, 90%"), ("objective", "Objective"), ("measured", "Measured")]


class QueriesPage(ClusterPage):
    """`/c/<slug>/queries/`"""

    asked_on = AskedOn.PARTS
    template_name = "pages/queries/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        run = run_latest(self.cluster)
        table = queries_table(request, self.cluster, run, can_change="operate" in signed_in_user(request).scopes)
        bulk = {"bulk_actions": QueriesChange.actions, "bulk_url": reverse(QueriesChange.address, args=[slug])}
        return self.page(
            {
                "table": table,
                "sentence": queries_sentence(table.counts, table.expected),
                "run": run,
                "key": _KEY,
                **bulk,
            }
        )


class QueriesChange(BulkPage):
    """`/c/<slug>/queries/-/change/`: many queries at once."""

    noun, nouns = "query", "queries"
    back, address = "pages:queries", "pages:queries-change"
    form_class = QueryForm
    actions = (
        BulkQuestion("together", "Ask together", "pages:admission-group-new", "queries", "admission"),
        BulkAction(
            "stop",
            "Stop",
            "stopped",
            "Their operators leave their nodes, and queued ones leave the queue. To run again each is admitted again.",
            query_stop,
            "query",
            "pause",
            is_hard_to_undo=True,
        ),
        BulkAction(
            "team",
            "Set team",
            "changed",
            "The team to contact about them. Empty: none.",
            query_update,
            "query",
            fields=("team",),
        ),
        BulkAction(
            "labels",
            "Set labels",
            "changed",
            "They take the place of all labels that these queries have. Empty: none.",
            query_update,
            "query",
            fields=("labels",),
        ),
        BulkAction(
            "priority",
            "Set priority",
            "changed",
            "Their weight in placements by objectives.",
            query_update,
            "query",
            fields=("priority",),
        ),
        BulkAction(
            "delete",
            "Delete",
            "deleted",
            "Their estimates and decisions are gone for good. Undo brings back the rest: versions, statistics, "
            "objectives. One that runs or waits is refused.",
            query_delete,
            "query",
            "trash",
            is_hard_to_undo=True,
        ),
    )

    def rows(self, names: Sequence[str]) -> dict[str, Query]:
        return {query.name: query for query in self.cluster.queries.select_related("cluster").filter(name__in=names)}

    def table(self) -> Table:
        return queries_table(self.request, self.cluster, run_latest(self.cluster), can_change=True)


_TABS = {
    "plan": ("Plan and latency", "pages:query"),
    "remedies": ("What helps", "pages:query-remedies"),
    "live": ("Live", "pages:query-live"),
    "statistics": ("Statistics", "pages:query-statistics"),
    "placement": ("Placement", "pages:query-placement"),
    "versions": ("Versions", "pages:query-versions"),
    "parallelism": ("Parallelism", "pages:query-parallelism"),
    "plans": ("Plans", "pages:query-plans"),
    "decisions": ("Decisions", "pages:query-decisions"),
    "estimates": ("Estimates", "pages:query-estimates"),
    "changes": ("History", "pages:query-changes"),
}

_OF_EVERYBODY = frozenset({"parallelism", "plans"})  # they show the effect on every query of the cluster


class QueryReach(ClusterPage):
    """A page about the query of its address: a role on the query's team counts beside one on the cluster."""

    asked_on = AskedOn.PARTS

    def reached_cluster(self) -> Cluster:
        cluster = cluster_seen(self.slug)
        is_everywhere, name = caller_now().is_everywhere, self.kwargs["name"]
        query = None if is_everywhere else visible(cluster.queries.all()).filter(name=name).first()
        if query is None:
            if is_seen_in_part(cluster.pk):
                raise Missing(f"Cluster {self.slug!r} has no query {name!r} that you see.")
            check_cluster(cluster)  # the page itself says that there is none
        else:
            check_row(query)
        return cluster


class QueryTab(QueryReach):
    """A page about one query."""

    tab = "plan"

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """An open page whose query was deleted meanwhile goes on to the list."""
        try:
            return super().dispatch(request, *args, **kwargs)
        except Missing:
            if not getattr(request, "htmx", False):
                raise
            return HttpResponseClientRedirect(reverse("pages:queries", args=[self.slug]))

    def detail(self, name: str) -> QueryDetail:
        return QueryDetail(query_by_name(self.cluster, name))

    def show(self, detail: QueryDetail, status: int = 200, **context: Any) -> HttpResponse:
        name = detail.query.name
        tabs = [
            (label, reverse(address, args=[self.slug, name]), tab == self.tab)
            for tab, (label, address) in _TABS.items()
            if tab not in _OF_EVERYBODY or not is_seen_in_part(self.cluster.pk)
        ]
        api = f"{reverse('api-index')}queries/{detail.query.pk}"
        shared = {
            "detail": detail,
            "query": detail.query,
            "tabs": tabs,
            "tab": self.tab,
            "api": api,
            "admission_url": detail.admission_url,
        }
        return self.page({**shared, **context}, status)


class PlanTab(QueryTab):
    """`/c/<slug>/queries/<name>/`: the plan, where the time goes, latency over the horizon."""

    template_name = "pages/queries/plan.html"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        chart = latency_chart(detail.estimate) if detail.estimate else None
        timeline = detail.timeline if detail.is_running else None
        shown = {"chart": chart, "timeline": timeline, "imported": imported_facts(detail.query)}
        shown["capacity"] = capacity_facts(detail.query, detail.answer.capacity) if detail.answer else None
        return self.show(detail, plan=PlanPicture(detail), **shown, **_statistics(detail))


class QueryCapacityLook(ClusterPage):
    """POST: look for the rates at which the objectives of a query, and of those beside it, break."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        capacity_request(query=query_by_name(self.cluster, name), user=signed_in_user(request))
        return redirect("pages:query", slug, name)


class StatisticsTab(QueryTab):
    """Statistics of each input; `?edit=table` and `?edit=json` change them."""

    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/queries/statistics.html"
    tab = "statistics"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        mode = request.GET.get("edit", "")
        may_edit = "operate" in signed_in_user(request).scopes
        form = StatisticsForm(detail.version, mode) if may_edit and mode in StatisticsForm.MODES else None
        measured = MeasuredOperators(detail.query)
        features = feature_lines(detail.version) if detail.never_ran and form is None else []
        latency = LatencyParts(detail.estimate)
        sources = source_lines(detail.version) if form is None else []
        shown = {"form": form, "measured": measured, "latency": latency, "features": features, "sources": sources}
        shown["imported"] = imported_facts(detail.query)
        shown["backlog"] = BacklogForm(detail.query, detail.version) if form is None else None
        return self.show(detail, **shown, **_statistics(detail))

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        form = StatisticsForm(detail.version, request.GET.get("edit", "table"), request.POST)
        if form.save():
            return form.done(request, slug, name)
        return self.show(detail, 422, form=form, **_statistics(detail))


class QueryBacklog(QueryTab):
    """POST: state what waits at its inputs; with a fault the tab of statistics is shown again."""

    http_method_names = ["post"]
    template_name = "pages/queries/statistics.html"
    tab = "statistics"

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        backlog = BacklogForm(detail.query, detail.version, request.POST)
        if backlog.save():
            return done(request, f"The backlog of {name} is stated.", "pages:query-statistics", slug, name)
        return self.show(detail, 422, backlog=backlog, **_statistics(detail))


def _statistics(detail: QueryDetail) -> dict[str, object]:
    lines = statistic_lines(detail.version, detail.answer.uncovered if detail.answer else ())
    return {"lines": lines, "statistics_sentence": statistics_sentence(lines)}


class PlacementTab(QueryTab):
    """Placement of its operators, and the load of their nodes."""

    template_name = "pages/queries/placement.html"
    tab = "placement"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        return self.show(detail, placement=PlacementLines(detail))


class ParallelismTab(QueryTab):
    """Other numbers of subtasks side by side; POST asks for them. `?chosen=4` exports one."""

    asked_on = AskedOn.NARROWED
    template_name = "pages/queries/parallelism.html"
    tab = "parallelism"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        return self.answer(detail, ParallelismForm(detail.query))

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        form = ParallelismForm(detail.query, request.POST)
        if form.is_valid():
            user, query = signed_in_user(request), detail.query
            _, ok = try_service(form, lambda: parallelism_request(query=query, question=form.question, user=user))
            if ok:
                return redirect("pages:query-parallelism", slug, name)
        return self.answer(detail, form, 422)

    def answer(self, detail: QueryDetail, form: ParallelismForm, status: int = 200) -> HttpResponse:
        facts = ParallelismFacts(detail.query, self.request.GET.get("chosen", ""))
        return self.show(detail, status, parallelism=facts, form=form)


class RemediesTab(QueryTab):
    """Remedies where the query is late, with their effect on everybody; POST looks for them."""

    template_name = "pages/queries/remedies.html"
    tab = "remedies"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        return self.show(detail, remedies=RemediesFacts(detail.query))

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        remedies_request(query=query_by_name(self.cluster, name), user=signed_in_user(request))
        return redirect("pages:query-remedies", slug, name)


class RemedyPreviewStart(ClusterPage):
    """POST: preview a remedy, on the page where such changes are previewed and applied."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        query = query_by_name(self.cluster, name)
        remedy = request.POST.get("remedy", "")
        return redirect(remedy_preview(query=query, remedy=remedy, user=signed_in_user(request)).page)


class VersionsTab(QueryTab):
    """Versions, and with `?from=1&to=2` the difference of two."""

    template_name = "pages/queries/versions.html"
    tab = "versions"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        versions = list(versions_listed(detail.query))
        numbers = [request.GET.get(side, "") for side in ("from", "to")]
        context: dict[str, Any] = {"versions": versions}
        if all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            old, new = (version_numbered(detail.query, int(number)) for number in numbers)
            context |= {"old": old, "new": new, "changes": version_difference(old, new)}
        return self.show(detail, **context)


class DecisionsTab(QueryTab):
    """Admission requests about this query."""

    template_name = "pages/queries/decisions.html"
    tab = "decisions"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        requests: list[Any] = list(ADMISSION.visible().filter(query=detail.query)[:100])
        for request_made in requests:
            request_made.shown_headline = admission_headline(request_made)
        return self.show(detail, requests=requests)


class EstimatesTab(QueryTab):
    """Estimates over the past runs."""

    template_name = "pages/queries/estimates.html"
    tab = "estimates"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        table = estimates_table(request, detail.query)
        chart = history_chart(query_history(detail.query), detail.query.objective_bound_s)
        return self.show(detail, table=table, chart=chart)


class ChangesTab(QueryTab):
    """Changes of the query."""

    template_name = "pages/queries/changes.html"
    tab = "changes"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        detail = self.detail(name)
        table = changes_table(request, slug, changes_of("query", detail.query.pk), of_one=True)
        return self.show(detail, table=table, undo_form=UNDO_FORM)


_FIRST_ROWS = 3
_KEPT = ("team", "labels", "statistic", "bound_s", "priority")  # of the last query, in the form of the next


class QueryNew(ClusterPage):
    """`/c/<slug>/queries/-/new/`: by a document, or with `?by=form` operator by operator."""

    asked_on = AskedOn.PARTS
    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/queries/new.html"
    scope = write_scope = "author"

    @property
    def by_form(self) -> bool:
        return self.request.GET.get("by") == "form"

    @cached_property
    def fields(self) -> SourceFields:
        return SourceFields(self.cluster, self.request.POST if self.request.method == "POST" else None)

    def show(self, form: QueryForm, status: int = 200, **context: Any) -> HttpResponse:
        address = reverse("pages:query-new", args=[self.slug])
        tabs = [("Document", address, not self.by_form), ("Form", f"{address}?by=form", self.by_form)]
        sources = self.fields.names
        shared = {"form": form, "tabs": tabs, "by_form": self.by_form, "sources": sources, "faults": ()}
        shared["fields"] = self.fields
        return self.page({**shared, "rest_body": _rest_body(self.slug, sources), **context}, status)

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        kept: dict[str, Any] = {name: request.GET[name] for name in _KEPT if name in request.GET}
        if is_seen_in_part(self.cluster.pk):
            team = visible(Team.objects.all(), caller_now().needed).first()
            selectors = caller_now().reach.selectors_with(self.cluster.pk, caller_now().needed)
            labels = {} if team is not None or not selectors else selectors[0].equal
            kept = {"team": str(team or ""), "labels": labels, **kept}
        form = QueryForm(initial={"statistic": "worst", **kept})
        if self.by_form:
            return self.show(
                form, lines=[OperatorLine(f"o{i}", {"kind": OperatorKind.MAP}) for i in range(_FIRST_ROWS)]
            )
        return self.show(form, document=DocumentForm())

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self._by_form(request) if self.by_form else self._by_document(request)

    def _by_document(self, request: HttpRequest) -> HttpResponse:
        form, document = QueryForm(request.POST), DocumentForm(request.POST, request.FILES)
        faults: tuple[Fault, ...] = ()
        if form.is_valid() & document.is_valid():
            try:
                return self._create(form, document.body())
            except (Malformed, Conflict, Forbidden) as error:
                faults = _apart(form, error)
        return self.show(form, 422, document=document, faults=faults)

    def _by_form(self, request: HttpRequest) -> HttpResponse:
        form, lines = QueryForm(request.POST), operator_lines(request.POST)
        if "add" in request.POST:
            key = _next_key([line.key for line in lines])
            return self.show(form, lines=[*lines, OperatorLine(key, {"kind": OperatorKind.MAP})])
        faults: tuple[Fault, ...] = ()
        if form.is_valid():
            try:
                return self._create(form, {"operators": [line.document for line in lines]})
            except (Malformed, Conflict, Forbidden) as error:
                faults = _apart(form, error)
                _blame(lines, faults)
        return self.show(form, 422, lines=lines, faults=faults)

    def _create(self, form: QueryForm, body: Any) -> HttpResponse:
        """The query and the fields of its sources, both or, with any fault, neither."""
        user = signed_in_user(self.request)
        with transaction.atomic():
            faults = self.fields.store()
            try:
                query = query_create(cluster=self.cluster, body=body, user=user, **form.values)
            except Malformed as error:
                raise Malformed(error.message, [*error.faults, *faults]) from None
            if faults:
                raise Malformed(f"{faults[0].path}: {faults[0].message}", faults)
        prediction_of_new(version=version_current(query), user=user)
        text = f"Query {query.name} is saved as a draft."
        if "another" not in self.request.POST:
            return done(self.request, text, "pages:query", self.slug, query.name)
        toast(self.request, text)
        way = "by=form&" if self.by_form else ""
        return redirect(f"{self.request.path}?{way}{kept_query(form, _KEPT)}")


def _rest_body(slug: str, sources: list[str]) -> dict[str, object]:
    """A minimal query for the REST example."""
    entry = {"from": sources[0] if sources else "clicks", "selectivity": 1.0, "cycles_per_event": 60000}
    operators = [{"id": "parse", "inputs": [entry]}]
    objective = {"statistic": "worst", "bound_s": 10.0}
    return {"cluster": slug, "name": "my-query", "objective": objective, "operators": operators}


def _apart(form: QueryForm, error: Malformed | Conflict | Forbidden) -> tuple[Fault, ...]:
    """Put faults of the form's fields there; the others, of the operators, are listed with their paths."""
    names = {"objective.statistic": "statistic", "objective.bound_s": "bound_s", "objective": "bound_s"}
    own = [fault for fault in error.faults if fault.path.split(".")[0] in {*form.fields, "objective"}]
    if own:
        show_faults(form, Malformed(error.message, own), names)
    others = tuple(fault for fault in error.faults if fault not in own)
    return others or (() if own else (Fault("", error.message),))


def _blame(lines: list[OperatorLine], faults: tuple[Fault, ...]) -> None:
    """Show each fault at the operator it is about, too."""
    for fault in faults:
        number, bracket, path = fault.path.removeprefix("operators[").partition("]")
        if bracket and number.isdigit() and int(number) < len(lines):
            lines[int(number)].blame(path, fault.message)


def _next_key(keys: list[str]) -> str:
    numbers = [int(key[1:]) for key in keys if key[:1] == "o" and key[1:].isdigit()]
    return f"o{max(numbers, default=-1) + 1}"


class QueryExample(ClusterPage):
    """The field of the document, filled with an example that reads a source of this cluster; `?kind=never-ran`."""

    asked_on = AskedOn.PARTS
    scope = write_scope = "author"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        never_ran = request.GET.get("kind") == "never-ran"
        rows = arrivals_seen(self.cluster).values_list("source_id", flat=True)
        source = rows.first() or "clicks"
        if never_ran:  # the calmest one whose fields are stated
            source = rows.exclude(event_fields={}).order_by("events").first() or source
        form = DocumentForm(initial={"document": example_document(source, never_ran=never_ran)})
        return render(request, "pages/queries/document_field.html", {"document": form})


class OperatorRow(ClusterPage):
    """A further line of the form; it is numbered after those that are there."""

    asked_on = AskedOn.PARTS
    scope = write_scope = "author"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        line = OperatorLine(_next_key(request.GET.getlist("row")), {"kind": OperatorKind.MAP})
        return render(request, "pages/queries/operator_row.html", {"line": line, "cluster": self.cluster})


class QueryVersionNew(QueryReach):
    """A new version of a query; the running one stays until the new one is admitted."""

    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/queries/version_new.html"
    scope = write_scope = "author"

    def get(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        query = query_by_name(self.cluster, name)
        text = json.dumps(version_body(version_current(query)), indent=2, ensure_ascii=False)
        return self.show(query, VersionForm(initial={"document": text}))

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        query = query_by_name(self.cluster, name)
        form = VersionForm(request.POST, request.FILES)
        faults: tuple[Fault, ...] = ()
        if form.is_valid():
            try:
                version = query_version_create(
                    query=query,
                    body=form.body(),
                    note=form.cleaned_data["note"],
                    user=signed_in_user(request),
                    carry_statistics=form.cleaned_data["carry_statistics"],
                )
            except Malformed as error:
                faults = error.faults
            else:
                if query.running_version_id is None:
                    prediction_of_new(version=version, user=signed_in_user(request))
                text = f"Version {version.number} of {name} is stored. Preview its admission to run it."
                return done(request, text, "pages:query-versions", slug, name)
        return self.show(query, form, 422, faults)

    def show(self, query: Query, form: VersionForm, status: int = 200, faults: tuple[Fault, ...] = ()) -> HttpResponse:
        rest_body = {"note": "Wider filter", "carry_statistics": True, "operators": ["…"]}
        return self.page({"query": query, "form": form, "faults": faults, "rest_body": rest_body}, status)


class QueryCrud(QueryReach, Crud):
    """Name, owner, objective and priority of a query; deleted only when it does not run."""

    noun = "query"
    form_class = QueryForm
    form_keyword = "query"
    fault_fields = {"objective.statistic": "statistic", "objective.bound_s": "bound_s"}
    template_name = "pages/queries/edit.html"
    back = "pages:queries"
    scope = change_scope = write_scope = "author"
    service_update = staticmethod(query_update)
    service_delete = staticmethod(query_delete)

    def row(self, **key: str) -> Query:
        return query_by_name(self.cluster, key["name"])

    def context(self, row: Query) -> dict[str, object]:
        bound_s = row.objective_bound_s
        objective = {"statistic": row.objective_statistic, "bound_s": bound_s} if bound_s else None
        asked = {"team": str(row.team or ""), "labels": row.labels, "priority": row.priority, "objective": objective}
        return {"query": row, "rest_body": asked}

    def saved(self, row: Query) -> HttpResponse:
        return done(self.request, f"{row.name} is saved.", "pages:query", self.slug, row.name)


class QueryPredict(QueryReach):
    """POST: predict a query as it would be placed now, then show it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        version = version_current(query_by_name(self.cluster, name))
        target = request.POST.get("target", "")
        target = target if target in TargetMetric.values else TargetMetric.END_TO_END_LATENCY
        row = prediction_request(version=version, target=target, user=signed_in_user(request))
        return done(request, f"{name} is predicted in {seconds(row.elapsed_s)}.", "pages:query", slug, name)


class QueryStop(QueryReach):
    """POST: stop a running or waiting query."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str, name: str) -> HttpResponse:
        query_stop(query=query_by_name(self.cluster, name))
        return done(request, f"{name} is stopped.", "pages:query", slug, name)
