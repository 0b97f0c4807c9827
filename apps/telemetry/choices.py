"""Kinds and states of agents and live queries."""

from django.db import models

__all__ = ["COLUMN_TYPES", "PRODUCER", "AgentKind", "AgentState", "LiveState"]

COLUMN_TYPES = ("int64", "float64", "string", "bool", "timestamp")
PRODUCER = "producer"  # the kind of a source whose records no agent collects


class AgentKind(models.TextChoices):
    """Kind of a sender of telemetry."""

    AGENT = "agent", "Agent"  #: runs collectors and the first operators of queries
    RELAY = "relay", "Relay"  #: merges frames of the agents below it
    PRODUCER = "producer", "Producer"  #: another program that posts records


class AgentState(models.TextChoices):
    """State of an agent, worst first."""

    DISABLED = "disabled", "Disabled"  #: by hand: its frames are refused
    NEVER = "never", "Never reported"  #: enrolled, without a heartbeat yet
    SILENT = "silent", "No report"  #: its last heartbeat is too old
    SPOOL = "spool", "Spool filling"  #: more comes than leaves, or its disk is full
    OVERFLOW = "overflow", "Overflowing"  #: records are sent on unprocessed, or shed, for lack of CPU
    NEAR = "near", "Near its CPU cap"  #: it uses nearly its whole CPU budget
    ADAPTING = "adapting", "Adapting"  #: load factors of a query are changing
    STEADY = "steady", "Steady"  #: none of the above


class LiveState(models.TextChoices):
    """State of a live query."""

    STARTING = "starting", "Starting"  #: requested; not reported by the stream processor yet
    RUNNING = "running", "Running"  #: the stream processor reports its watermark
    STOPPED = "stopped", "Stopped"  #: by hand, or because the query stopped
