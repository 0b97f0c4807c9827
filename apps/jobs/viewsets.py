"""REST: what the viewsets and serializers of all kinds of runs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.permissions import signed_in_user
from apps.core.reach import caller_now
from apps.core.rest.api import ReadViewSet
from apps.core.rest.serializers import field_type, read_body, show_row
from apps.fleet.selectors import cluster_by_slug
from apps.jobs.api import JobSerializer, job_response
from apps.jobs.models import Job
from apps.jobs.runs import AnswerKind, RunKind

__all__ = ["AnswerViewSet", "RunDeletion", "RunListViewSet", "RunRowSerializer", "RunViewSet", "describe_create"]


class RunRowSerializer(serializers.ModelSerializer):
    """A run in a list; with `result` among its fields, a run with its answer."""

    cluster = serializers.CharField(source="cluster.slug")
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    answered_at = serializers.DateTimeField(required=False, allow_null=True)
    result = serializers.SerializerMethodField(help_text="The engine's answer; null while there is none.")

    @field_type(dict[str, Any] | None)
    def get_result(self, run: Any) -> Any:
        return run.result


class RunListViewSet(ReadViewSet):
    """Runs of a kind: a list, and each with its answer."""

    kind: RunKind[Any]
    detail_class: type[serializers.Serializer]
    scopes = {"GET": Scope.READ}

    def get_queryset(self) -> Any:
        return self.kind.visible()

    def get_serializer_class(self) -> Any:
        return self.detail_class if self.action == "retrieve" else self.serializer_class

    def shown(self, run: Any) -> Any:
        """A run as a GET shows it."""
        return show_row(run, self.kind.visible(), self.detail_class)


class RunViewSet(RunListViewSet):
    """Runs of a kind that are requested by POST: 202 with a job, or the answer with `Prefer: wait=N`.

    `at_once` is the status of a run that has its answer without a job: 201 where it is new, 200 where it was there.
    """

    question_class: type
    at_once = 200
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE, "DELETE": Scope.OPERATE}

    def create(self, request: Request) -> Response:
        asked = self.asked(request)
        caller_now().check_everything()  # unless it is of a cluster, which was checked as the question was read
        return self.answer(request, *self.kind.request(user=signed_in_user(request), **asked))

    def asked(self, request: Request) -> dict[str, Any]:
        """The question, with rows in place of their names and numbers; a cluster may be named by its slug."""
        asked = read_body(self.question_class, request)
        named = asked.get("cluster")
        return asked | {"cluster": cluster_by_slug(named)} if isinstance(named, str) else asked

    def answer(self, request: Request, run: Any, job: Job | None) -> Response:
        """The answer to a request whose work the run's job does."""
        address = self.kind.address(run)
        if job is None or (job.is_finished and run.state == self.kind.answered):
            header = "Location" if self.at_once == 201 else "Content-Location"
            return Response(self.shown(run), status=self.at_once, headers={header: address})
        return job_response(request, job, lambda _: self.shown(run), address=address)


class AnswerViewSet(RunViewSet):
    """Runs of a kind whose rows are written with their answers."""

    kind: AnswerKind[Any]

    def answer(self, request: Request, run: Any, job: Any) -> Response:
        return job_response(request, job, lambda job: self.detail_class(self.kind.answered_by(job)).data)


class RunDeletion(mixins.DestroyModelMixin):
    """DELETE of a run, as its kind deletes one."""

    kind: RunKind[Any]

    def perform_destroy(self, instance: Any) -> None:
        self.kind.delete(run=instance)


V = TypeVar("V", bound=type[RunViewSet])


def describe_create(description: str) -> Callable[[V], V]:
    """Decorator of a viewset: describes the POST that requests a run."""

    def describe(view: V) -> V:
        request_run = view.create

        def create(self: RunViewSet, request: Request) -> Response:
            return request_run(self, request)

        create.__doc__ = description
        responses = {200: view.detail_class, view.at_once: view.detail_class, 202: JobSerializer}
        view.create = extend_schema(request=view.question_class, responses=responses)(create)  # type: ignore[method-assign]
        return view

    return describe
