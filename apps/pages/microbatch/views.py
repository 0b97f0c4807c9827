"""Spark queries: the list, one query, and the forms to watch, feed, refit, apply, change and delete."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import UploadedFile
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Impossible, Malformed, TooLarge
from apps.microbatch.fits import fit_refit
from apps.microbatch.models import MAX_OWN_TRIGGER_S, MIN_OWN_TRIGGER_S, SparkQuery, SparkQueryOrigin
from apps.microbatch.progress import ProgressAnswer, documents_of, progress_ingest
from apps.microbatch.selectors import spark_queries_visible
from apps.microbatch.services import (
    settings_apply,
    spark_query_create,
    spark_query_delete,
    spark_query_update,
)
from apps.pages.base import ClusterPage, done, try_service
from apps.pages.crud import Crud, RowForm
from apps.pages.microbatch.facts import SHOWN, SparkQueryFacts, listener_code
from apps.pages.microbatch.tables import batches_table, spark_queries_table
from apps.pages.sources.facts import StreamCard
from apps.ui.forms import show_faults
from engine.microbatch.settings import SparkSettings
from engine.words import counted, listed

__all__ = [
    "SparkQueriesPage",
    "SparkQueryApply",
    "SparkQueryCrud",
    "SparkQueryNew",
    "SparkQueryPage",
    "SparkQueryRefit",
    "SparkQueryUpload",
]

#: Ways by which progress arrives, and what each needs.
WAYS = {
    SparkQueryOrigin.LISTENER: "A listener in the application posts each micro-batch. You get its code next.",
    SparkQueryOrigin.URL: "Sluice asks an address every 30 s, such as one that answers with recentProgress.",
    SparkQueryOrigin.FILE: "You upload what Spark has written: lines or a list of progress, or an event log.",
}
_SETTINGS = ["trigger_s", "executors", "cores_per_executor", "input_partitions", "shuffle_partitions"]
_SETTINGS += ["max_rows_per_trigger", "stateful"]
_OPTIONS = ["constraint_s", "statistic", "auto_refit"]
_LABELS = {
    "spark_name": "Name in Spark",
    "url": "URL",
    "trigger_s": "Trigger interval",
    "cores_per_executor": "Cores of an executor",
    "max_rows_per_trigger": "Largest batch",
    "stateful": "Keeps state between batches",
    "constraint_s": "Latency constraint",
    "auto_refit": "Refit by itself when it drifts",
}
_HELP = {
    "name": "As it is called here.",
    "spark_name": "Its name or id there, where several queries report in one place.",
    "url": "It answers with progress as JSON. Addresses of private networks need SLUICE_WEBHOOK_PRIVATE=1.",
    "trigger_s": "The processingTime of its trigger; 0 where a batch follows the one before without a pause.",
    "executors": "spark.executor.instances; 1 with a local master.",
    "cores_per_executor": "spark.executor.cores.",
    "input_partitions": "Partitions of the topic, or files of a batch.",
    "shuffle_partitions": "spark.sql.shuffle.partitions; the checkpoint of a stateful query fixes it.",
    "max_rows_per_trigger": "maxOffsetsPerTrigger and the like. Empty: no limit.",
    "stateful": "",
    "constraint_s": "That the latency of its rows is to keep. Empty: none.",
    "statistic": "Of the constraint: `mean`, or a quantile such as `q0.95`.",
    "auto_refit": "",
}


class ProgressForm(forms.Form):
    """A file of progress."""

    file = forms.FileField(
        label="Progress file",
        help_text="StreamingQueryProgress as JSON lines or a JSON list, or an event log of Spark.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["file"].help_text += f" At most {settings.UPLOAD_MAX_BYTES / 1e6:g} MB."
        self.fields["file"].widget.attrs["data-max-bytes"] = str(settings.UPLOAD_MAX_BYTES)

    def clean_file(self) -> bytes:
        return _content(self.cleaned_data["file"])


class SparkQueryForm(RowForm):
    """A Spark query. Settings that are left as they stand keep their origin; those that are typed are assumed."""

    file = forms.FileField(
        label="Progress file",
        help_text="StreamingQueryProgress as JSON lines or a JSON list, or an event log of Spark.",
    )

    class Meta:
        model = SparkQuery
        fields = ["name", "spark_name", "url", *_SETTINGS, *_OPTIONS]
        labels = _LABELS
        help_texts = _HELP

    field_order = ["name", "file", "url", "spark_name"]

    def __init__(self, *args: Any, origin: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.origin = origin or self.instance.origin
        if self.origin != SparkQueryOrigin.FILE or self.instance.pk:
            del self.fields["file"]
        if self.origin != SparkQueryOrigin.URL:
            del self.fields["url"]
        else:
            self.fields["url"].required = True
        if self.origin == SparkQueryOrigin.OWN:
            for name in ("name", "spark_name", *_SETTINGS):
                del self.fields[name]
        for name in set(_SETTINGS) & set(self.fields):
            field = self.fields[name]
            field.required = False
            if not self.instance.pk and name != "stateful":
                field.widget.attrs["placeholder"] = _placeholder(field.initial)
                field.initial = None  # what is typed is assumed, also where it is the default

    def clean_file(self) -> bytes:
        return _content(self.cleaned_data["file"])

    @property
    def values(self) -> dict[str, object]:
        """Values for the services: those that differ from what stands there, and the name."""
        kept = {"name"} if not self.instance.pk else set()
        changed = {name for name in self.changed_data if name != "file"} | kept
        empty = [name for name in _SETTINGS if self.cleaned_data.get(name) is None and name != "max_rows_per_trigger"]
        return {name: self.cleaned_data[name] for name in self.Meta.fields if name in changed and name not in empty}


class ApplyForm(RowForm):
    """Settings of a plan; of the stream processor the trigger alone."""

    class Meta:
        model = SparkQuery
        fields = ["trigger_s", "executors", "cores_per_executor", "shuffle_partitions", "max_rows_per_trigger"]
        labels = _LABELS
        help_texts = _HELP

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.is_own:
            for name in [*self.fields][1:]:
                del self.fields[name]
            self.fields[
                "trigger_s"
            ].help_text = f"{MIN_OWN_TRIGGER_S} to {MAX_OWN_TRIGGER_S} s. It changes after the batch in work."

    @property
    def values(self) -> dict[str, object]:
        """The settings that differ from those in force; all of them where none does."""
        changed = {name: self.cleaned_data[name] for name in self.fields if name in self.changed_data}
        return changed or {name: self.cleaned_data[name] for name in self.fields}


def _placeholder(default: Any) -> str:
    return "no limit" if default is None else f"{default:g} unless Spark reports it"


def _content(file: UploadedFile) -> bytes:
    if (file.size or 0) > settings.UPLOAD_MAX_BYTES:
        raise forms.ValidationError(f"It is larger than {settings.UPLOAD_MAX_BYTES / 1e6:g} MB.")
    return bytes(file.read())


class SparkQueriesPage(ClusterPage):
    """`/c/<slug>/provisioning/spark/`"""

    template_name = "pages/microbatch/list.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        can_change = "operate" in signed_in_user(request).scopes
        table = spark_queries_table(request, self.cluster, can_change=can_change)
        return self.page({"table": table, "awaited": self._awaited})

    @property
    def _awaited(self) -> StreamCard | None:
        """State of Sluice's own stream processor, as long as the list waits for its first micro-batch."""
        is_there = SparkQuery.objects.filter(origin=SparkQueryOrigin.OWN).exists()
        return None if is_there else StreamCard(self.cluster.slug, {})


class SparkQueryNew(ClusterPage):
    """`/c/<slug>/provisioning/spark/new/`; `?origin=url` chooses how progress arrives."""

    body_sizes = {"POST": DOCUMENT}
    template_name = "pages/microbatch/new.html"
    scope = "operate"

    @property
    def origin(self) -> SparkQueryOrigin:
        typed = self.request.GET.get("origin", "")
        return SparkQueryOrigin(typed) if typed in list(WAYS) else SparkQueryOrigin.LISTENER

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        return self.show(SparkQueryForm(origin=self.origin))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        form = SparkQueryForm(request.POST, request.FILES, origin=self.origin)
        if form.is_valid():
            names = {"file": "file"} if self.origin == SparkQueryOrigin.FILE else {}
            query, is_stored = try_service(form, lambda: self.store(form), names)
            if is_stored:
                return done(request, self.said(query), "pages:spark-query", slug, query.pk)
        return self.show(form, 422)

    @transaction.atomic
    def store(self, form: SparkQueryForm) -> SparkQuery:
        """The query, with what its file holds; neither where the other fails."""
        user = signed_in_user(self.request)
        query = spark_query_create(cluster=self.cluster, origin=self.origin, user=user, **form.values)
        if self.origin == SparkQueryOrigin.FILE:
            try:
                text = documents_of(form.cleaned_data["file"])
                progress_ingest(query=query, documents=text.documents, unread=text.left_out)
            except TooLarge as error:
                raise Malformed(error.message, [("file", error.message)]) from None
            except Malformed as error:
                faults = [(_file_path(fault.path), fault.message) for fault in error.faults]
                raise Malformed(error.message, faults or [("file", error.message)]) from None
        return query

    def said(self, query: SparkQuery) -> str:
        if self.origin == SparkQueryOrigin.LISTENER:
            return f"{query.name} is watched as soon as its listener runs."
        if self.origin == SparkQueryOrigin.URL:
            return f"{query.name} is watched; its URL is asked within half a minute."
        return f"{query.name} has {counted(query.batches.count(), 'micro-batch', 'micro-batches')}."

    def show(self, form: SparkQueryForm, status: int = 200) -> HttpResponse:
        url = reverse("pages:spark-query-new", args=[self.slug])
        tabs = [(way.label, f"{url}?origin={way.value}", way == self.origin) for way in WAYS]
        body = {"cluster": self.slug, "name": "orders", "origin": self.origin.value}
        return self.page({"form": form, "tabs": tabs, "way": WAYS[self.origin], "body": body}, status)


class _OfSparkQuery(ClusterPage):
    """A page about one Spark query that the cluster sees."""

    def query(self, pk: int) -> SparkQuery:
        return self.find(_rows(self), "Spark query", pk=pk)

    def back(self, text: str, pk: int) -> HttpResponse:
        return done(self.request, text, "pages:spark-query", self.slug, pk)

    def show_query(self, query: SparkQuery, status: int = 200, **context: Any) -> HttpResponse:
        """The query's page, with a form that was refused."""
        typed = self.request.GET.get("last", "")
        shown = int(typed) if typed in {str(number) for number in SHOWN} else SHOWN[0]
        facts = SparkQueryFacts(query, shown)
        table = batches_table(self.request, query, facts.batches, facts.intervals)
        plans = reverse("pages:resource-plan-new", args=[self.slug])
        shared = {
            "facts": facts,
            "query": query,
            "table": table,
            "shown": [(number, number == shown) for number in SHOWN],
            "progress_form": ProgressForm(),
            "listener": listener_code(query, self.request),
            "size_url": f"{plans}?engine=microbatch&source=spark:{query.pk}",
        }
        return self.page(shared | context, status, "pages/microbatch/query.html")


class SparkQueryPage(_OfSparkQuery):
    """`/c/<slug>/provisioning/spark/<number>/`; `?last=480` shows more micro-batches."""

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        return self.show_query(self.query(pk))


class SparkQueryUpload(_OfSparkQuery):
    """`/c/<slug>/provisioning/spark/<number>/progress/`: a file of progress."""

    body_sizes = {"POST": DOCUMENT}

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        query, form = self.query(pk), ProgressForm(request.POST, request.FILES)
        if form.is_valid():
            try:
                text = documents_of(form.cleaned_data["file"])
                answer = progress_ingest(query=query, documents=text.documents, unread=text.left_out)
            except (Malformed, TooLarge, Impossible) as error:
                show_faults(form, error)
            else:
                return self.back(_taken(answer), pk)
        return self.show_query(self.query(pk), 422, progress_form=form)


class SparkQueryRefit(_OfSparkQuery):
    """`/c/<slug>/provisioning/spark/<number>/refit/`"""

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        query = self.query(pk)
        try:
            fit = fit_refit(query=query, user=signed_in_user(request))
        except Impossible as refused:
            return self.show_query(query, refused.status, notice=refused.message)
        return self.back(f"{query.name} is fitted to its newest {fit.batches} micro-batches.", pk)


class SparkQueryApply(_OfSparkQuery):
    """`/c/<slug>/provisioning/spark/<number>/apply/`; `?trigger_s=2&executors=3` are settings of a plan."""

    template_name = "pages/microbatch/apply.html"
    scope = "operate"

    def get(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        query = self.query(pk)
        planned = {name: request.GET[name] for name in ApplyForm.Meta.fields if name in request.GET}
        if query.is_own and query.wanted_trigger_s is not None:
            planned = {"trigger_s": query.wanted_trigger_s} | planned
        return self.show(query, ApplyForm(instance=query, initial=planned))

    def post(self, request: HttpRequest, slug: str, pk: int) -> HttpResponse:
        query = self.query(pk)
        form = ApplyForm(request.POST, instance=query)
        if form.is_valid():
            user = signed_in_user(request)
            saved, is_saved = try_service(form, lambda: settings_apply(query=query, user=user, **form.values))
            if is_saved:
                text = f"{query.name}: the settings are in force from now on."
                if saved.is_own:
                    text = f"{query.name} changes its trigger after the batch in work."
                return self.back(text, pk)
        return self.show(self.query(pk), form, 422)

    def show(self, query: SparkQuery, form: ApplyForm, status: int = 200) -> HttpResponse:
        wanted = _settings_shown(query, form)
        conf = [f"--conf {name}={value}" for name, value in wanted.conf]
        return self.page({"query": query, "form": form, "copied": "\n".join([*conf, *wanted.code])}, status)


class SparkQueryCrud(Crud):
    """Change and deletion of a Spark query."""

    noun = "Spark query"
    keyword = "query"
    form_class = SparkQueryForm
    template_name = "pages/microbatch/edit.html"
    back = "pages:spark-query"
    delete_name = "pages:spark-query-delete"
    text_deleted = "{row} is no longer watched; its micro-batches are gone."
    service_update = staticmethod(spark_query_update)
    service_delete = staticmethod(spark_query_delete)

    def rows(self) -> QuerySet[SparkQuery]:
        return _rows(self)

    def back_arguments(self, row: Any) -> list[Any]:
        return [self.slug, row.pk]

    def post_delete(self, row: Any) -> HttpResponse:
        self.delete_row(row)
        return done(self.request, self.text_deleted.format(row=row.name), "pages:spark-queries", self.slug)


def _rows(page: ClusterPage) -> QuerySet[SparkQuery]:
    return spark_queries_visible(page.cluster)


def _file_path(path: str) -> str:
    """Where the form shows a fault: the name of the query has a field of its own."""
    return path if path == "spark_name" else f"file {path}".strip()


def _taken(answer: ProgressAnswer) -> str:
    told = f"{counted(answer.accepted, 'micro-batch', 'micro-batches')} taken in"
    told = f"{told}, {answer.repeated} known already." if answer.repeated else f"{told}."
    return f"{told} Left out: {listed(answer.unread, 3)}." if answer.unread else told


def _settings_shown(query: SparkQuery, form: ApplyForm) -> SparkSettings:
    """The settings as the form has them, for the texts to copy; those in force where it has none."""
    values = dict(query.setting_values)
    for name in form.fields:
        value = form[name].value()
        try:
            if value not in (None, ""):
                values[name] = form.fields[name].to_python(value)
        except ValidationError:  # shown at its field
            continue
    return SparkSettings(**values)
