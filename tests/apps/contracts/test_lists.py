"""Every list speaks one grammar: filters by field and operator, orders by name, pages that neither repeat nor hide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator
from rest_framework.test import APIClient

from apps.core.filters import BooleanFilter, ChoiceFilter, FieldFilter, ListFilter, NumberFilter, TimeFilter
from tests.apps.contracts.endpoints import ENDPOINTS
from tests.apps.contracts.test_endpoints import address, client_of
from tests.thoroughness import share_of

pytestmark = pytest.mark.django_db

LISTS = [
    name
    for name, row in ENDPOINTS.items()
    if "GET" in row.methods
    and (name.endswith(("-list", "-versions", "-results", "-batches")) or name in {"configs", "rollouts"})
    and not row.other_sign_in
]
ODD_VALUES = ("%", "%s", "100%", "%(name)s", "{}", "{name}", "1e999", "²", "9" * 400)
_STRICT = (BooleanFilter, ChoiceFilter, NumberFilter, TimeFilter)
every_list = pytest.mark.parametrize("name", share_of(LISTS, every=6))


def batched(filters: Iterable[tuple[str, FieldFilter]]) -> Iterator[list[tuple[str, FieldFilter]]]:
    rest = iter(filters)
    while batch := list(islice(rest, 10)):
        yield batch


def filterset_of(path: str) -> type[ListFilter]:
    view: Any = resolve(path.partition("?")[0]).func
    action = view.actions["get"]
    return getattr(getattr(view.cls, action), "kwargs", {}).get("filterset_class", view.cls.filterset_class)


def sample(row: FieldFilter) -> str:
    if isinstance(row, BooleanFilter):
        return "true"
    if isinstance(row, ChoiceFilter):
        return str(row.choices[0][0])
    return "2026-03-01T08:00:00Z" if isinstance(row, TimeFilter) else "3"


def rows_of(client: APIClient, path: str, **parameters: str) -> list[Any]:
    """All rows, page by page, and the same again backwards."""
    answer = client.get(path, parameters)
    assert answer.status_code == 200, answer.content
    pages = [answer.json()]
    while pages[-1]["next"]:
        pages.append(client.get(pages[-1]["next"]).json())
    back = pages[-1]
    for page in pages[-2::-1]:
        back = client.get(back["previous"]).json()
        assert back["results"] == page["results"]
    assert back["previous"] is None
    return [row for page in pages for row in page["results"]]


def test_the_catalogue_of_lists_is_what_the_description_pages_through(world: dict[str, Any]) -> None:
    schema: Any = SchemaGenerator().get_schema(request=None, public=True)
    paged = [
        operation
        for operations in schema["paths"].values()
        for method, operation in operations.items()
        if method == "get" and "cursor" in {row["name"] for row in operation.get("parameters", ())}
    ]
    assert len(paged) == len(LISTS)
    described = {frozenset(row["name"] for row in operation["parameters"]) for operation in paged}
    for name in LISTS:
        filterset = filterset_of(address(name, world))
        told = {*filterset.base_filters, "sort", "cursor", "page_size"}
        assert any(told <= names for names in described), name


@every_list
def test_list_is_sorted_by_each_of_its_names_both_ways(name: str, world: dict[str, Any]) -> None:
    client, path = client_of("admin"), address(name, world)
    plain = client.get(path).json()["results"]
    size = str(max(1, len(plain) // 3))  # three pages or four
    assert filterset_of(path).sorts
    for sort in filterset_of(path).sorts:
        for order in (sort, f"-{sort}"):
            rows = rows_of(client, path, sort=order, page_size=size)
            assert len(rows) == len(plain), order
            for row in plain:
                assert row in rows, order


@every_list
def test_list_takes_each_filter_with_each_operator(name: str, world: dict[str, Any]) -> None:
    """Ten at a time: each may join tables of its own, of which SQLite joins 64."""
    client, path = client_of("admin"), address(name, world)
    for filters in batched(filterset_of(path).base_filters.items()):
        answer = client.get(path, {parameter: sample(row) for parameter, row in filters} | {"page_size": "1"})
        assert answer.status_code == 200, (filters, answer.content)
        strict = [(parameter, row) for parameter, row in filters if isinstance(row, _STRICT)]
        if strict:
            refused = client.get(path, dict.fromkeys((parameter for parameter, _ in strict), "nonsense")).json()
            assert refused["code"] == "malformed"
            assert refused["faults"] == [
                {"path": parameter, "message": f"it is 'nonsense'; allowed: {row.allowed}"} for parameter, row in strict
            ]


@every_list
def test_filter_and_its_opposite_part_the_list(name: str, world: dict[str, Any]) -> None:
    client, path = client_of("admin"), address(name, world)
    every = len(client.get(path).json()["results"])
    for parameter, row in filterset_of(path).declared_filters.items():
        if "ne" in row.operators:
            asked = [{key: sample(row)} for key in (parameter, f"{parameter}__ne")]
            assert sum(len(client.get(path, one).json()["results"]) for one in asked) == every, parameter


@every_list
def test_no_value_of_a_filter_is_an_error_of_the_server(name: str, world: dict[str, Any]) -> None:
    """Odd values take turns over the filters of all lists, so that each kind of filter gets each of them."""
    client, path = client_of("admin"), address(name, world)
    for number, parameter in enumerate(filterset_of(path).base_filters, start=LISTS.index(name)):
        value = ODD_VALUES[number % len(ODD_VALUES)]
        answer = client.get(path, {parameter: value, "page_size": "1"})
        assert answer.status_code in {200, 400}, (parameter, value)
        if answer.status_code == 400:
            assert [fault["path"] for fault in answer.json()["faults"]] == [parameter]
            assert value[:40] in answer.json()["faults"][0]["message"]


@every_list
def test_list_refuses_names_that_it_does_not_have_and_says_which_it_has(name: str, world: dict[str, Any]) -> None:
    client, path = client_of("admin"), address(name, world)
    filterset = filterset_of(path)
    for parameters, where, known in (
        ({"sort": "zzz,-qqq"}, ["sort", "sort"], list(filterset.sorts)),
        ({"zzz": "1", "qqq": "1"}, ["zzz", "qqq"], [*filterset.declared_filters, "sort", "cursor", "page_size"]),
    ):
        refused = client.get(path, parameters)
        faults = refused.json()["faults"]
        assert refused.status_code == 400
        assert [fault["path"] for fault in faults] == where
        assert all(word in faults[0]["message"] for word in known)
    first = next(iter(filterset.declared_filters))
    (fault,) = client.get(path, {f"{first}__zzz": "1"}).json()["faults"]
    assert "unknown operator" in fault["message"]
    twice = next(iter(filterset.sorts))
    assert "twice" in client.get(path, {"sort": f"{twice},-{twice}"}).json()["detail"]
