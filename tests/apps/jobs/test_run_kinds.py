"""Every registered kind of run says of itself what its life needs."""

from __future__ import annotations

from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.urls import resolve

from apps.jobs.runs import RUN_KINDS, AnswerKind

CLUSTER = SimpleNamespace(slug="little")


@pytest.mark.parametrize("job", sorted(RUN_KINDS))
def test_page_and_address_of_a_run_are_served_and_its_columns_exist(job: str) -> None:
    kind = RUN_KINDS[job]
    run = SimpleNamespace(pk=uuid4(), job_id=uuid4(), cluster=CLUSTER, event_id=7, group_id=None)
    run.query = run.definition = SimpleNamespace(name="calm", cluster=CLUSTER)
    page, address = kind.page(run), resolve(kind.address(run))
    assert not page or resolve(page).namespace == "pages"
    assert address.func.cls.kind is kind if kind.path else address.url_name == "job-detail"
    known = {field.name for field in kind.model._meta.concrete_fields}
    assert {"job", *kind.columns, *kind.emptied} <= known
    assert isinstance(kind, AnswerKind) or {"state", "message"} <= known
    assert str(kind.visible().query)


def test_kinds_are_told_apart_by_name_and_path() -> None:
    kinds = list(RUN_KINDS.values())
    paths = [kind.path for kind in kinds if kind.path]
    assert len({kind.name for kind in kinds}) == len(kinds) and len(set(paths)) == len(paths)
