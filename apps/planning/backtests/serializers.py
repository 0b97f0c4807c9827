"""Backtests as REST shows and takes them."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from apps.core.rest.api import StrictSerializer
from apps.core.rest.serializers import field_type
from apps.fleet.serializers import ClusterField
from apps.planning.choices import RequestTiming
from apps.planning.models import BacktestRun

__all__ = ["BacktestCreateSerializer", "BacktestDetailSerializer", "BacktestSerializer"]


class BacktestCreateSerializer(StrictSerializer):
    """A question: which period through which policy."""

    cluster = ClusterField()
    since = serializers.DateTimeField(required=False, help_text="Default: a week before until.")
    until = serializers.DateTimeField(required=False, help_text="Default: now.")
    policy = serializers.DictField(
        required=False,
        help_text="admission, at_risk, assumed, headroom, placement, max_moves; see the API guide.",
    )
    ask = serializers.ChoiceField(
        choices=RequestTiming.choices, required=False, help_text="When requests are asked; default recorded."
    )


class BacktestSerializer(serializers.ModelSerializer):
    """A backtest in a list: what was asked, and its answer in a few numbers."""

    cluster = serializers.CharField(source="cluster.slug")
    requested_by = serializers.CharField(source="requested_by.username", default=None)
    policy = serializers.JSONField()
    facts = serializers.JSONField(help_text="headline, admitted, seconds_over and others; empty while not answered.")
    answered_at = serializers.DateTimeField(required=False, allow_null=True)

    class Meta:
        model = BacktestRun
        fields = ["id", "cluster", "since", "until", "policy", "ask", "state", "job", "facts", "requested_by"]
        fields += ["created_at", "answered_at", "duration_s"]


class BacktestDetailSerializer(BacktestSerializer):
    """A backtest whole."""

    result = serializers.SerializerMethodField(help_text="The engine's answer; null while there is none.")

    class Meta(BacktestSerializer.Meta):
        fields = [*BacktestSerializer.Meta.fields, "result"]

    @field_type(dict[str, Any] | None)
    def get_result(self, row: BacktestRun) -> dict[str, Any] | None:
        return row.result
