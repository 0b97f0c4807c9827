"""Kinds and states of agents and live queries."""

from django.db import models

__all__ = ["COLUMN_TYPES", "PRODUCER", "AgentKind", "AgentState", "LiveState"]

COLUMN_TYPES = ("int64", "float64", "string", "bool", "timestamp")
PRODUCER = "producer"  # the kind of a source whose records no agent collects


class AgentKind(models.TextChoices):
    """Who sends telemetry."""

    AGENT = "agent", "Agent"  #: runs collectors and the first operators of queries
    RELAY = "relay", "Relay"  #: merges what agents below it send
    PRODUCER = "producer", "Producer"  #: a program of somebody else's that posts records


class AgentState(models.TextChoices):
    """How an agent is, worst first."""

    DISABLED = "disabled", "Disabled"  #: by hand: what it sends is refused
    NEVER = "never", "Never reported"  #: enrolled, but not heard of since
    SILENT = "silent", "No report"  #: its last heartbeat is too old
    SPOOL = "spool", "Spool filling"  #: it keeps more than it gets rid of, or its disk is full
    OVERFLOW = "overflow", "Overflowing"  #: records are sent on unprocessed, or shed, for lack of CPU
    NEAR = "near", "Near its CPU cap"  #: it uses nearly all the CPU it may
    ADAPTING = "adapting", "Adapting"  #: load factors of a query are on the move
    STEADY = "steady", "Steady"  #: all is well


class LiveState(models.TextChoices):
    """Whether a query runs on live telemetry."""

    STARTING = "starting", "Starting"  #: asked for; the stream processor has not shown it yet
    RUNNING = "running", "Running"  #: the stream processor reports its watermark
    STOPPED = "stopped", "Stopped"  #: by hand, or because the query stopped
