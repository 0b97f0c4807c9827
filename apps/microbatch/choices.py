"""Origins and states of Spark queries, and reasons of fits."""

from django.db import models

__all__ = ["FitReason", "SparkQueryOrigin", "SparkQueryState"]


class SparkQueryOrigin(models.TextChoices):
    """Way by which the progress of a Spark query arrives."""

    OWN = "own", "Sluice"  #: its own stream processor, which registers itself
    LISTENER = "listener", "Listener"  #: a StreamingQueryListener posts each micro-batch
    URL = "url", "URL"  #: asked every half minute
    FILE = "file", "File"  #: uploaded by a person


class SparkQueryState(models.TextChoices):
    """State of a Spark query, by the last progress of it."""

    AWAITED = "awaited", "Awaited"  #: no progress yet
    REPORTING = "reporting", "Reporting"  #: its last progress is recent
    SILENT = "silent", "Silent"  #: its last progress is not recent
    UNREACHABLE = "unreachable", "Unreachable"  #: its URL does not answer, or with something else
    RECORDED = "recorded", "Recorded"  #: a file, which ends where it ends


class FitReason(models.TextChoices):
    """Reason of a fit. The words end a sentence: fitted …"""

    FIRST = "first", "to its first micro-batches"
    SETTINGS = "settings", "after a change of settings"
    REQUEST = "request", "on request"
    DRIFT = "drift", "by itself, after drift"
