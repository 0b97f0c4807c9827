"""Choices of alert rules: comparison, severity, state of an alert."""

from django.db import models

__all__ = ["AlertEvent", "AlertState", "Comparison", "ResolvedBy", "Severity"]


class Comparison(models.TextChoices):
    """Comparison of a value with the threshold."""

    ABOVE = "gt", "above"
    AT_LEAST = "ge", "at least"
    BELOW = "lt", "below"
    AT_MOST = "le", "at most"


class Severity(models.TextChoices):
    """Severity of an alert; the overview lists the worst first."""

    CRITICAL = "critical", "Critical"  #: somebody has to act now
    WARNING = "warning", "Warning"  #: somebody should look at it
    NOTICE = "notice", "Notice"  #: worth knowing


class AlertState(models.TextChoices):
    """State of an alert."""

    FIRING = "firing", "Firing"  #: the newest windows break the rule
    RESOLVED = "resolved", "Resolved"  #: they do no more


class AlertEvent(models.TextChoices):
    """Message of a rule to its recipients."""

    FIRING = "firing", "Firing"
    RESOLVED = "resolved", "Resolved"


class ResolvedBy(models.TextChoices):
    """Why an alert has ended."""

    VALUE = "value", "the value is back"
    GONE = "gone", "the group has no rows any more"
    CHANGED = "changed", "the rule was changed or switched off"
    STOPPED = "stopped", "the query was stopped"
