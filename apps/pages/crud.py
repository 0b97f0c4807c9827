"""Pages that create, change and delete rows: a registration names queryset, form and services.

class PoolCrud(Crud):
    noun = "pool"
    form_class = PoolForm
    template_name = "pages/fleet/row_form.html"
    back = "pages:pools"
    delete_name = "pages:pool-delete"
    service_create = staticmethod(services.pool_create)
    service_update = staticmethod(services.pool_update)
    service_delete = staticmethod(services.pool_delete)

    def rows(self) -> QuerySet[NodePool]:
        return self.cluster.pools.all()

path("c/<str:slug>/fleet/new/pool/", PoolCrud.create_view(), name="pool-new"),
path("c/<str:slug>/fleet/pools/<int:pk>/", PoolCrud.change_view(), name="pool-edit"),
path("c/<str:slug>/fleet/pools/<int:pk>/delete/", PoolCrud.delete_view(), name="pool-delete"),
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar
from urllib.parse import urlencode

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.errors import Conflict, Missing
from apps.core.reach import caller_now
from apps.pages.base import ClusterPage, Page, done, try_service
from apps.ui.feedback import toast

__all__ = ["BaseCrud", "Crud", "RowForm", "kept_query"]


class RowForm(forms.ModelForm):
    """A form of a row whose service checks everything at once; a second check here would report some faults twice."""

    def _post_clean(self) -> None:
        """The instance is left alone: services assign and check it."""


def kept_query(form: forms.BaseForm, names: Iterable[str]) -> str:
    """The values typed into some fields, as the query of the address of the next form; empty ones are left out."""
    return urlencode({name: value for name in names if (value := form.data.get(form.add_prefix(name)))})


class BaseCrud(Page):
    """Pages of one kind of row that belongs to no cluster; `Crud` is the usual one.

    The parameters of the address look the row up: `<int:pk>`, `<str:name>`. Services take the values of the form; those
    that change or delete take the row by the keyword `keyword`.
    """

    noun = ""  #: the kind of row in words
    keyword = ""  #: by which services take the row; the noun when empty
    form_class: type[forms.BaseForm]
    form_keyword = "instance"  #: by which the form takes the row
    fault_fields: Mapping[str, str] = {}  #: fields of the faults whose paths are no names of fields
    shows_refusals = False  #: whether a refused deletion shows the form with the reason, or the error page
    back = ""  #: name of the page to go on to
    delete_name = ""  #: name of the page that deletes, for the button on the form
    kept_fields: tuple[
        str, ...
    ] = ()  #: what the next row has in common with the last; empty: no "Save and add another"
    text_saved = "{row} is saved."
    text_deleted = "{row} is deleted."

    service_create: ClassVar[Callable[..., Any]]
    service_update: ClassVar[Callable[..., Any]]
    service_delete: ClassVar[Callable[..., Any]]

    scope = "operate"
    change_scope = "operate"  #: for reading the form of a row
    action = "create"

    @classmethod
    def create_view(cls) -> Callable[..., HttpResponseBase]:
        return cls.as_view(action="create")

    @classmethod
    def change_view(cls) -> Callable[..., HttpResponseBase]:
        return cls.as_view(action="change", scope=cls.change_scope)

    @classmethod
    def delete_view(cls) -> Callable[..., HttpResponseBase]:
        return cls.as_view(action="delete", http_method_names=["post"])

    # -- a registration overrides what differs
    def rows(self) -> QuerySet[Any]:
        """The rows that the address may name."""
        raise NotImplementedError

    def row(self, **key: Any) -> Any:
        """The row that the address names."""
        row = self.rows().filter(**key).first()
        if row is None:
            raise Missing(f"There is no {self.noun} {next(iter(key.values()))}.")
        return row

    def owner(self) -> Mapping[str, object]:
        """Arguments of the service that creates, besides the form's values."""
        return {}

    def form_arguments(self, row: Any) -> dict[str, Any]:
        """Arguments of the form, besides the row and the typed values."""
        return {}

    def values(self, form: Any) -> Mapping[str, object]:
        """The values that services take from a valid form: its `values`, if it has any."""
        return form.values if hasattr(form, "values") else form.cleaned_data

    def context(self, row: Any) -> Mapping[str, object]:
        """Context of the template, besides the form and the row."""
        return {}

    def back_arguments(self, row: Any) -> list[Any]:
        return []

    # -- writes
    def create(self, form: Any) -> Any:
        return type(self).service_create(**self.owner(), **self.values(form))

    def update(self, row: Any, form: Any) -> Any:
        return type(self).service_update(**{self.keyword or self.noun: row}, **self.values(form))

    def delete_row(self, row: Any) -> None:
        type(self).service_delete(**{self.keyword or self.noun: row})

    # -- requests
    def get(self, request: HttpRequest, **key: Any) -> HttpResponse:
        return self.show(self.form(row := self.asked_row(**key)), row)

    def post(self, request: HttpRequest, **key: Any) -> HttpResponse:
        row = self.asked_row(**key)
        if self.action == "delete":
            return self.post_delete(row)
        form = self.form(row, request.POST, request.FILES)
        if form.is_valid():
            saved, is_saved = try_service(form, lambda: self.store(form, row), dict(self.fault_fields))
            if is_saved:
                adds_another = self.action == "create" and self.kept_fields and "another" in request.POST
                return self.another(form, saved) if adds_another else self.saved(saved)
            if row is not None:
                row.refresh_from_db()  # the service assigned to it what it then refused
        return self.show(form, row, 422)

    def post_delete(self, row: Any) -> HttpResponse:
        name, arguments = str(row), self.back_arguments(row)
        try:
            self.delete_row(row)
        except Conflict as refusal:
            if not self.shows_refusals:
                raise
            return self.show(self.form(row), row, refusal.status, notice=refusal.message)
        return done(self.request, self.text_deleted.format(row=name), self.back, *arguments)

    def asked_row(self, **key: Any) -> Any:
        """The row that is changed or deleted; None where one is created, which without a cluster is on everything."""
        if self.action != "create":
            return self.row(**key)
        caller_now().check_everything()
        return None

    def store(self, form: Any, row: Any) -> Any:
        return self.create(form) if row is None else self.update(row, form)

    def saved(self, row: Any) -> HttpResponse:
        return done(self.request, self.text_saved.format(row=row), self.back, *self.back_arguments(row))

    def another(self, form: Any, row: Any) -> HttpResponse:
        """The empty form again, with the kept fields of the row that was saved."""
        toast(self.request, self.text_saved.format(row=row))
        return redirect(f"{self.request.path}?{kept_query(form, self.kept_fields)}")

    def form(self, row: Any, *data: Any) -> Any:
        arguments = self.form_arguments(row)
        if row is None and not data:
            kept = {name: self.request.GET[name] for name in self.kept_fields if name in self.request.GET}
            arguments = {**arguments, "initial": {**arguments.get("initial", {}), **kept}}
        return self.form_class(*data, **arguments, **({self.form_keyword: row} if row is not None else {}))

    def show(self, form: Any, row: Any = None, status: int = 200, **context: Any) -> HttpResponse:
        delete_url = reverse(self.delete_name, kwargs=self.kwargs) if row is not None and self.delete_name else ""
        back = reverse(self.back, args=self.back_arguments(row)) if self.back else ""
        shared = {"form": form, "row": row, "noun": self.noun, "back": back, "delete_url": delete_url}
        shared["may_add_another"] = row is None and bool(self.kept_fields)
        return self.page({**shared, **self.context(row), **context}, status)


class Crud(BaseCrud, ClusterPage):
    """Pages of one kind of row of a cluster: `self.cluster` is the one of the address."""

    def get(self, request: HttpRequest, slug: str, **key: Any) -> HttpResponse:  # type: ignore[override]
        return super().get(request, **key)

    def post(self, request: HttpRequest, slug: str, **key: Any) -> HttpResponse:  # type: ignore[override]
        return super().post(request, **key)

    def row(self, **key: Any) -> Any:
        return self.find(self.rows(), self.noun, **key)

    def owner(self) -> Mapping[str, object]:
        return {"cluster": self.cluster}

    def back_arguments(self, row: Any) -> list[Any]:
        return [self.slug]
