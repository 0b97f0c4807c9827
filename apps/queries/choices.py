"""States of queries and of their objectives, kinds of operators, origins of arrivals."""

from django.db import models

__all__ = ["ArrivalOrigin", "ObjectiveState", "OperatorKind", "QueryState"]


class QueryState(models.TextChoices):
    """State of a query."""

    DRAFT = "draft", "Draft"  #: described, never admitted
    RUNNING = "running", "Running"  #: admitted; part of every estimate of its cluster
    QUEUED = "queued", "Queued"  #: waits for capacity
    STOPPED = "stopped", "Stopped"  #: ran once; no longer part of the cluster's load


class ObjectiveState(models.TextChoices):
    """State of an objective: of an estimate by itself, or of a query by measurement and estimate."""

    HOLDS = "holds", "Holds"  #: what is measured and the estimate's whole interval are within the objective
    AT_RISK = (
        "at_risk",
        "At risk",
    )  #: only the interval is over, or an estimate that what is measured does not confirm
    BREACHED = "breached", "Breached"  #: the measurement is over or, where none counts, the estimate itself
    UNKNOWN = (
        "unknown",
        "Not known",
    )  #: nobody knows it, and what an event meets by what is known is within the objective
    NONE = "none", "No objective"  #: nothing to hold against


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
