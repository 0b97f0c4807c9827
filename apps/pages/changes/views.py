"""History of a cluster, and taking changes back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.http import url_has_allowed_host_and_scheme

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Malformed, Missing
from apps.core.reach import AskedOn, is_seen_in_part, row_visible
from apps.estimates.selectors import least_headrooms
from apps.ledger.choices import ChangeAction
from apps.ledger.models import ObjectChange
from apps.ledger.moments import changes_back_to, cluster_compare
from apps.ledger.selectors import changes_check, changes_listed
from apps.ledger.undo import change_undo, changes_undo, group_undo
from apps.ledger.words import kind_words
from apps.pages.base import ClusterPage, Page
from apps.pages.changes.charts import headroom_chart, moment_text
from apps.pages.changes.tables import UNDO_FORM, change_json, changes_table, difference_rows
from apps.ui.feedback import toast
from apps.ui.numbers import percent
from apps.ui.tables import Table
from apps.ui.times import exact
from engine.words import counted

__all__ = ["ChangeUndo", "ChangesPage", "ComparisonPage", "GroupUndo", "LedgerPage"]

_MOMENT = forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")
_MAX_MOMENTS = 24  # of the curve that are links as well


class ChangesPage(ClusterPage):
    """`/c/<slug>/changes/?object=node:7`: changes of a cluster, or of one of its objects."""

    template_name = "pages/changes/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        rows, name = changes_listed().filter(cluster_key=self.cluster.pk), ""
        if "object" in request.GET:
            rows, name = self.of_object(rows, request.GET["object"])
        table = changes_table(request, slug, rows, of_one=bool(name))
        return _exported(request, table) or self.page({"table": table, "name": name, "undo_form": UNDO_FORM})

    def of_object(self, rows: QuerySet[ObjectChange], text: str) -> tuple[QuerySet[ObjectChange], str]:
        """Changes of the object that the address names, and its name by the newest."""
        kind, _, key = text.partition(":")
        if not kind or not key or len(text) > 80 or "\0" in text:
            message = f"{text[:40]!r} names no object; allowed: a kind and a key, such as node:7"
            raise Malformed(f"object: {message}.", [("object", message)])
        rows = rows.filter(kind=kind, object_id=key)
        newest = rows.order_by("-pk").first()
        return rows, f"{kind_words(kind)} {newest.name if newest else key}"


class _MomentsForm(forms.Form):
    """Two moments in the person's zone."""

    since = forms.DateTimeField(label="As it was at", widget=_MOMENT, help_text="In your time zone.")
    until = forms.DateTimeField(label="Compared with", widget=_MOMENT, required=False, help_text="Empty: now.")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        since, until = cleaned.get("since"), cleaned.get("until") or timezone.now()
        if since and since >= until:
            self.add_error("since", f"It is {exact(since)}; allowed: before {exact(until)}, which it is compared with.")
        return cleaned


class ComparisonPage(ClusterPage):
    """`/c/<slug>/changes/compare/?since=…&until=…`: objects of the cluster at two moments. POST: one of them back."""

    template_name = "pages/changes/compare.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        day_ago = moment_text(timezone.now() - timedelta(days=1))
        form = _MomentsForm(request.GET if "since" in request.GET else {"since": day_ago})
        points = [] if is_seen_in_part(self.cluster.pk) else least_headrooms(self.cluster)
        newest = [(moment_text(at), at, percent(share)) for at, share in points[: -_MAX_MOMENTS - 1 : -1]]
        curve = {"chart": headroom_chart(points, request.path), "moments": newest}
        if not form.is_valid():
            return self.page({"form": form, **curve}, 200 if "since" not in request.GET else 400)
        since, until = form.cleaned_data["since"], form.cleaned_data["until"]
        comparison = cluster_compare(self.cluster.pk, since, until or timezone.now())
        can_change = "operate" in signed_in_user(request).scopes
        rows = difference_rows(comparison.differences, can_change=can_change)
        told = {"comparison": comparison, "rows": rows, "since": since, "until": until}
        return self.page({"form": form, **curve, **told, "can_restore": can_change and until is None})

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        kind, _, key = request.POST.get("object", "").partition(":")
        since = parse_datetime(request.POST.get("since", "")[:40])
        if not kind or not key or "\0" in key or since is None or since.tzinfo is None:
            message = "give an object, such as node:7, and the time that it goes back to, with its zone"
            raise Malformed(f"object, since: {message}.", [("object", message), ("since", message)])
        changes = changes_back_to(self.cluster.pk, kind[:80], key[:80], since)
        if not changes:
            raise Missing(f"The {kind_words(kind)[:80]} was not changed since {exact(since)}.")
        for change in changes:
            row_visible(ObjectChange.objects.all(), "change", pk=change.pk)
        changes_undo(keys=[change.pk for change in changes], why=f"Back to {since:%Y-%m-%d %H:%M:%S} UTC")
        toast(request, f"{kind_words(kind).capitalize()} {changes[0].name} is as it was at {exact(since)}.")
        return redirect(f"{request.path}?{urlencode({'since': moment_text(since)})}")


class LedgerPage(Page):
    """`/changes/`: changes of every cluster, and of what is of none: people, tokens, refused attempts."""

    scope = "admin"
    template_name = "pages/changes/ledger.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        table = changes_table(request, "", changes_listed(of_people=True))
        return _exported(request, table) or self.page({"table": table, "undo_form": UNDO_FORM})


class ChangeUndo(Page):
    """POST: take one change back."""

    http_method_names = ["post"]
    asked_on = AskedOn.NARROWED

    def post(self, request: HttpRequest, pk: int) -> HttpResponse:
        row_visible(ObjectChange.objects.all(), "change", pk=pk)
        return _undone(request, [change_undo(pk=pk)])


class GroupUndo(Page):
    """POST: take back all that one request changed, from its toast."""

    http_method_names = ["post"]
    asked_on = AskedOn.NARROWED

    def post(self, request: HttpRequest, group: UUID) -> HttpResponse:
        changes_check(str(group))
        return _undone(request, group_undo(group=str(group)))


def _exported(request: HttpRequest, table: Table) -> HttpResponse | None:
    """The list in JSON, where the address asks for that."""
    if request.GET.get("export") != "json":
        return None
    can_change = "operate" in signed_in_user(request).scopes
    return table.json_response(lambda row: change_json(row, can_change))  # type: ignore[return-value] # a stream


def _undone(request: HttpRequest, changes: list[ObjectChange]) -> HttpResponse:
    first = changes[0]
    what = (
        f"{kind_words(first.kind).capitalize()} {first.name}" if len(changes) == 1 else counted(len(changes), "change")
    )
    toast(request, f"{what} {'is' if len(changes) == 1 else 'are'} taken back.")
    if any(change.action == ChangeAction.DELETED for change in changes):  # the page with the button may be its own
        has_page = first.cluster and first.kind != "cluster"
        return redirect("pages:changes", first.cluster) if has_page else redirect("pages:home")
    address = request.META.get("HTTP_REFERER", "")
    return redirect(address if url_has_allowed_host_and_scheme(address, {request.get_host()}) else "pages:home")
