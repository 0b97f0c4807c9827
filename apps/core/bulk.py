"""One change to many rows: each row is changed whole or not at all, and each refusal is kept with its reason.

Pages call `change_rows`; REST answers row by row (`bulk_response`)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import transaction
from django.db.models import Model
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from rest_framework.response import Response

from apps.core.errors import Malformed, Missing, SluiceError
from apps.core.problem_details import problem_of_job
from apps.core.rest.serializers import StrictSerializer

__all__ = [
    "BulkAnswerSerializer",
    "BulkSerializer",
    "RowOutcome",
    "bulk_response",
    "change_rows",
    "check_row_count",
]

MAX_ROWS_CHANGED = 500  # by one request: a node costs about ten statements

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True)
class RowOutcome(Generic[Key]):
    """Outcome for one row: changed, or refused with `refusal`."""

    key: Key
    refusal: SluiceError | None = None


def check_row_count(count: int, path: str) -> None:
    """Refuse a change of no row, and of more than `MAX_ROWS_CHANGED`.

    Raises
    ------
    Malformed
        With the fault at `path`.
    """
    if not 1 <= count <= MAX_ROWS_CHANGED:
        message = f"{count} are named; allowed: 1 to {MAX_ROWS_CHANGED}"
        raise Malformed(f"{path}: {message}.", [(path, message)])


def change_rows(keys: Sequence[Key], rows: Mapping[Key, Row], change: Callable[[Row], object]) -> list[RowOutcome[Key]]:
    """Change rows one by one, each in a transaction of its own, in the order of `keys`.

    Parameters
    ----------
    keys : sequence
        The rows that were asked for; one that `rows` lacks is refused as missing.
    rows : mapping
        {key: row}
    change : callable
        A service; its `SluiceError` is that row's refusal and touches no other row.
    """
    return [RowOutcome(key, _refusal(rows.get(key), key, change)) for key in dict.fromkeys(keys)]


def _refusal(row: Row | None, key: object, change: Callable[[Row], object]) -> SluiceError | None:
    if row is None:
        return Missing(f"There is no {key!r}, or no longer.")
    try:
        with transaction.atomic():
            change(row)
    except SluiceError as refusal:
        return refusal
    return None


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


def _problem(refusal: SluiceError | None) -> dict[str, object] | None:
    return None if refusal is None else problem_of_job(refusal.as_dict(), refusal.status)
