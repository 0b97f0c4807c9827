"""REST: one action on many rows, answered row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.bulk import MAX_ROWS_CHANGED, change_rows
from apps.core.errors import SluiceError
from apps.core.problem_details import problem_of_job
from apps.core.rest.serializers import StrictSerializer

__all__ = ["BulkAnswerSerializer", "BulkSerializer", "bulk_response"]


class BulkSerializer(StrictSerializer):
    """An action, and the ids of the rows it is for; a subclass lists the actions."""

    ids = serializers.ListField(
        child=serializers.IntegerField(min_value=1, max_value=2**53), min_length=1, max_length=MAX_ROWS_CHANGED
    )


class _OutcomeSerializer(serializers.Serializer):
    """Outcome for one row; `error` is null where it was changed, else problem details."""

    id = serializers.IntegerField()
    error = serializers.SerializerMethodField()

    @extend_schema_field({"type": ["object", "null"]})
    def get_error(self, outcome: Any) -> Any:
        return outcome["error"]


class BulkAnswerSerializer(serializers.Serializer):
    """Outcome for each row, in the order that was asked."""

    changed = serializers.IntegerField()
    refused = serializers.IntegerField()
    results = _OutcomeSerializer(many=True)


def bulk_response(ids: list[int], rows: Mapping[int, Any], change: Callable[[Any], object]) -> Response:
    """Change each row whole or not at all; 200 whatever came of them, since each says it for itself."""
    results = [{"id": outcome.key, "error": _problem(outcome.refusal)} for outcome in change_rows(ids, rows, change)]
    refused = sum(result["error"] is not None for result in results)
    answer = {"changed": len(results) - refused, "refused": refused, "results": results}
    return Response(BulkAnswerSerializer(answer).data)


def _problem(refusal: SluiceError | None) -> dict[str, Any] | None:
    return None if refusal is None else problem_of_job(refusal.as_dict(), refusal.status)
