"""Inherited tests of the pages that create, change and delete a row: a subclass lists addresses and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from django.db.models import Model
from django.test import Client

from apps.fleet.models import Cluster

__all__ = ["CrudTests"]


@pytest.mark.django_db
class CrudTests:
    """The life of one row in the browser: create, change, delete; refusals, roles and addresses of rows that are gone.

    Addresses hold `{pk}` or `{name}` of the row. Those left empty are no pages.
    """

    model: ClassVar[type[Model]]
    key: ClassVar[dict[str, Any]]  #: finds the row that `valid` describes
    create_url: ClassVar[str] = ""
    change_url: ClassVar[str] = ""
    delete_url: ClassVar[str] = ""
    valid: ClassVar[dict[str, Any]] = {}
    changed: ClassVar[dict[str, Any]] = {}  #: what a second form holds otherwise; also the row's values afterwards
    invalid: ClassVar[dict[str, Any]] = {}  #: what is refused
    viewer_reads_form: ClassVar[bool] = False

    @pytest.fixture(autouse=True)
    def prepare(self, cluster: Cluster) -> None:
        """A cluster to work in; a subclass adds what its rows need."""
        self.cluster = cluster

    def typed(self, **values: Any) -> dict[str, Any]:
        """The valid form as a browser sends it."""
        return {**self.valid, **values}

    def make(self, browser: Client) -> Model:
        """The row of the valid form; rows that no page creates are made by a subclass."""
        response = browser.post(self.create_url, self.typed())
        assert response.status_code in {201, 302}, response.content.decode()
        return self.model.objects.get(**self.key)

    def address(self, url: str, row: Model) -> str:
        return url.format(pk=row.pk, name=getattr(row, "name", ""))

    def gone(self, url: str) -> str:
        return url.format(pk=987654, name="no-such-row")

    def test_form_creates_a_row(self, browser: Client) -> None:
        if not self.create_url:
            pytest.skip("no page creates it")
        assert browser.get(self.create_url).status_code == 200
        assert self.make(browser).pk

    def test_invalid_form_creates_nothing(self, browser: Client) -> None:
        if not self.create_url or not self.invalid:
            pytest.skip("no page creates it")
        before = self.model.objects.count()
        assert browser.post(self.create_url, self.typed(**self.invalid)).status_code == 422
        assert self.model.objects.count() == before

    def test_form_changes_a_row(self, browser: Client) -> None:
        if not self.change_url:
            pytest.skip("no page changes it")
        row = self.make(browser)
        url = self.address(self.change_url, row)
        assert browser.get(url).status_code == 200
        assert browser.post(url, self.typed(**self.changed)).status_code == 302
        row.refresh_from_db()
        assert {name: str(getattr(row, name)) for name in self.changed} == {
            name: str(value) for name, value in self.changed.items()
        }

    def test_invalid_form_changes_nothing(self, browser: Client) -> None:
        if not self.change_url or not self.invalid:
            pytest.skip("no page changes it")
        row = self.make(browser)
        before = self.model.objects.filter(pk=row.pk).values().get()
        assert browser.post(self.address(self.change_url, row), self.typed(**self.invalid)).status_code == 422
        assert self.model.objects.filter(pk=row.pk).values().get() == before

    def test_post_deletes_a_row(self, browser: Client) -> None:
        if not self.delete_url:
            pytest.skip("no page deletes it")
        row = self.make(browser)
        assert browser.post(self.address(self.delete_url, row)).status_code == 302
        assert not self.model.objects.filter(pk=row.pk).exists()

    def test_get_deletes_nothing(self, browser: Client) -> None:
        if not self.delete_url:
            pytest.skip("no page deletes it")
        row = self.make(browser)
        assert browser.get(self.address(self.delete_url, row)).status_code in {302, 405}
        assert self.model.objects.filter(pk=row.pk).exists()

    def test_row_that_does_not_exist_is_not_found(self, browser: Client) -> None:
        if self.change_url:
            assert browser.get(self.gone(self.change_url)).status_code == 404
            assert browser.post(self.gone(self.change_url), self.typed()).status_code == 404
        if self.delete_url:
            assert browser.post(self.gone(self.delete_url)).status_code == 404

    def test_viewer_changes_nothing(self, browser: Client, browser_of: Callable[..., Client]) -> None:
        viewer, row = browser_of("viewer"), self.make(browser)
        if self.create_url:
            assert viewer.get(self.create_url).status_code == 403
            assert viewer.post(self.create_url, self.typed()).status_code == 403
        if self.change_url:
            url = self.address(self.change_url, row)
            assert viewer.get(url).status_code == (200 if self.viewer_reads_form else 403)
            assert viewer.post(url, self.typed(**self.changed)).status_code == 403
        if self.delete_url:
            assert viewer.post(self.address(self.delete_url, row)).status_code == 403
        assert self.model.objects.filter(pk=row.pk).exists()

    def test_stranger_is_sent_to_the_sign_in(self) -> None:
        for url in filter(None, (self.create_url, self.change_url, self.delete_url)):
            assert Client().post(self.gone(url)).headers["Location"].startswith("/login/")
