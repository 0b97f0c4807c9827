"""REST: the webhook that the ledger is posted to."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from apps.core.limits import MAX_URL
from apps.core.rest.api import ApiMixin, StrictSerializer
from apps.core.rest.serializers import read_body
from apps.ledger.destinations import changes_unsent, webhook_forward, webhook_try
from apps.ledger.services import ledger_webhook_delete, ledger_webhook_update
from apps.ledger.webhook import webhook_in_force

__all__ = ["RETRY_LIMIT", "LedgerWebhookRetryView", "LedgerWebhookTestView", "LedgerWebhookView"]

_ADMIN = "admin"
RETRY_LIMIT = 500  #: changes that are sent while somebody waits; the worker sends the rest within a minute


class LedgerWebhookSerializer(serializers.Serializer):
    """Webhook of the ledger; times and failures are known of that of the settings alone."""

    address = serializers.CharField(help_text="The host of its address; empty: there is none.")
    origin = serializers.ChoiceField(["settings", "environment", "none"])
    unsent = serializers.IntegerField(help_text="Changes that it does not have yet.")
    sent_at = serializers.DateTimeField(allow_null=True, help_text="When something last arrived.")
    tried_at = serializers.DateTimeField(allow_null=True)
    failures = serializers.IntegerField(help_text="Tries since something last arrived.")
    error = serializers.CharField(help_text="Why the last try failed.")


class LedgerWebhookAskSerializer(StrictSerializer):
    """Address and secret; what is left out stays."""

    address = serializers.CharField(required=False, max_length=MAX_URL, help_text="Where batches are posted.")
    secret = serializers.CharField(required=False, max_length=MAX_URL, help_text="Signs them; never shown again.")


class LedgerWebhookTrialSerializer(serializers.Serializer):
    """Result of a test, or of sending again."""

    sent = serializers.IntegerField(help_text="Changes that arrived.")
    error = serializers.CharField(help_text="Why not all did; empty: nothing failed.")


class LedgerWebhookView(ApiMixin, APIView):
    """Webhook of the ledger."""

    scopes = {"GET": _ADMIN, "PATCH": _ADMIN, "DELETE": _ADMIN}

    @extend_schema(responses=LedgerWebhookSerializer)
    def get(self, request: Request) -> Response:
        """The webhook in force, and how it goes."""
        return Response(_shown())

    @extend_schema(request=LedgerWebhookAskSerializer, responses=LedgerWebhookSerializer)
    def patch(self, request: Request) -> Response:
        """Post the ledger to an address, in the place of the one that the environment names."""
        ledger_webhook_update(**read_body(LedgerWebhookAskSerializer, request))
        return Response(_shown())

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
        """Back to the webhook that the environment names, or to none."""
        ledger_webhook_delete()
        return Response(status=204)


class LedgerWebhookTestView(ApiMixin, APIView):
    """Test of the webhook."""

    scopes = {"POST": _ADMIN}

    @extend_schema(request=None, responses=LedgerWebhookTrialSerializer)
    def post(self, request: Request) -> Response:
        """Post an event of the type `io.sluice.ledger.test`, and say whether it arrived."""
        return Response(LedgerWebhookTrialSerializer(_told(webhook_try())).data)


class LedgerWebhookRetryView(ApiMixin, APIView):
    """Another try."""

    scopes = {"POST": _ADMIN}

    @extend_schema(request=None, responses=LedgerWebhookTrialSerializer)
    def post(self, request: Request) -> Response:
        """Send now what the webhook lacks, the oldest 500 changes at most, instead of within a minute."""
        return Response(LedgerWebhookTrialSerializer(_told(webhook_forward(RETRY_LIMIT))).data)


def _told(sending: Any) -> dict[str, object]:
    return {"sent": sending.count, "error": sending.error or ""}


def _shown() -> Any:
    webhook = webhook_in_force()
    row = webhook.row if webhook is not None else None
    values = {
        "address": webhook.host if webhook is not None else "",
        "origin": "none" if webhook is None else "environment" if row is None else "settings",
        "unsent": changes_unsent() if webhook is not None else 0,
        "sent_at": row and row.sent_at,
        "tried_at": row and row.tried_at,
        "failures": row.failures if row is not None else 0,
        "error": row.error if row is not None else "",
    }
    return LedgerWebhookSerializer(values).data
