"""Where load histories come from, and the buckets they are kept in."""

from django.db import models

__all__ = ["BUCKETS", "HistoryOrigin"]

# Each divides the next, so that finer histories can be added up to coarser ones.
BUCKETS = (900, 1800, 3600, 10_800, 21_600, 43_200, 86_400)


class HistoryOrigin(models.TextChoices):
    """How a history came here."""

    UPLOAD = "upload", "Upload"  #: a file
    GENERATOR = "generator", "Generator"  #: made up
    ARRIVALS = "arrivals", "Arrivals' file"  #: kept when the file's busiest stretch became a source's arrivals
