"""Addresses that fail in every way, and a small resource, to test what all views share."""

from __future__ import annotations

import errno
import time
from typing import Any

from django.core.exceptions import PermissionDenied, TooManyFieldsSent
from django.db import DataError, IntegrityError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path
from redis.exceptions import ConnectionError as RedisGone
from redis.exceptions import OutOfMemoryError, ResponseError
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.models import User
from apps.core.errors import Impossible, Malformed, Stale
from apps.core.rest.api import ApiMixin, PromisedResponse, Router, StrictModelSerializer, StrictSerializer
from engine.errors import InfeasibleError

handler400 = "apps.core.problem_details.bad_request"
handler403 = "apps.core.problem_details.forbidden"
handler404 = "apps.core.problem_details.not_found"
handler500 = "apps.core.problem_details.server_error"

CALLS: list[Any] = []

FAILURES: dict[str, Exception] = {
    "malformed": Malformed("Two fields are not right.", [("a.b[0]", "too small"), ("c", "missing")]),
    "stale": Stale("It has moved.", data={"moved": ["node n1"]}),
    "impossible": Impossible("It cannot be done."),
    "missing": Http404("There is no such thing."),
    "denied": PermissionDenied("Not you."),
    "integrity": IntegrityError("UNIQUE constraint failed: fleet_cluster.slug"),
    "locked": OperationalError("database is locked"),
    "full": OperationalError("database or disk is full"),
    "full-postgres": OperationalError("could not extend file: No space left on device"),
    "full-files": OSError(errno.ENOSPC, "No space left on device"),
    "readonly": OperationalError("attempt to write a readonly database"),
    "data": DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes"),
    "fields": TooManyFieldsSent("The number of GET/POST parameters exceeded"),
    "redis-full": OutOfMemoryError("command not allowed when used memory > 'maxmemory'."),
    "redis-disk": ResponseError("MISCONF Valkey is configured to save RDB snapshots"),
    "redis": RedisGone("Error 111 connecting"),
    "infeasible": InfeasibleError("There is no room on any node."),
    "bug": ZeroDivisionError("a secret detail"),
}


class Inner(StrictSerializer):
    source = serializers.CharField()
    rate_eps = serializers.FloatField(min_value=0)


class Outer(StrictSerializer):
    name = serializers.CharField(max_length=8)
    inputs = Inner(many=True)


class Echo(ApiMixin, APIView):
    def post(self, request: Request) -> Response:
        CALLS.append(request.data)
        asked = request.data if isinstance(request.data, dict) else {}
        if "write" in asked:
            User.objects.create(username=asked["write"])
        if "promise" in asked:
            return PromisedResponse({"state": "begun"}, status=202, finish=lambda: Response({"state": "done"}))
        if "fail" in asked:
            raise FAILURES[asked["fail"]]
        return Response({"calls": len(CALLS)}, status=201, headers={"Location": "/api/v1/things/1"})


class Check(ApiMixin, APIView):
    def post(self, request: Request) -> Response:
        checked = Outer(data=request.data)
        checked.is_valid(raise_exception=True)
        return Response(checked.validated_data)


class Slow(ApiMixin, APIView):
    def post(self, request: Request) -> Response:
        CALLS.append(request.data)
        time.sleep(0.3)
        return Response({"calls": len(CALLS)}, status=201)


class Fail(ApiMixin, APIView):
    def get(self, request: Request, how: str) -> Response:
        raise FAILURES[how]


class PersonSerializer(StrictModelSerializer):
    class Meta:
        model = User
        fields = ["id", "username", "first_name"]


class PersonViewSet(ApiMixin, viewsets.ModelViewSet):
    queryset = User.objects.all()
    serializer_class = PersonSerializer
    ordering = "username"


def fail_page(request: HttpRequest, how: str) -> HttpResponse:
    raise FAILURES[how]


router = Router()
router.register("people", PersonViewSet, basename="person")
urlpatterns = [
    path("api/v1/echo", Echo.as_view()),
    path("api/v1/slow", Slow.as_view()),
    path("api/v1/check", Check.as_view()),
    path("api/v1/fail/<str:how>", Fail.as_view()),
    path("page/<str:how>", fail_page),
    path("api/v1/", include(router.urls)),
]
