"""Engines, states and origins of connections."""

from django.db import models

__all__ = ["ConnectionEngine", "ConnectionOrigin", "ConnectionState", "JobEventKind"]


class ConnectionEngine(models.TextChoices):
    """Engine, or whatever watches it, that a connection asks."""

    FLINK = "flink", "Flink"  #: its REST API, or a history of its answers
    SPARK = "spark", "Spark"  #: StreamingQueryProgress of Structured Streaming
    PROMETHEUS = "prometheus", "Prometheus"  #: operators that are mapped to its queries
    KAFKA = "kafka", "Kafka"  #: lag of consumer groups


class ConnectionOrigin(models.TextChoices):
    """Way by which the answers of a connection arrive."""

    URL = "url", "URL"  #: asked on a schedule
    UPLOAD = "upload", "Upload"  #: the same answers as a file


class ConnectionState(models.TextChoices):
    """State of a connection, by the last time it was asked."""

    NEW = "new", "New"  #: never answered
    CONNECTED = "connected", "Connected"  #: answered last time
    AWAY = "away", "Away"  #: does not answer; what was measured before stands, and ages
    REFUSED = "refused", "Refused"  #: answers, but not with what can be read: 401, TLS, another service
    PAUSED = "paused", "Paused"  #: not asked until somebody resumes it


class JobEventKind(models.TextChoices):
    """Change of an imported job that was recognised. The words are a whole clause."""

    APPEARED = "appeared", "appeared"
    RESTARTED = "restarted", "was restarted"  #: the same shape, counters begin anew
    RESCALED = "rescaled", "was rescaled"  #: the same operators with another parallelism
    REDEPLOYED = "redeployed", "was redeployed"  #: other operators
    ENDED = "ended", "ended"  #: finished, failed, cancelled, or gone from the engine's list
    RETURNED = "returned", "runs again"
