"""Queries, versions, statistics and arrivals as REST shows and takes them. Rules beyond types are the services'."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.bulk import BulkSerializer
from apps.core.errors import Malformed
from apps.core.rest.api import StrictSerializer
from apps.fleet.choices import Evidence
from apps.fleet.serializers import ClusterField, InClusterSerializer, LabelsField, NumberField
from apps.queries.arrivals.numerals import COUNT_KINDS, DECIMAL_MARKS
from apps.queries.arrivals.times import TIME_FORMATS
from apps.queries.bodies import version_body
from apps.queries.choices import ArrivalOrigin, ObjectiveState, QueryState
from apps.queries.models import ArrivalSeries, Query, QueryVersion
from apps.queries.selectors import version_current
from engine.errors import Fault
from engine.kinds import NumberSeries
from engine.words import listed

__all__ = [
    "ArrivalCreateSerializer",
    "ArrivalSerializer",
    "BacklogsSerializer",
    "DocumentSerializer",
    "InspectSerializer",
    "QueryBulkSerializer",
    "QueryDetailSerializer",
    "QuerySerializer",
    "StatisticsSerializer",
    "VersionSerializer",
]


class ObjectiveField(serializers.JSONField):
    """`{"statistic": "worst" | "mean" | "q0.99", "bound_s": 10.0}` or null; the service checks it."""

    def get_attribute(self, instance: Query) -> Any:
        bound = instance.objective_bound_s
        return None if bound is None else {"statistic": instance.objective_statistic, "bound_s": bound}


class TeamField(serializers.CharField):
    """The name of the team of a query or a source; empty where it has none."""

    def get_attribute(self, instance: Query | ArrivalSeries) -> str:
        return str(instance.team or "")


class QuerySerializer(InClusterSerializer):
    """A query in a list."""

    name = serializers.CharField()
    team = TeamField(
        required=False, allow_blank=True, help_text="Name of the team that owns it; one of a new name is made."
    )
    labels = LabelsField(required=False)
    description = serializers.CharField(required=False, allow_blank=True)
    objective = ObjectiveField(required=False, allow_null=True)
    priority = serializers.IntegerField(required=False)
    state = serializers.ChoiceField(QueryState.choices, read_only=True)
    objective_state = serializers.ChoiceField(
        ObjectiveState.choices,
        source="objective_status.state",
        default=None,
        allow_null=True,
        read_only=True,
        help_text="By measurement and estimate, while it runs; see `objectives`.",
    )
    rate_share = serializers.FloatField(
        read_only=True,
        help_text="Share of its sources' events it is planned with. Agents of a live query take every record.",
    )
    running_version = serializers.IntegerField(source="running_version.number", default=None, read_only=True)
    latest_version = serializers.IntegerField(source="latest_number", read_only=True)
    operator_count = serializers.IntegerField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class OperatorsField(serializers.JSONField):
    """Operators as in the deployment document, with bare names; `from` is another of them or a source."""


class QueryDetailSerializer(QuerySerializer):
    """A query with the operators of the version that runs, or else of the newest. They change by a new version."""

    operators = OperatorsField(write_only=True)
    note = serializers.CharField(required=False, allow_blank=True, write_only=True)

    def get_fields(self) -> dict[str, serializers.Field]:
        fields = super().get_fields()
        if self.instance is not None:
            fields.pop("note")
            fields["operators"] = serializers.SerializerMethodField()
        return fields

    def get_operators(self, query: Query) -> Any:
        return version_body(version_current(query))["operators"]


class QueryBulkSerializer(BulkSerializer):
    """Action on many queries; `team`, `labels` and `priority` are for `update`, at least one of them."""

    action = serializers.ChoiceField(["stop", "update", "delete"])
    team = serializers.CharField(required=False, allow_blank=True)
    labels = LabelsField(required=False)
    priority = serializers.IntegerField(required=False)

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        """An update names what it changes, and nothing else does."""
        given = [name for name in ("team", "labels", "priority") if name in values]
        if values["action"] == "update" and not given:
            raise serializers.ValidationError({"action": "update needs team, labels, priority or several of them"})
        if values["action"] != "update" and given:
            raise serializers.ValidationError(dict.fromkeys(given, f"is for update, not for {values['action']}"))
        return values


class VersionSerializer(StrictSerializer):
    """A version of a query."""

    number = serializers.IntegerField(read_only=True)
    note = serializers.CharField(required=False, allow_blank=True)
    operators = OperatorsField(write_only=True)
    carry_statistics = serializers.BooleanField(default=False, write_only=True)
    is_running = serializers.SerializerMethodField()
    created_by = serializers.CharField(source="created_by.username", default=None, read_only=True)
    created_at = serializers.DateTimeField(read_only=True)

    def get_is_running(self, version: QueryVersion) -> bool:
        return version.pk == version.query.running_version_id

    def to_representation(self, version: QueryVersion) -> dict[str, Any]:
        return {**super().to_representation(version), **version_body(version)}


class StatisticsSerializer(StrictSerializer):
    """Statistics of a version's inputs."""

    version = serializers.IntegerField(required=False, min_value=1, help_text="The one that runs, or the newest.")
    statistics = serializers.JSONField(
        help_text=(
            "[{operator, input, selectivity, cycles_per_event, events, batches, cost_cv2, cost_dispersion, "
            "cost_dispersion_events, evidence, measured_at}]; event_cycles in place of a sample in batches."
        )
    )


class BacklogsSerializer(StrictSerializer):
    """Events that wait at a query's inputs."""

    backlogs = serializers.JSONField(
        help_text=(
            "[{operator, from, events, behind_s, read_at}]: events that wait, the age of the oldest in seconds, or "
            "both; operator only where one of several readers is meant. Answers add origin, age_s and is_stale."
        )
    )


class EventFieldsField(serializers.JSONField):
    """Fields of an event by type, or null where they are not stated; the service checks them."""

    def to_representation(self, value: Any) -> Any:
        return value or None


class ArrivalSerializer(InClusterSerializer):
    """A source's arrivals without their data."""

    source_id = serializers.CharField(read_only=True)
    origin = serializers.ChoiceField(ArrivalOrigin.choices, read_only=True)
    evidence = serializers.ChoiceField(Evidence.choices, read_only=True)
    description = serializers.CharField(read_only=True)
    spec = serializers.JSONField(read_only=True)
    slice_s = serializers.FloatField(read_only=True)
    slices = serializers.IntegerField(read_only=True)
    digest = serializers.CharField(read_only=True)
    events = serializers.FloatField(read_only=True)
    mean_eps = serializers.FloatField(read_only=True)
    peak_eps = serializers.FloatField(read_only=True)
    event_fields = EventFieldsField(allow_null=True, help_text="{ints, strings, doubles} of an event, or null.")
    step_s = serializers.FloatField(
        read_only=True, help_text="Width at which counts are really known, where it is more than a slice; else null."
    )
    dispersion = NumberField(allow_null=True, help_text="Index of dispersion of the counts, or null.")
    dispersion_step_s = NumberField(allow_null=True, help_text="Width of the counts that it is of, or null.")
    team = TeamField(
        required=False,
        allow_blank=True,
        help_text="Name of the team that owns the source, whose members see it; one of a new name is made.",
    )
    labels = LabelsField(required=False)
    starts_at = serializers.DateTimeField(read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class CountsField(serializers.JSONField):
    """A list of counts, read at once: a field for each of 200,000 numbers would take seconds."""

    def to_internal_value(self, data: Any) -> Any:
        faults: list[Fault] = []
        values = NumberSeries().read(super().to_internal_value(data), "", "counts", faults)
        if faults:
            raise Malformed(f"{faults[0]}.", [(fault.path, fault.message) for fault in faults])
        return values


class TableReadingSerializer(StrictSerializer):
    """Choices of how an uploaded table is read, the same for arrivals and load histories."""

    time_column = serializers.CharField(required=False)
    count_column = serializers.CharField(required=False, allow_blank=True, help_text="None: every line is one event.")
    time_zone = serializers.CharField(required=False, help_text="Of times that name none; UTC unless given.")
    time_format = serializers.CharField(
        required=False, allow_blank=True, help_text=f"Found out unless given: {', '.join(TIME_FORMATS)}."
    )
    count_kind = serializers.CharField(
        required=False, allow_blank=True, help_text=f"Found out unless given: {', '.join(COUNT_KINDS)}."
    )
    decimal_mark = serializers.CharField(
        required=False, allow_blank=True, help_text=f"Found out unless given: {', '.join(DECIMAL_MARKS)}."
    )
    leave_out_problems = serializers.BooleanField(required=False)


READING_FIELDS = frozenset(TableReadingSerializer._declared_fields)


class ArrivalCreateSerializer(TableReadingSerializer):
    """Arrivals from exactly one of `file` (in a form), `key` (of an inspected upload), `generator` and `counts`."""

    cluster = ClusterField()
    source_id = serializers.CharField()
    description = serializers.CharField(required=False, allow_blank=True)
    replace = serializers.BooleanField(required=False)
    event_fields = EventFieldsField(required=False, allow_null=True)
    team = serializers.CharField(required=False, allow_blank=True, help_text="Name of the team that owns the source.")
    labels = LabelsField(required=False)
    file = serializers.FileField(required=False)
    key = serializers.CharField(required=False)
    generator = serializers.DictField(required=False, help_text='{"kind": "on_off" | "poisson" | "diurnal", …}')
    counts = CountsField(required=False, help_text="Events per step.")
    step_s = NumberField(required=False, help_text="Of counts; a slice of the cluster unless given.")
    stretch = serializers.CharField(required=False, help_text="busiest, first, or when it begins.")
    fill = serializers.CharField(required=False, allow_blank=True, help_text="zero or repeat.")
    dispersion = NumberField(required=False, allow_null=True, help_text="Index of dispersion of the counts.")
    dispersion_step_s = NumberField(required=False, allow_null=True, help_text="Width of the counts that it is of.")

    _OF_KIND = {
        "file": READING_FIELDS | {"stretch", "fill"},
        "key": READING_FIELDS | {"stretch", "fill"},
        "generator": set(),
        "counts": {"step_s", "fill", "dispersion", "dispersion_step_s"},
    }
    _COMMON = {"cluster", "source_id", "description", "replace", "event_fields", "team", "labels"}

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        kinds = [kind for kind in self._OF_KIND if kind in values]
        if len(kinds) != 1:
            named = listed(kinds) or "none of them"
            raise serializers.ValidationError(f"give exactly one of file, key, generator, counts; {named} is given")
        others = set(values) - self._COMMON - self._OF_KIND[kinds[0]] - {kinds[0]}
        if others:
            raise serializers.ValidationError(dict.fromkeys(sorted(others), f"has no meaning with {kinds[0]}"))
        return values


class InspectSerializer(StrictSerializer):
    """A file to look at."""

    file = serializers.FileField()
    time_zone = serializers.CharField(default="UTC")


class DocumentSerializer(StrictSerializer):
    """A deployment document to import into a cluster."""

    document = serializers.JSONField()
    dry_run = serializers.BooleanField(default=False)
    fill = serializers.ChoiceField(["", "zero", "repeat"], default="", help_text="After the document's arrivals end.")
    query = serializers.CharField(default="", allow_blank=True, help_text="Of operators that name no query.")
    start = serializers.BooleanField(default=False, help_text="Run the queries where the document places them.")
