"""State of an estimate against its objective."""

from django.db import models

__all__ = ["ObjectiveState"]


class ObjectiveState(models.TextChoices):
    """The state rule of the console."""

    HOLDS = "holds", "Holds"  #: the estimate's whole interval is within the objective
    AT_RISK = "at_risk", "At risk"  #: only the upper end of the interval is over
    BREACHED = "breached", "Breached"  #: the estimate itself is over
    NONE = "none", "No objective"  #: nothing to hold against
