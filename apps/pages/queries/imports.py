"""Import of a whole cluster from a deployment document: checked by one job, stored by another."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect

from apps.accounts.permissions import require_scope, signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.rest.parsers import strict_json
from apps.jobs.models import JobState
from apps.pages.base import ClusterPage, try_service
from apps.queries.imports import IMPORT
from apps.queries.models import ImportRun
from engine.words import counted

__all__ = ["DocumentImportPage", "ImportRunPage"]

_NAMES_LIMIT = 200  # names of a list; a large fleet has thousands
_KINDS = ("pool", "node", "link", "source", "query")


class ImportDocumentForm(forms.Form):
    """A deployment document and the options of its import."""

    file = forms.FileField(label="Document", help_text="A deployment document, .json.")
    fill = forms.ChoiceField(
        label="Arrivals that end before the horizon",
        required=False,
        choices=[("", "Refuse the document"), ("zero", "No more events"), ("repeat", "Repeat from the start")],
    )
    start = forms.BooleanField(
        label="Run its queries as placed",
        required=False,
        help_text="They skip admission: for a fleet that already runs like this. Otherwise they become drafts.",
    )

    def clean_file(self) -> Any:
        try:
            return strict_json(self.cleaned_data["file"].read())
        except Exception as error:
            raise forms.ValidationError(str(getattr(error, "message", error))) from None


class DocumentImportPage(ClusterPage):
    """`/c/<slug>/import/`: choose a document; it is checked before anything is stored."""

    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/queries/import_new.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.page({"form": self.form()})

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = self.form(request.POST, request.FILES)
        if not form.is_valid():
            return self.page({"form": form}, 422)
        values = form.cleaned_data
        options = {"fill": values["fill"], "start": bool(values.get("start")), "dry_run": True}
        asked = {"cluster": self.cluster, "document": values["file"], "path": "file", **options}
        requested, stored = try_service(form, lambda: IMPORT.request(user=signed_in_user(request), **asked))
        if not stored:
            return self.page({"form": form}, 422)
        return redirect("pages:import", slug, requested[0].pk)

    def form(self, *data: Any) -> ImportDocumentForm:
        form = ImportDocumentForm(*data)
        if "admin" not in signed_in_user(self.request).scopes:
            del form.fields["start"]
        return form


class ImportRunPage(ClusterPage):
    """`/c/<slug>/import/<uuid>/`: what an import would do, or did. POST stores what was checked."""

    template_name = "pages/queries/import_run.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str, pk: Any) -> HttpResponse:
        run = self.run_of(pk)
        result = run.result or {}
        groups = [(title, _listed(result.get(name, []))) for name, title in _titles(run)]
        failed = run.job is not None and run.job.state == JobState.FAILED
        context = {"run": run, "groups": groups, "notes": result.get("notes", [])[:_NAMES_LIMIT], "failed": failed}
        return self.page(context | {"sentence": _sentence(run, failed)})

    def post(self, request: HttpRequest, slug: str, pk: Any) -> HttpResponse:
        run = self.run_of(pk)
        if run.options.get("start"):
            require_scope(request, "admin")
        options = {**run.options, "dry_run": False}
        user = signed_in_user(request)
        stored, _ = IMPORT.request(cluster=self.cluster, document=run.document, user=user, **options)
        return redirect("pages:import", slug, stored.pk)

    def run_of(self, pk: Any) -> ImportRun:
        return get_object_or_404(IMPORT.visible(), pk=pk, cluster=self.cluster)


def _titles(run: ImportRun) -> list[tuple[str, str]]:
    """The lists of a result with their headings."""
    would = "Would be " if run.options.get("dry_run") else ""
    titles = [("created", f"{would}created"), ("updated", f"{would}changed"), ("unchanged", "Unchanged")]
    return [(name, title[0].upper() + title[1:]) for name, title in titles]


def _listed(names: list[str]) -> list[tuple[str, int, list[str]]]:
    """Names by what they are: (kind, how many, the first of them)."""
    by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}
    for entry in names:
        kind, _, name = entry.partition(" ")
        by_kind.setdefault(kind, []).append(name)
    return [(kind, len(found), found[:_NAMES_LIMIT]) for kind, found in by_kind.items() if found]


def _sentence(run: ImportRun, failed: bool) -> str:
    counts = run.counts
    nodes, queries = counted(counts["nodes"], "node"), counted(counts["queries"], "query", "queries")
    what = f"{nodes} and {queries} of {counted(counts['operators'], 'operator')}"
    if failed:
        return f"The document describes {what}. It cannot be imported; nothing was stored."
    if run.result is None:
        return f"The document describes {what}. It is checked first; nothing is stored yet."
    if run.options.get("dry_run"):
        return f"The document describes {what}, and fits this cluster. Nothing is stored yet."
    return f"Imported: {what}."
