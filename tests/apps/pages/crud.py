"""Inherited tests of the pages that create, change and delete a row: a subclass lists addresses and values."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from django.db.models import Model
from django.test import Client
from django.urls import resolve

from apps.fleet.models import Cluster

__all__ = ["ChangeTests", "CreateTests", "CrudTests", "DeleteTests", "RowTests"]


@pytest.mark.django_db
class RowTests:
    """One kind of row. Addresses hold `{pk}` or `{name}` of the row."""

    model: ClassVar[type[Model]]
    create_url: ClassVar[str] = ""
    change_url: ClassVar[str] = ""
    delete_url: ClassVar[str] = ""
    key: ClassVar[dict[str, Any]] = {}  #: finds the row that `valid` describes
    valid: ClassVar[dict[str, Any]] = {}  #: a form that is accepted
    changed: ClassVar[dict[str, Any]] = {}  #: other values of a second form, and of the row afterwards
    invalid: ClassVar[dict[str, Any]] = {}  #: values that are refused

    @pytest.fixture(autouse=True)
    def prepare(self, cluster: Cluster) -> None:
        """A cluster to work in; a subclass adds what its rows need."""
        self.cluster = cluster

    def typed(self, **values: Any) -> dict[str, Any]:
        """The valid form as a browser sends it."""
        return {**self.valid, **values}

    def make(self, browser: Client) -> Any:
        """The row of the valid form; a subclass without a page that creates makes it by a service."""
        response = browser.post(self.create_url, self.typed())
        assert response.status_code in {201, 302}, response.content.decode()
        return self.model.objects.get(**self.key)

    def address(self, url: str, row: Any) -> str:
        return url.format(pk=row.pk, name=getattr(row, "name", ""))

    def gone(self, url: str) -> str:
        return url.format(pk=987654, name="no-such-row")


class CreateTests(RowTests):
    """The page that creates."""

    def test_form_creates_a_row(self, browser: Client) -> None:
        assert browser.get(self.create_url).status_code == 200
        assert self.make(browser).pk

    def test_invalid_form_creates_nothing(self, browser: Client) -> None:
        before = self.model.objects.count()
        assert browser.post(self.create_url, self.typed(**self.invalid)).status_code == 422
        assert self.model.objects.count() == before

    def test_next_form_keeps_what_rows_have_in_common(self, browser: Client) -> None:
        """Of registrations that offer to add another, the others show no such button."""
        view: Any = resolve(self.create_url).func
        kept = getattr(view.view_class, "kept_fields", ())
        assert ('name="another"' in browser.get(self.create_url).content.decode()) == bool(kept)
        if not kept:
            return
        saved = browser.post(self.create_url, self.typed(another="1"))
        assert saved.headers["Location"].startswith(f"{self.create_url}?")
        form = browser.get(saved.headers["Location"]).context["form"]
        typed = {name: str(self.valid[name]) for name in kept if self.valid.get(name)}
        assert typed
        assert {name: str(form[name].value()) for name in typed} == typed
        told = {name: form[name].value() for name in self.key if name in form.fields and name not in kept}
        assert all(value != self.valid[name] for name, value in told.items())


class ChangeTests(RowTests):
    """The page that changes."""

    def values(self, row: Any) -> dict[str, Any]:
        return self.model.objects.filter(pk=row.pk).values().get()

    def test_form_changes_a_row(self, browser: Client) -> None:
        row = self.make(browser)
        url = self.address(self.change_url, row)
        assert browser.get(url).status_code == 200
        assert browser.post(url, self.typed(**self.changed)).status_code == 302
        row.refresh_from_db()
        shown = {name: str(getattr(row, name)) for name in self.changed}
        assert shown == {name: str(value) for name, value in self.changed.items()}

    def test_invalid_form_changes_nothing(self, browser: Client) -> None:
        row = self.make(browser)
        before = self.values(row)
        assert browser.post(self.address(self.change_url, row), self.typed(**self.invalid)).status_code == 422
        assert self.values(row) == before

    def test_row_that_does_not_exist_is_not_changed(self, browser: Client) -> None:
        assert browser.get(self.gone(self.change_url)).status_code == 404
        assert browser.post(self.gone(self.change_url), self.typed()).status_code == 404


class DeleteTests(RowTests):
    """The page that deletes."""

    def test_post_deletes_a_row(self, browser: Client) -> None:
        row = self.make(browser)
        assert browser.post(self.address(self.delete_url, row)).status_code == 302
        assert not self.model.objects.filter(pk=row.pk).exists()

    def test_get_deletes_nothing(self, browser: Client) -> None:
        row = self.make(browser)
        assert browser.get(self.address(self.delete_url, row)).status_code in {302, 405}
        assert self.model.objects.filter(pk=row.pk).exists()

    def test_row_that_does_not_exist_is_not_deleted(self, browser: Client) -> None:
        assert browser.post(self.gone(self.delete_url)).status_code == 404


class CrudTests(CreateTests, ChangeTests, DeleteTests):
    """The life of one row in the browser: create, change, delete."""
