"""State of an estimate against its objective; origins of scored runs, scopes of factors, states of trust."""

from django.db import models

from engine.measurement.trust import FALLING, HOLDING, LOST

__all__ = ["CalibrationScope", "ObjectiveState", "RunOrigin", "TrustState"]


class ObjectiveState(models.TextChoices):
    """The state rule of the console."""

    HOLDS = "holds", "Holds"  #: the estimate's whole interval is within the objective
    AT_RISK = "at_risk", "At risk"  #: only the upper end of the interval is over
    BREACHED = "breached", "Breached"  #: the estimate itself is over
    NONE = "none", "No objective"  #: nothing to hold against


class RunOrigin(models.TextChoices):
    """Origin of a run that an estimate was held against."""

    LIVE = "live", "Live queries"  #: measured by agents and stream processor
    FLINK = "flink", "Imported from Flink"  #: reported from there, as are the next two
    SPARK = "spark", "Imported from Spark"
    PROMETHEUS = "prometheus", "Imported from Prometheus"


class CalibrationScope(models.TextChoices):
    """Group whose runs the factors of an interval come from, the narrowest that has enough."""

    QUERY = "query", "the query"
    KIND = "kind", "queries of its kind"  #: of the same statistic, with windows or without
    ORIGIN = "origin", "queries of its origin"


class TrustState(models.TextChoices):
    """Whether the intervals of a query hold lately."""

    HOLDING = HOLDING, "Holding"
    FALLING = FALLING, "Falling"  #: they are widened faster
    LOST = LOST, "Lost"  #: a person decides what rests on them
