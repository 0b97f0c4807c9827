"""A web process that is killed within a POST with an `Idempotency-Key`: sent again, its effect is there once."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from rest_framework.test import APIClient

from apps.accounts.services import user_create
from tests.apps.concurrency import run_concurrently
from tests.databases import copy_sqlite_template
from tests.e2e.installation import DjangoShell

pytestmark = pytest.mark.process
_POST = """
import json, os, signal, sys
from django.conf import settings
from rest_framework.test import APIClient
from apps.accounts.models import User
from apps.core.rest import idempotency
from apps.jobs import services
from tests.apps.people import person

def post(when, path, body):
    die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    if when == "before the answer is stored":
        idempotency._remember = die
    if when == "before the job is sent":
        services._send = die
    settings.ALLOWED_HOSTS = ["testserver"]
    user = User.objects.filter(username="ada").first() or person("ada", "admin")
    client = APIClient()
    client.force_authenticate(user)
    answer = client.post(path, json.loads(body), format="json", headers={"Idempotency-Key": f"k {path}"})
    return [answer.status_code, answer.headers.get("Idempotency-Replayed"), answer.json()]

reader, writer = os.pipe()
if (child := os.fork()) == 0:
    try:
        os.write(writer, json.dumps(post(*sys.argv[1:])).encode())
    finally:
        os._exit(0)
os.close(writer)
with open(reader) as written:
    answer = written.read()
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(json.dumps([code, answer]))
"""
_DOCUMENT = {
    "subinterval_s": 0.25,
    "sources": [{"id": "source", "arrivals": [2.0] * 16}],
    "nodes": [{"id": "a", "capacity_cps": 10.0}],
    "operators": [
        {
            "id": "tiny/in",
            "query": "tiny",
            "node": "a",
            "inputs": [{"from": "source", "selectivity": 1.0, "cycles_per_event": 1.0}],
        }
    ],
}
_CLUSTERS = ("/api/v1/clusters", {"slug": "eu-1", "name": "Europe"})


class _Web:
    """Processes that answer one POST each, on one database: copies of one that has the console loaded."""

    def __init__(self, database_url: str, redis_url: str, var_dir: Path) -> None:
        settled = {"SLUICE_VAR_DIR": str(var_dir), "DATABASE_URL": database_url, "REDIS_URL": redis_url}
        self._shell = DjangoShell(os.environ | settled | {"DJANGO_SETTINGS_MODULE": "console.settings"})

    def post(self, when: str, path: str, body: Any) -> Any:
        """Status, header and body of the answer; None where the process was killed."""
        code, answer = json.loads(self._shell.run(_POST, when, path, json.dumps(body)))
        if code == -signal.SIGKILL:
            return None
        assert code == 0 and answer, "an error in the process of the POST"
        return json.loads(answer)

    def close(self) -> None:
        self._shell.close()


@pytest.fixture
def web(tmp_path: Path, redis_url: str) -> Iterator[_Web]:
    copy_sqlite_template(tmp_path / "sluice.sqlite3")
    with closing(_Web("", redis_url, tmp_path)) as processes:
        yield processes


def check_effect_is_undone_with_its_answer(web: _Web) -> None:
    path, body = _CLUSTERS
    assert web.post("before the answer is stored", path, body) is None
    status, replayed, first = web.post("never", path, body)
    assert (status, replayed) == (201, None)  # had the effect stayed, its name would be taken: 409
    assert web.post("never", path, body) == [201, "true", first]


def test_an_effect_without_an_answer_is_undone(web: _Web) -> None:
    check_effect_is_undone_with_its_answer(web)


@pytest.mark.postgres
def test_an_effect_without_an_answer_is_undone_on_postgresql(postgres_db: str, redis_url: str, tmp_path: Path) -> None:
    with closing(_Web(postgres_db, redis_url, tmp_path)) as processes:
        check_effect_is_undone_with_its_answer(processes)


@pytest.mark.postgres
def test_the_same_key_at_the_same_moment_is_one_effect_and_one_answer_on_postgresql(postgres_db: str) -> None:
    user = user_create(username="ada", password="correct horse battery", role="admin")
    answers: list[Any] = []

    def post() -> None:
        client = APIClient()
        client.force_authenticate(user)
        answers.append(client.post(*_CLUSTERS, format="json", headers={"Idempotency-Key": "k"}))

    assert run_concurrently([post] * 6) == {"done": 6}
    assert {answer.status_code for answer in answers} == {201}
    assert all(answer.json() == answers[0].json() for answer in answers)
    assert sorted(answer.headers.get("Idempotency-Replayed", "") for answer in answers) == [""] + ["true"] * 5


def test_a_job_that_was_committed_and_not_sent_is_asked_for_once(web: _Web) -> None:
    """Its row waits for the sweep, and the key gives the same job."""
    asked = ("/api/v1/estimates", {"document": _DOCUMENT})
    assert web.post("before the job is sent", *asked) is None
    answers = [web.post("never", *asked) for _ in range(2)]
    assert [answer[1] for answer in answers] == ["true", "true"], answers
