"""Evidence that decides a state; origins of scored runs, scopes of factors, states of trust."""

from django.db import models

from engine.latency_state import KNOWN, NEVER_CATCHES_UP, UNKNOWN
from engine.measurement.objectives import ESTIMATE, MEASUREMENT, NOTHING
from engine.measurement.trust import FALLING, HOLDING, LOST

__all__ = ["CalibrationScope", "Certainty", "DecidedBy", "MeasurementLack", "RunOrigin", "TrustState", "UnscoredReason"]


class DecidedBy(models.TextChoices):
    """Evidence that decides the state of an objective."""

    MEASUREMENT = MEASUREMENT, "Measurement"
    ESTIMATE = ESTIMATE, "Estimate"
    NOTHING = NOTHING, "Nothing"  #: its chain cannot be observed, and an estimate alone does not say that it holds


class Certainty(models.TextChoices):
    """Whether the figures of an estimate are known (`engine.latency_state`)."""

    KNOWN = KNOWN.kind, "Known"
    UNKNOWN = (
        UNKNOWN,
        "Unknown",
    )  #: nothing comes out, or a cost is not told: they are what an event meets by what is known
    ENDLESS = NEVER_CATCHES_UP, "Never catches up"  #: they only grow after the horizon


class MeasurementLack(models.TextChoices):
    """Why a measurement does not count."""

    NONE = "none", "Nothing was measured"
    DISTURBED = "disturbed", "Measured only while the stream processor was not at work"
    FEW = "few", "Too few results"
    STALE = "stale", "The newest result is too old"


class RunOrigin(models.TextChoices):
    """Origin of a run that an estimate was held against."""

    LIVE = "live", "Agents"  #: measured by agents and stream processor
    FLINK = "flink", "Flink"  #: reported from there, as are the next two
    SPARK = "spark", "Spark"
    PROMETHEUS = "prometheus", "Prometheus"
    SIMULATED = "simulated", "Simulated"  #: by `engine.simulation`; nothing was measured


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


class UnscoredReason(models.TextChoices):
    """Why an interval of a live query with results was not scored."""

    NO_ESTIMATE = "no_estimate", "No estimate was in force"
    VERSION = "version", "The estimate was of another version"
    INCOMPLETE = "incomplete", "Every window closed without an agent"
    REVISED = "revised", "Only revisions of earlier windows came"
    CLOCKS = "clocks", "No latency: clocks contradict each other"
