"""Webhook of Kubernetes, and the REST resources of its answers."""

from __future__ import annotations

import itertools
import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.accounts.authentication import PathTokenAuthentication
from apps.accounts.choices import Scope
from apps.accounts.permissions import role_hint, scopes_of, signed_in_user
from apps.core.body_sizes import REVIEW
from apps.core.errors import Conflict, Forbidden, Malformed
from apps.core.reach import AskedOn, check_cluster, visible
from apps.core.rest.api import ReadViewSet, Router, StrictSerializer
from apps.core.rest.serializers import read_body
from apps.fleet.models import Cluster
from apps.fleet.selectors import cluster_by_slug
from apps.kubernetes.models import KubernetesReview, ReviewBasis, ReviewOrigin
from apps.kubernetes.objects import REVIEW_VERSION, ReviewRequest, read_manifest, read_review
from apps.kubernetes.selectors import KubernetesReviewFilter, reviews_listed
from apps.kubernetes.services import review_answer

__all__ = ["AdmissionWebhook"]

MAX_MANIFEST = 3_000_000  # characters; an object in Kubernetes has 1.5 MB at most
MAX_MANIFEST_WAIT_S = 120


class KubernetesReviewSerializer(serializers.ModelSerializer):
    """A review and its answer."""

    cluster = serializers.CharField(source="cluster.slug")
    basis = serializers.ChoiceField(ReviewBasis.choices, allow_blank=True)
    verdict = serializers.CharField(source="admission.verdict", default="", help_text="Of its admission; may be empty.")
    state = serializers.CharField(source="admission.state", default="", help_text="Of its admission; may be empty.")
    query = serializers.CharField(source="admission.version.query.name", default=None, allow_null=True)
    version = serializers.IntegerField(source="admission.version.number", default=None, allow_null=True)
    asked_by = serializers.CharField(source="asked_by.username", default=None, allow_null=True)
    warnings = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = KubernetesReview
        fields = ["id", "cluster", "uid", "origin", "api_version", "kind", "namespace", "name", "operation"]
        fields += ["username", "dry_run", "allowed", "basis", "message", "warnings", "admission", "query", "version"]
        fields += ["verdict", "state", "asked_by", "waited_s", "created_at"]


class ManifestSerializer(StrictSerializer):
    """A manifest to decide on, as Kubernetes would be answered if its objects were created."""

    cluster = serializers.CharField(help_text="Slug of the cluster.")
    manifest = serializers.CharField(
        max_length=MAX_MANIFEST, trim_whitespace=False, help_text="YAML or JSON, of one or several documents."
    )
    mode = serializers.ChoiceField(
        choices=["preview", "apply"],
        default="preview",
        help_text="apply lets what is admitted count as running (scope admit).",
    )
    wait_s = serializers.FloatField(
        required=False, default=25.0, min_value=1, max_value=MAX_MANIFEST_WAIT_S, help_text="For all objects; 25."
    )


class ManifestAnswerSerializer(serializers.Serializer):
    """Answers about a manifest's objects, in its order."""

    allowed = serializers.BooleanField(help_text="Whether all of them are.")
    reviews = KubernetesReviewSerializer(many=True)


_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?\Z")
_TIMEOUT_S = 10.0  # of a webhook that does not say another
_MAX_TIMEOUT_S = 30.0  # that Kubernetes allows
_SHARE = 0.8  # of the timeout for the verdict; the rest is for the way there and back


class AdmissionWebhook(APIView):
    """`POST /webhooks/kubernetes/admission/<cluster>[/<token>]`: an AdmissionReview in, an AdmissionReview out."""

    asked_on = AskedOn.NARROWED
    body_sizes = {"POST": REVIEW}
    authentication_classes = [PathTokenAuthentication]
    scopes = {"POST": Scope.OPERATE}

    @extend_schema(exclude=True)
    def post(self, request: Request, slug: str = "", token: str = "") -> Response:
        """Answer a review. With the scope admit an admitted query counts as running from then on."""
        review = read_review(request.data)
        cluster = _cluster(slug or request.query_params.get("cluster", ""))
        user = signed_in_user(request)
        try:
            row = review_answer(
                cluster=cluster,
                user=user,
                review=review,
                budget_s=_SHARE * timeout_s(request.query_params.get("timeout", "")),
                may_apply=Scope.ADMIT in scopes_of(user, request.auth),
            )
        except Conflict as error:
            return Response(_answer(review.uid, allowed=False, message=error.message, code=409))
        return Response(_answer(review.uid, allowed=bool(row.allowed), message=row.message, warnings=row.warnings))


class KubernetesReviewViewSet(ReadViewSet):
    """Answers to Kubernetes, newest first."""

    body_sizes = {"create": REVIEW}
    queryset = KubernetesReview.objects.none()
    serializer_class = KubernetesReviewSerializer
    filterset_class = KubernetesReviewFilter
    ordering = "-created_at"
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE}
    keeps_own_answers = True  # it waits for verdicts and applies them: each review is answered once by its uid

    def get_queryset(self) -> Any:
        return reviews_listed()

    @extend_schema(request=ManifestSerializer, responses=ManifestAnswerSerializer, filters=False)
    def create(self, request: Request) -> Response:
        """Decide on a manifest as if its objects were created in Kubernetes, and wait for the answers."""
        asked = read_body(ManifestSerializer, request)
        user, may_apply = signed_in_user(request), asked["mode"] == "apply"
        cluster = cluster_by_slug(asked["cluster"])
        if may_apply and Scope.ADMIT not in scopes_of(user, request.auth):
            raise Forbidden(f"mode=apply needs the scope 'admit'. {role_hint(Scope.ADMIT)}", code="scope_missing")
        until_s = time.monotonic() + asked["wait_s"]
        answered = [
            review_answer(
                cluster=cluster,
                user=user,
                review=ReviewRequest(uid, "CREATE", user.username, False, item, digest=item.material),
                budget_s=max(0.0, until_s - time.monotonic()),
                may_apply=may_apply,
                origin=ReviewOrigin.MANIFEST,
            ).pk
            for uid, item in zip(_uids(request), read_manifest(asked["manifest"]), strict=False)
        ]
        found = reviews_listed().in_bulk(answered)  # read anew: applying has changed their requests
        rows = [found[pk] for pk in answered]
        answer = {"allowed": all(row.allowed for row in rows), "reviews": rows}
        return Response(ManifestAnswerSerializer(answer).data)


def _uids(request: Request) -> Iterator[str]:
    """Ids of the reviews of one request: with an `Idempotency-Key` the same ones when it is sent again."""
    key = request.headers.get("Idempotency-Key") or uuid.uuid4().hex
    return (uuid.uuid5(uuid.NAMESPACE_OID, f"{request.user.pk} {index} {key}").hex for index in itertools.count())


def timeout_s(text: str) -> float:
    """Seconds of a duration as Go writes it, such as `10s` or `1m30s`; what cannot be read counts as 10.

    >>> timeout_s("10s"), timeout_s("1500ms"), timeout_s("soon"), timeout_s("5m")
    (10.0, 1.5, 10.0, 30.0)
    """
    match = _DURATION.match(text) if text else None
    if match is None:
        return _TIMEOUT_S
    minutes, seconds, millis = (float(part or 0) for part in match.groups())
    return min(_MAX_TIMEOUT_S, 60 * minutes + seconds + millis / 1e3) or _TIMEOUT_S


def _cluster(slug: str) -> Cluster:
    """The cluster of the address; without one that which is alone."""
    if slug:
        return cluster_by_slug(slug)
    clusters = list(visible(Cluster.objects.all())[:2])
    if len(clusters) != 1:
        message = "Name the cluster: POST /webhooks/kubernetes/admission/<its slug>."
        raise Malformed(message, [("cluster", "is missing, and there is not exactly one")])
    check_cluster(clusters[0])
    return clusters[0]


def _answer(uid: str, *, allowed: bool, message: str, warnings: Any = (), code: int = 403) -> dict[str, object]:
    status = {"code": 200, "message": message} if allowed else {"code": code, "reason": "Forbidden", "message": message}
    response = {"uid": uid, "allowed": allowed, "status": status, **({"warnings": list(warnings)} if warnings else {})}
    return {"apiVersion": REVIEW_VERSION, "kind": "AdmissionReview", "response": response}


router = Router()
router.register("kubernetes-reviews", KubernetesReviewViewSet, basename="kubernetes-review")

urlpatterns = router.urls
