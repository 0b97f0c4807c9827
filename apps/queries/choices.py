"""States of queries, kinds of operators, statistics of objectives."""

from django.db import models

__all__ = ["ArrivalOrigin", "OperatorKind", "QueryState"]


class QueryState(models.TextChoices):
    """State of a query."""

    DRAFT = "draft", "Draft"  #: described, never admitted
    RUNNING = "running", "Running"  #: admitted; part of every estimate of its cluster
    QUEUED = "queued", "Queued"  #: waits for capacity
    STOPPED = "stopped", "Stopped"  #: ran once; no longer part of the cluster's load


class OperatorKind(models.TextChoices):
    """Function of an operator."""

    SOURCE = "source", "Source"
    FILTER = "filter", "Filter"
    MAP = "map", "Map"
    JOIN = "join", "Join"
    AGGREGATE = "aggregate", "Aggregate"
    WINDOW = "window", "Window"
    SINK = "sink", "Sink"
    OTHER = "other", "Other"


class ArrivalOrigin(models.TextChoices):
    """Origin of a series of arrivals."""

    UPLOAD = "upload", "Uploaded trace"
    GENERATOR = "generator", "Generator"
    DOCUMENT = "document", "Document"
    TELEMETRY = "telemetry", "Telemetry"
