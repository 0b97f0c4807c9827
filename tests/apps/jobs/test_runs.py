"""A kind of run is a model and one module. This one counts words, and lives its life through the REST API."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, models
from django.test.utils import isolate_apps
from django.urls import include, path
from django.utils import timezone
from rest_framework import serializers
from rest_framework.test import APIClient

from apps.accounts.models import User
from apps.core.errors import Impossible
from apps.core.filters import ChoiceFilter, ListFilter, sort_paths
from apps.core.rest.api import Router, StrictSerializer
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField
from apps.jobs.models import Job, JobState, Run
from apps.jobs.runner import JobReporter, run_job
from apps.jobs.runs import RUN_KINDS, RunKind, register, runs_purge
from apps.jobs.services import job_cancel
from apps.jobs.viewsets import RunDeletion, RunRowSerializer, RunViewSet, describe_create
from tests.apps.small_cluster import small_cluster

STATES = [(state, state.title()) for state in ("asked", "answered", "failed", "cancelled")]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

with isolate_apps() as registry:  # no other test knows of its table
    for known in (Cluster, Job, User):
        registry.register_model(known._meta.app_label, known)

    class WordCount(Run):
        """Words of a text, counted."""

        cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="+")
        text = models.TextField()

        class Meta(Run.Meta):
            app_label = "jobs"

        @property
        def answered_at(self) -> Any:
            return self.finished_at if self.state == "answered" else None


class WordCountKind(RunKind[WordCount]):
    model, job, name, path = WordCount, "tests.count_words", "word_count", "word-counts"
    topics = ("word-count", "word-counts")
    bulk = ("result",)
    retention = timedelta(days=1)

    def title(self, run: WordCount) -> str:
        return f"Count words of {run.cluster.slug}"

    def page(self, run: WordCount) -> str:
        return f"/c/{run.cluster.slug}/word-counts/{run.pk}/"

    def create(self, *, user: User | None, cluster: Cluster, text: str) -> WordCount:
        return WordCount.objects.create(cluster=cluster, requested_by=user, text=text)

    def answer(self, run: WordCount, report: JobReporter) -> None:
        if not run.text.strip():
            raise Impossible("There is no word to count.")
        run.result = {"words": len(run.text.split())}


class WordCountFilter(ListFilter):
    state = ChoiceFilter(choices=STATES)
    sorts = sort_paths("created_at")


class WordCountCreateSerializer(StrictSerializer):
    cluster = ClusterField()
    text = serializers.CharField(allow_blank=True)


class WordCountSerializer(RunRowSerializer):
    class Meta:
        model = WordCount
        fields = ["id", "cluster", "text", "state", "message", "job", "requested_by", "created_at", "answered_at"]


class WordCountDetailSerializer(WordCountSerializer):
    class Meta(WordCountSerializer.Meta):
        fields = [*WordCountSerializer.Meta.fields, "result"]


WORD_COUNT = WordCountKind()


@describe_create("Count the words of a text.")
class WordCountViewSet(RunDeletion, RunViewSet):
    kind = WORD_COUNT
    queryset = WordCount.objects.none()
    filterset_class = WordCountFilter
    serializer_class, detail_class = WordCountSerializer, WordCountDetailSerializer
    question_class = WordCountCreateSerializer


router = Router()
router.register(WORD_COUNT.path, WordCountViewSet, basename="word-count")
urlpatterns = [path("api/v1/", include(router.urls)), path("", include("console.urls"))]
URL = "/api/v1/word-counts"


@pytest.fixture(autouse=True)
def _kind(transactional_db: None) -> Iterator[None]:
    with connection.schema_editor() as editor:
        editor.create_model(WordCount)
    register(WORD_COUNT)
    yield
    del RUN_KINDS[WORD_COUNT.job]
    with connection.schema_editor() as editor:
        editor.delete_model(WordCount)


@pytest.fixture
def ask(api: APIClient) -> Callable[..., Job]:
    cluster = small_cluster()

    def post(text: str, **headers: str) -> Job:
        response = api.post(URL, {"cluster": cluster.slug, "text": text}, "json", headers=headers)
        assert response.status_code == 202, response.content
        assert response["Location"] == f"/api/v1/jobs/{response.json()['id']}"
        return Job.objects.get(pk=response.json()["id"])

    return post


def shown(api: APIClient, job: Job) -> Any:
    return api.get(f"{URL}/{job.params['word_count']}").json()


def test_run_is_requested_listed_and_answered(api: APIClient, ask: Callable[..., Job]) -> None:
    job = ask("to be or not to be")
    assert (job.title, job.result_api_url) == ("Count words of little", f"{URL}/{job.params['word_count']}")
    assert (shown(api, job)["state"], shown(api, job)["result"]) == ("asked", None)
    ended = run_job(job.pk, WORD_COUNT.work)
    assert ended is not None and ended.state == JobState.SUCCEEDED
    assert (ended.result, ended.result_api_url) == ({"word_count": job.params["word_count"]}, job.result_api_url)
    answer = shown(api, job)
    assert (answer["state"], answer["result"], answer["cluster"]) == ("answered", {"words": 6}, "little")
    assert answer["answered_at"]
    (row,) = api.get(f"{URL}?state=answered&sort=-created_at").json()["results"]
    assert row["job"] == str(job.pk) and "result" not in row
    assert api.get(f"{URL}?state=failed").json()["results"] == []


def test_repeated_request_of_one_key_makes_one_run(ask: Callable[..., Job]) -> None:
    first, second = ask("once", **{"Idempotency-Key": "k1"}), ask("once", **{"Idempotency-Key": "k1"})
    assert first == second and WordCount.objects.count() == 1


def test_run_fails_or_is_cancelled_with_its_job(api: APIClient, ask: Callable[..., Job]) -> None:
    failing, cancelled = ask(" "), ask("never counted")
    run_job(failing.pk, WORD_COUNT.work)
    job_cancel(cancelled)
    assert (shown(api, failing)["state"], shown(api, failing)["message"]) == ("failed", "There is no word to count.")
    assert (shown(api, cancelled)["state"], shown(api, cancelled)["result"]) == ("cancelled", None)


def test_run_is_deleted_on_request_and_when_it_is_old(api: APIClient, ask: Callable[..., Job]) -> None:
    gone, old, waiting = ask("gone"), ask("old"), ask("waiting")
    assert api.delete(f"{URL}/{gone.params['word_count']}").status_code == 204
    run_job(old.pk, WORD_COUNT.work)
    WordCount.objects.update(created_at=timezone.now() - timedelta(days=2))
    assert runs_purge() == 1
    assert str(WordCount.objects.get().pk) == waiting.params["word_count"]
