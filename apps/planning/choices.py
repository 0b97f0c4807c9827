"""What can be asked of a fleet that is not there yet, and the life of such a question."""

from django.db import models

__all__ = ["Find", "Place", "WhatIfState"]


class Find(models.TextChoices):
    """What an answer looks for."""

    COMPARE = "compare", "Compare scenarios"
    SWEEP = "sweep", "Latency and cost by number of nodes"
    SMALLEST_POOL = "smallest_pool", "Smallest pool"
    CHEAPEST_MIX = "cheapest_mix", "Cheapest mix"
    PARETO = "pareto", "Cost against latency"
    SURVIVAL = "survival", "Survival of a lost node"
    GROWTH = "growth", "Room to grow"


class Place(models.TextChoices):
    """What becomes of the placement when a scenario changes the fleet."""

    KEEP = "keep", "Keep"  #: nothing moves; what would lose its node is a refusal
    FILL = "fill", "Fill"  #: what has no node gets one, the rest stays
    SEARCH = "search", "Search"  #: everything may move


class WhatIfState(models.TextChoices):
    """Where a what-if is in its life."""

    ASKED = "asked", "Asked"  #: its job waits or runs
    ANSWERED = "answered", "Answered"  #: result stored
    FAILED = "failed", "Failed"  #: its job failed; the job says why
    CANCELLED = "cancelled", "Cancelled"  #: stopped on request
