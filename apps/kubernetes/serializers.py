"""Reviews as the REST API shows them, and manifests as it takes them."""

from __future__ import annotations

from rest_framework import serializers

from apps.core.rest.api import StrictSerializer
from apps.kubernetes.choices import ReviewBasis
from apps.kubernetes.models import KubernetesReview

__all__ = ["KubernetesReviewSerializer", "ManifestAnswerSerializer", "ManifestSerializer"]

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
