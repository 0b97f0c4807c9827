"""What can be chosen for a backtest, and its life."""

from django.db import models

__all__ = ["Asked", "BacktestState"]


class BacktestState(models.TextChoices):
    """Where a backtest is in its life."""

    ASKED = "asked", "Asked"  #: its job waits or runs
    ANSWERED = "answered", "Answered"  #: result stored
    FAILED = "failed", "Failed"  #: its job failed; the job says why
    CANCELLED = "cancelled", "Cancelled"  #: stopped on request


class Asked(models.TextChoices):
    """When requests are asked in the replay."""

    RECORDED = "recorded", "When they were made"
    START = "start", "All at the beginning of the period"
