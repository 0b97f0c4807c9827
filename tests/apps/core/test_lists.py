"""Filters, orders and pages of lists, on jobs: ties, rows without a value, rows that come and go."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.test import APIClient

from apps.core.rest.lists import CursorPagination
from apps.jobs.models import Job, JobState

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PATH = "/api/v1/jobs"


@pytest.fixture
def jobs() -> list[Job]:
    """Nine jobs: three states of three, of which a third has not ended; a microsecond between some times."""
    made = []
    for number in range(9):
        state = (JobState.SUCCEEDED, JobState.FAILED, JobState.RUNNING)[number % 3]
        ended = None if state == JobState.RUNNING else NOON + timedelta(microseconds=number // 3)
        made.append(Job(kind="workers.estimate_cluster", title=f"Job {number}", state=state, finished_at=ended))
    Job.objects.bulk_create(made)
    for number, job in enumerate(made):
        Job.objects.filter(pk=job.pk).update(created_at=NOON + timedelta(seconds=number // 4))
    return made


def pages(api: APIClient, **parameters: Any) -> Iterator[dict[str, Any]]:
    page = api.get(PATH, parameters).json()
    yield page
    while page["next"]:
        page = api.get(page["next"]).json()
        yield page


def titles(api: APIClient, **parameters: Any) -> list[str]:
    return [row["title"] for page in pages(api, **parameters) for row in page["results"]]


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("turned", ["", "-"])
@pytest.mark.parametrize("sort", ["state", "finished_at", "created_at", "cluster", "state,-finished_at"])
def test_pages_have_each_row_once_in_order(api: APIClient, jobs: list[Job], sort: str, turned: str, size: int) -> None:
    found = [row for page in pages(api, sort=f"{turned}{sort}", page_size=size) for row in page["results"]]
    assert sorted(row["id"] for row in found) == sorted(str(job.pk) for job in jobs)
    key = sort.partition(",")[0]
    read = datetime.fromisoformat if key.endswith("_at") else str
    values = [read(row[key]) for row in found if row[key] is not None]
    assert values == sorted(values, reverse=bool(turned))
    assert [row[key] is None for row in found] == sorted(row[key] is None for row in found), "without a value: last"


def test_second_name_decides_where_the_first_is_equal(api: APIClient, jobs: list[Job]) -> None:
    found = [row for page in pages(api, sort="state,-finished_at", page_size=2) for row in page["results"]]
    failed = [datetime.fromisoformat(row["finished_at"]) for row in found if row["state"] == "failed"]
    assert failed == sorted(failed, reverse=True)
    assert len(set(failed)) == 3


def test_rows_that_come_and_go_neither_repeat_nor_hide_others(api: APIClient, jobs: list[Job]) -> None:
    reading = pages(api, sort="created_at", page_size=3)
    seen = [row["id"] for row in next(reading)["results"]]
    Job.objects.filter(pk=seen[-1]).delete()
    early = Job.objects.create(kind="workers.estimate_cluster", title="early")
    Job.objects.filter(pk=early.pk).update(created_at=NOON - timedelta(days=1))
    seen += [row["id"] for page in reading for row in page["results"]]
    assert sorted(seen) == sorted(str(job.pk) for job in jobs)


def test_page_before_is_the_page_that_was_read(api: APIClient, jobs: list[Job]) -> None:
    first, second, third = list(pages(api, sort="-finished_at", page_size=3))
    assert api.get(third["previous"]).json()["results"] == second["results"]
    back = api.get(second["previous"]).json()
    assert back["results"] == first["results"]
    assert back["previous"] is None


def test_values_of_a_field_add_up_and_operators_narrow(api: APIClient, jobs: list[Job]) -> None:
    assert len(titles(api, state=["failed", "running"])) == 6
    assert len(titles(api, state__ne=["failed", "running"])) == 3
    assert len(titles(api, finished_at__gt=NOON.isoformat(), state="failed")) == 2
    assert len(titles(api, finished_at__gte=NOON.isoformat(), finished_at__lt=(NOON + timedelta(1)).isoformat())) == 6
    assert titles(api, cluster="") == []


def test_a_yes_or_no_takes_one_value(api: APIClient, jobs: list[Job]) -> None:
    (fault,) = api.get(PATH, {"mine": ["true", "false"]}).json()["faults"]
    assert fault["message"] == "2 values are given; allowed: one"
    assert titles(api, mine="true") == []
    assert len(titles(api, mine="0")) == 9


def test_cursor_of_another_order_is_refused(api: APIClient, jobs: list[Job]) -> None:
    page = api.get(PATH, {"sort": "state", "page_size": 2}).json()
    answer = api.get(page["next"].replace("sort=state", "sort=-state"))
    assert (answer.status_code, answer.json()["faults"][0]["path"]) == (400, "cursor")


@pytest.mark.parametrize("values", [["["], [{}], [True], [-1], [10**400], ["\0"], ["\ud800"], [None], [1e308], []])
def test_forged_cursor_is_refused(api: APIClient, jobs: list[Job], values: list[Any]) -> None:
    """Of the form that cursors have, with other values, which nobody but the server can sign."""
    own = api.get(PATH, {"page_size": 2}).json()["next"].partition("cursor=")[2].partition("&")[0]
    content = json.dumps(["-created_at,pk", False, values]).encode()
    for text in (base64.urlsafe_b64encode(content).decode(), own[:-1] + "x", own.replace(".", ".A", 1), own[5:]):
        answer = api.get(PATH, {"cursor": text})
        assert (answer.status_code, answer.json()["faults"][0]["path"]) == (400, "cursor")


@given(text=st.text(max_size=40))
def test_made_up_cursor_is_refused(text: str) -> None:
    from rest_framework.request import Request
    from rest_framework.test import APIRequestFactory

    from apps.core.errors import Malformed

    request = Request(APIRequestFactory().get(PATH, {"cursor": text}))
    with pytest.raises(Malformed, match="not a cursor"):
        CursorPagination().paginate_queryset(Job.objects.all(), request)
