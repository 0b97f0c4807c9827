"""Progress of frames and batches, and the stream processor's plan, over REST."""

from __future__ import annotations

from rest_framework import serializers

__all__ = ["AcceptedSerializer", "BatchAcceptedSerializer", "StreamPlanSerializer"]


class AcceptedSerializer(serializers.Serializer):
    """Progress of an agent's frames."""

    accepted_seq = serializers.IntegerField()
    committed_seq = serializers.IntegerField()
    duplicates = serializers.IntegerField()


class BatchAcceptedSerializer(serializers.Serializer):
    """Progress of a producer's batches."""

    accepted_sequence = serializers.IntegerField()
    duplicates = serializers.IntegerField()


class StreamPlanSerializer(serializers.Serializer):
    """Plan of the stream processor."""

    version = serializers.IntegerField()
    queries = serializers.ListField(child=serializers.DictField())
