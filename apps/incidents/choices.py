"""States and severities of incidents, and what happens to them."""

from django.db import models

from engine.measurement import causes

__all__ = ["ChannelKind", "IncidentCause", "IncidentEventKind", "IncidentSeverity", "IncidentState", "NoticeEvent"]


class IncidentState(models.TextChoices):
    """State of an incident."""

    OPEN = "open", "Open"  #: a query is late by its cause, or was until a moment ago; the engine is away
    RESOLVED = "resolved", "Resolved"  #: all of its queries are well again; the engine is back


class IncidentSeverity(models.TextChoices):
    """Severity of an incident: that of its worst query."""

    CRITICAL = "critical", "Critical"  #: an objective is breached
    WARNING = "warning", "Warning"  #: objectives are at risk, or an engine is away


class IncidentCause(models.TextChoices):
    """Cause that queries of an incident have in common; of an engine that is away there are none."""

    STREAM_AWAY = causes.STREAM_AWAY, "Stream processor does not run"
    STREAM_BEHIND = causes.STREAM_BEHIND, "Stream processor is behind"
    AGENT_SILENT = causes.AGENT_SILENT, "Agent does not report"
    FRAMES_WAITING = causes.FRAMES_WAITING, "Frames wait"
    AGENT_STARVED = causes.AGENT_STARVED, "Agent is starved"
    SOURCE_SILENT = causes.SOURCE_SILENT, "Source is silent"
    WATERMARK_HELD = causes.WATERMARK_HELD, "Watermark is held back"
    NODE_BUSY = causes.NODE_BUSY, "Node is busy"
    MAIN_WAIT = causes.MAIN_WAIT, "Wait beside the queues"
    ENGINE_AWAY = causes.ENGINE_AWAY, "Engine is away"
    UNEXPLAINED = causes.UNEXPLAINED, "Not explained"


class IncidentEventKind(models.TextChoices):
    """Entry of an incident's timeline."""

    OPENED = "opened", "Opened"
    REOPENED = "reopened", "Opened again"
    JOINED = "joined", "Query is late"
    EXPECTED = "expected", "Query is expected to be late, or may be"  #: by its estimate alone
    WORSE = "worse", "Query is worse"
    MEASURED = "measured", "Measured now"  #: until then estimates alone expected it
    UNCONFIRMED = "unconfirmed", "Query is well on paper"  #: by its estimate; nothing was measured since
    DONE = "done", "Done"  #: a person says that what was changed on paper was done
    LEFT = "left", "Query is well again"
    MOVED = "moved", "Query has another cause"
    CAUSE = "cause", "Cause is another"
    ACKNOWLEDGED = "acknowledged", "Acknowledged"
    RESOLVED = "resolved", "Resolved"


class ChannelKind(models.TextChoices):
    """Service that a channel of incidents leads to."""

    ALERTMANAGER = "alertmanager", "Alertmanager"  #: API v2; alerts are renewed while an incident is open
    PAGERDUTY = "pagerduty", "PagerDuty"  #: Events API v2; one event for each incident, resolved with it
    OPSGENIE = "opsgenie", "Opsgenie"  #: Alert API; one alert for each incident, closed with it
    CLOUDEVENTS = "cloudevents", "CloudEvents"  #: structured JSON over HTTP
    SLACK = "slack", "Slack"
    TEAMS = "teams", "Microsoft Teams"
    SERVICE = "service", "Another service (Apprise)"


class NoticeEvent(models.TextChoices):
    """Message to the recipients of a cluster's incidents."""

    OPENED = "opened", "Opened"
    ESCALATED = "escalated", "Critical now"
    RESOLVED = "resolved", "Resolved"
