"""Every page of a registration for create, change and delete has inherited tests, or an exemption written here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

from django.urls import Resolver404, URLPattern, URLResolver, get_resolver, resolve

from apps.pages.crud import BaseCrud
from tests.apps.pages.crud import RowTests

#: Pages that are tested by hand, and where.
EXEMPT = {
    "cluster-new": "fleet/test_views.py",
    "cluster-edit": "fleet/test_views.py",
    "cluster-delete": "fleet/test_views.py, its name has to be typed",
    "saved-view-new": "saved_views/test_views.py, for every role",
    "saved-view": "saved_views/test_views.py, for every role",
    "saved-view-delete": "saved_views/test_views.py, for every role",
    "backtest-delete": "backtests/test_views.py",
    "scenario-delete": "provisioning/test_views.py",
}


def _registered(patterns: list[Any]) -> Iterator[str]:
    for entry in patterns:
        if isinstance(entry, URLResolver):
            yield from _registered(entry.url_patterns)
        elif isinstance(entry, URLPattern) and issubclass(getattr(entry.callback, "view_class", object), BaseCrud):
            yield str(entry.name)


def _subclasses(cls: type[RowTests]) -> Iterator[type[RowTests]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _page_name(url: str) -> str | None:
    """The page at an address whose row has a number or a UUID."""
    for key in (1, UUID(int=0)):
        try:
            return resolve(url.format(pk=key, name="x")).url_name
        except Resolver404:
            continue
    return None


def test_every_registered_page_has_inherited_tests() -> None:
    here = Path(__file__).parent
    for file in here.rglob("test_crud.py"):
        importlib.import_module(".".join(("tests.apps.pages", *file.relative_to(here).with_suffix("").parts)))
    tested = {
        _page_name(url)
        for case in _subclasses(RowTests)
        for url in (case.create_url, case.change_url, case.delete_url)
        if url
    }
    missing = set(_registered(get_resolver().url_patterns)) - tested - set(EXEMPT)
    assert not missing, f"list these pages in a test_crud.py: {sorted(missing)}"
