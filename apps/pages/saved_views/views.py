"""Saved views: all of them, the form of one, and the view that a list opens with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.safestring import SafeString

from apps.core.errors import Missing
from apps.core.limits import MAX_NAME
from apps.core.reach import AskedOn
from apps.pages.base import Page, done
from apps.pages.context import PageFrame
from apps.pages.crud import BaseCrud
from apps.saved_views.models import SavedList, SavedView
from apps.saved_views.selectors import SavedViewFilter, ViewCaller, caller_of, views_visible
from apps.saved_views.services import (
    my_default_set,
    saved_view_create,
    saved_view_delete,
    saved_view_update,
    team_default_set,
)
from apps.ui.feedback import toast
from apps.ui.tables import ALL_ROWS, Choice, Column, Filter, Table
from apps.ui.times import time_tag

__all__ = ["LIST_PAGES", "SavedViewCrud", "SavedViewDefault", "SavedViewsPage"]

#: Name of the page with each list; all but the jobs are of a cluster.
LIST_PAGES = {
    SavedList.QUERIES: "pages:queries",
    SavedList.NODES: "pages:fleet",
    SavedList.POOLS: "pages:pools",
    SavedList.LINKS: "pages:links",
    SavedList.ADMISSIONS: "pages:admissions",
    SavedList.ARRIVALS: "pages:arrivals",
    SavedList.HISTORIES: "pages:histories",
    SavedList.AGENTS: "pages:sources",
    SavedList.CONNECTIONS: "pages:connections",
    SavedList.CONFIGS: "pages:configs",
    SavedList.PLACEMENTS: "pages:placement-runs",
    SavedList.WHAT_IFS: "pages:what-ifs",
    SavedList.RESOURCE_PLANS: "pages:resource-plans",
    SavedList.SPARK_QUERIES: "pages:spark-queries",
    SavedList.BACKTESTS: "pages:backtests",
    SavedList.REPORTS: "pages:reports",
    SavedList.JOBS: "pages:jobs",
}


class SavedViewForm(forms.Form):
    """Name and readers of a view, and the filters that it holds as the query of an address."""

    name = forms.CharField(max_length=MAX_NAME, label="Name of the view")
    is_team = forms.BooleanField(required=False, label="For the team", help_text="Listed for everybody who signs in.")
    is_my_default = forms.BooleanField(required=False, label="Open the list with it")
    is_team_default = forms.BooleanField(
        required=False, label="Open the list with it for the team", help_text="For everybody who chose no other."
    )
    list_name = forms.CharField(widget=forms.HiddenInput)
    parameters = forms.CharField(widget=forms.HiddenInput, required=False)
    next = forms.CharField(widget=forms.HiddenInput, required=False)

    def __init__(self, *data: Any, caller: ViewCaller, view: SavedView | None = None, **options: Any) -> None:
        super().__init__(*data, **options)
        if view is not None:
            query = QueryDict(mutable=True)
            query.update(view.parameters)
            self.initial = {
                "name": view.name,
                "is_team": view.is_team,
                "is_my_default": getattr(view, "is_my_default", False),
                "is_team_default": view.is_team_default,
                "list_name": view.list_name,
                "parameters": query.urlencode(),
            }
        if not caller.may_share:
            del self.fields["is_team"], self.fields["is_team_default"]

    @property
    def values(self) -> Mapping[str, object]:
        """Values of the services that save a view."""
        cleaned = self.cleaned_data
        shared = {name: cleaned[name] for name in ("is_team",) if name in cleaned}
        return {"name": cleaned["name"], "parameters": QueryDict(cleaned["parameters"]).dict(), **shared}

    def clean(self) -> None:
        super().clean()
        cleaned = self.cleaned_data
        if cleaned.get("is_team_default") and not cleaned.get("is_team"):
            self.add_error("is_team_default", "Only a view for the team opens the list for the team.")


class SavedViewsPage(Page):
    """`/views/`: one's own views and the team's, of every list."""

    asked_on = AskedOn.OWN
    template_name = "pages/saved_views/list.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        rows = views_visible(caller_of(request))
        table = views_table(request, rows)
        return self.page({"table": table})


def views_table(request: HttpRequest, rows: Any) -> Table:
    """By list and name."""
    cluster = PageFrame(request).cluster
    slug = cluster.slug if cluster else ""
    readers = [Choice("false", "Mine"), Choice("true", "The team's")]
    return Table(
        request,
        [
            Column("name", "View", lambda view: _name(view, slug), sort="name", csv=lambda view: view.name),
            Column("list", "List", lambda view: view.get_list_name_display(), sort="list_name"),
            Column("whose", "For", lambda view: "the team" if view.is_team else "me", sort="is_team"),
            Column("owner", "Saved by", lambda view: view.owner.get_username(), sort="owner__username"),
            Column("default", "Opens its list", _default_of),
            Column(
                "updated",
                "Changed",
                lambda view: time_tag(view.updated_at),
                sort="updated_at",
                csv=lambda view: view.updated_at,
                num=True,
                high_first=True,
            ),
            Column("edit", "Settings", _settings_link, csv=lambda view: None),
        ],
        rows,
        caption="Saved views",
        default_sort="name",
        filters=[Filter("is_team", readers, all_label="Everybody's")],
        filterset=SavedViewFilter,
        search=["name", "owner__username"],
        search_label="Name or person",
        file_name="saved-views",
        empty={
            "icon": "tune",
            "title": "No saved views yet",
            "text": "Filter a list as you need it, then save it from Views, beside its filters.",
        },
    )


def list_url(list_name: str, slug: str) -> str:
    """The address of a list, in a cluster; empty where there is none."""
    if list_name == SavedList.JOBS:
        return reverse("pages:jobs")
    return reverse(LIST_PAGES[SavedList(list_name)], args=[slug]) if slug else ""


def _name(view: SavedView, slug: str) -> SafeString:
    url = list_url(view.list_name, slug)
    if not url:
        return format_html('<span class="name">{}</span>', view.name)
    return format_html('<a class="name" href="{}?view={}">{}</a>', url, view.pk, view.name)


def _default_of(view: Any) -> str:
    readers = ["for me"] * view.is_my_default + ["for the team"] * view.is_team_default
    return " and ".join(readers) or "–"


def _settings_link(view: SavedView) -> SafeString:
    url = reverse("pages:saved-view", args=[view.pk])
    return format_html('<a href="{}">Change<span class="vh"> {}</span></a>', url, view.name)


class SavedViewCrud(BaseCrud):
    """Views are everybody's to save; services say whose may be changed."""

    asked_on = AskedOn.OWN
    noun = "view"
    form_class = SavedViewForm
    form_keyword = "view"
    template_name = "pages/saved_views/form.html"
    scope = write_scope = change_scope = "read"
    back = "pages:saved-views"
    delete_name = "pages:saved-view-delete"
    text_deleted = "The view {row} is deleted."

    def row(self, **key: Any) -> SavedView:
        return _visible(self.request, str(key["pk"]))

    def form_arguments(self, row: SavedView | None) -> dict[str, object]:
        typed = {"initial": self.request.GET.dict()} if row is None and self.request.method == "GET" else {}
        return {"caller": caller_of(self.request), **typed}

    def context(self, row: SavedView | None) -> Mapping[str, object]:
        text = self.request.POST.get("parameters") or self.request.GET.get("parameters", "")
        parameters = row.parameters if row is not None else QueryDict(text).dict()
        may_change = row is None or caller_of(self.request).may_change(row)
        return {"parameters": parameters, "may_change": may_change}

    @transaction.atomic
    def store(self, form: SavedViewForm, row: SavedView | None) -> SavedView:
        caller, cleaned = caller_of(self.request), form.cleaned_data
        if row is None:
            view = saved_view_create(by=caller, list_name=cleaned["list_name"], **form.values)
        else:
            view = saved_view_update(view=row, by=caller, **form.values)
        if cleaned["is_my_default"]:
            my_default_set(by=caller, list_name=view.list_name, view=view)
        elif view.default_of.filter(user=caller.user).exists():
            my_default_set(by=caller, list_name=view.list_name, view=None)
        if view.is_team and "is_team_default" in cleaned:
            team_default_set(view=view, by=caller, is_default=cleaned["is_team_default"])
        return view

    def delete_row(self, row: SavedView) -> None:
        saved_view_delete(view=row, by=caller_of(self.request))

    def saved(self, row: SavedView) -> HttpResponse:
        text = f"The view {row.name} is saved."
        back = _next(self.request)
        if not back:
            return done(self.request, text, self.back)
        toast(self.request, text)
        return redirect(f"{back}?view={row.pk}")


class SavedViewDefault(Page):
    """POST: the view that a list opens with for the person who asks: `view` is its id, `all`, or empty."""

    asked_on = AskedOn.OWN
    http_method_names = ["post"]
    scope = write_scope = "read"

    def post(self, request: HttpRequest) -> HttpResponse:
        caller, link, list_name = caller_of(request), request.POST.get("view", ""), request.POST.get("list_name", "")
        view = _visible(request, link) if link not in ("", ALL_ROWS) else None
        my_default_set(by=caller, list_name=list_name, view=view, all_rows=link == ALL_ROWS)
        opens = f"with {view.name}" if view else "with all rows" if link == ALL_ROWS else "as the team's does"
        toast(request, f"The list opens {opens} for you.")
        suffix = f"?view={link}" if link else ""
        return redirect(f"{_next(request) or reverse('pages:saved-views')}{suffix}")


def _visible(request: HttpRequest, link: str) -> SavedView:
    rows = views_visible(caller_of(request))
    view = next((row for row in rows if str(row.pk) == link), None)
    if view is None:
        raise Missing(f"There is no saved view {link[:40]!r} of yours or the team's.")
    return view


def _next(request: HttpRequest) -> str:
    """The list that the form stood on; never another site."""
    address = request.POST.get("next", "")
    return address if address.startswith("/") and url_has_allowed_host_and_scheme(address, None) else ""
