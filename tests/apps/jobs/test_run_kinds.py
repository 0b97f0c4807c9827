"""Every registered kind of run says of itself what its life needs."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.urls import resolve

from apps.jobs.runs import RUN_KINDS

CLUSTER = SimpleNamespace(slug="little")


@pytest.mark.parametrize("job", sorted(RUN_KINDS))
def test_page_and_address_of_a_run_are_served_and_its_columns_exist(job: str) -> None:
    kind = RUN_KINDS[job]
    run = SimpleNamespace(pk=uuid4(), cluster=CLUSTER, query=SimpleNamespace(name="calm", cluster=CLUSTER))
    assert resolve(kind.page(run)).namespace == "pages"
    assert resolve(kind.address(run)).func.cls.kind is kind
    known = {field.name for field in kind.model._meta.concrete_fields}
    assert {"state", "job", "message", *kind.columns, *kind.emptied} <= known
    assert str(kind.visible().query)


def test_kinds_are_told_apart_by_name_and_path() -> None:
    kinds = list(RUN_KINDS.values())
    assert len({kind.name for kind in kinds}) == len({kind.path for kind in kinds}) == len(kinds)
