"""Why plans are compared, where they are judged, and how far a comparison is."""

from django.db import models

__all__ = ["ComparisonReason", "ComparisonState", "Places"]


class ComparisonReason(models.TextChoices):
    """What a comparison was made for."""

    ASKED = "asked", "Asked for"  #: somebody, or a program, wanted it
    SCHEDULED = "scheduled", "Scheduled"  #: the last one had become old
    DRIFT = "drift", "Statistics drifted"  #: they differ significantly from those of the last one


class ComparisonState(models.TextChoices):
    """Where a comparison is in its life."""

    COMPUTING = "computing", "Computing"  #: a job is at work or will be
    DONE = "done", "Done"  #: there is a ranking
    FAILED = "failed", "Failed"  #: its job failed; the message says why
    CANCELLED = "cancelled", "Cancelled"  #: its job was cancelled


class Places(models.TextChoices):
    """Where plans are placed to be judged."""

    KEEP = "keep", "Operators that run stay where they are"
    FREE = "free", "All operators are placed anew"
