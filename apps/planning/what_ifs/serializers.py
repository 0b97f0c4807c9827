"""Scenarios and what-ifs as REST shows and takes them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.limits import MAX_NAME, MAX_REASON
from apps.core.rest.api import StrictSerializer
from apps.core.rest.serializers import field_type
from apps.fleet.serializers import ClusterField, InClusterSerializer
from apps.planning.choices import Find, ScenarioPlacement
from apps.planning.models import WhatIf
from apps.planning.what_ifs.selectors import what_if_standing

__all__ = [
    "ScenarioSerializer",
    "SweepSerializer",
    "WhatIfCreateSerializer",
    "WhatIfDetailSerializer",
    "WhatIfSerializer",
]

_CHANGE = serializers.DictField


class ScenarioSerializer(InClusterSerializer):
    """A named set of changes to a cluster. `changes` are the forms of `engine what-if`."""

    name = serializers.CharField(max_length=MAX_NAME)
    description = serializers.CharField(required=False, allow_blank=True, max_length=MAX_REASON)
    changes = serializers.ListField(child=_CHANGE(), required=False, help_text="As `engine what-if` reads them.")
    place = serializers.ChoiceField(
        choices=ScenarioPlacement.choices, required=False, help_text="What becomes of the placement; default fill."
    )
    created_by = serializers.CharField(source="created_by.username", read_only=True, default=None)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)


class WhatIfCreateSerializer(StrictSerializer):
    """Request for a what-if: scenarios and what to look for."""

    cluster = ClusterField()
    changes = serializers.ListField(
        child=_CHANGE(), required=False, help_text="Changes of one scenario without a name; instead of `scenarios`."
    )
    place = serializers.ChoiceField(
        choices=ScenarioPlacement.choices, required=False, help_text="With `changes`: default fill."
    )
    scenarios = serializers.ListField(
        child=serializers.JSONField(),
        required=False,
        help_text="Numbers of saved scenarios, or {name, changes, place}. At most 12, and 1 with a search.",
    )
    find = serializers.ChoiceField(choices=Find.choices, required=False, help_text="What to look for; default compare.")
    options = serializers.DictField(required=False, help_text="Parameters of what is looked for; see the API guide.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "changes" in attrs and "scenarios" in attrs:
            raise serializers.ValidationError({"changes": "give changes or scenarios, not both"})
        if "place" in attrs and "changes" not in attrs:
            raise serializers.ValidationError({"place": "only with changes; a scenario has its own"})
        if "changes" in attrs:
            scenario = {
                "name": "Changed",
                "changes": attrs.pop("changes"),
                "place": attrs.pop("place", str(ScenarioPlacement.FILL)),
            }
            attrs["scenarios"] = [scenario]
        return attrs


class WhatIfSerializer(serializers.ModelSerializer):
    """A what-if in a list: its parameters and state."""

    cluster = serializers.CharField(source="cluster.slug")
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    scenarios = serializers.JSONField()
    options = serializers.JSONField()
    answered_at = serializers.DateTimeField(required=False, allow_null=True)

    class Meta:
        model = WhatIf
        fields = ["id", "cluster", "find", "scenarios", "options", "state", "job", "snapshot", "requested_by"]
        fields += ["created_at", "answered_at", "duration_s"]


class WhatIfDetailSerializer(WhatIfSerializer):
    """A what-if with the engine's answer and the changes since."""

    result = serializers.SerializerMethodField(help_text="The engine's answer; null while there is none.")
    stale = serializers.SerializerMethodField()
    changes = serializers.SerializerMethodField(help_text="What has moved since it was answered, in words.")

    class Meta(WhatIfSerializer.Meta):
        fields = [*WhatIfSerializer.Meta.fields, "result", "stale", "changes"]

    @field_type(dict[str, Any] | None)
    def get_result(self, row: WhatIf) -> dict[str, Any] | None:
        return row.result

    def get_stale(self, row: WhatIf) -> bool:
        return what_if_standing(row).is_stale

    @field_type(list[str])
    def get_changes(self, row: WhatIf) -> list[str]:
        return list(what_if_standing(row).changes)


class SweepSerializer(StrictSerializer):
    """Inputs of the bench. What is left out is as it is now; `sizes` defaults to numbers around the present one."""

    cluster = ClusterField()
    options = serializers.DictField(
        required=False,
        help_text="factor, sources, pool, sizes, bound_s, objective_factor, lose_one, headroom_s; see the API guide.",
    )
