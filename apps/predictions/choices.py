"""Metrics that are predicted, and the states of predictions, model versions and fine-tunings."""

from __future__ import annotations

from django.db import models

__all__ = [
    "COSTS",
    "ExecutionOrigin",
    "FineTuningState",
    "ModelOrigin",
    "ModelState",
    "PredictionPurpose",
    "PredictionState",
    "TargetMetric",
]


class TargetMetric(models.TextChoices):
    """Cost that a first placement makes small, or large in the case of the throughput."""

    THROUGHPUT = "T", "Throughput"
    PROCESSING_LATENCY = "Lp", "Processing latency"
    END_TO_END_LATENCY = "Le", "End-to-end latency"


COSTS = tuple(TargetMetric.values)  #: as documents write them


class PredictionPurpose(models.TextChoices):
    """Occasion of a prediction."""

    QUESTION = "question", "Question"  #: somebody asked for it
    ADMISSION = "admission", "Admission"  #: a preview of a query that never ran
    OBSERVATION = "observation", "Observation"  #: of a running query where it runs, to be held against what comes


class PredictionState(models.TextChoices):
    """Outcome of a prediction."""

    PREDICTED = "predicted", "Predicted"  #: a candidate passes the votes and was chosen
    INFEASIBLE = "infeasible", "No feasible candidate"  #: none passes, or no placement keeps rules and pins
    INCOMPLETE = "incomplete", "Incomplete"  #: the query does not say what the model needs


class ModelOrigin(models.TextChoices):
    """Origin of a model version."""

    SHIPPED = "shipped", "Shipped"  #: came with Sluice, trained on simulated traces
    FINE_TUNED = "fine_tuned", "Fine-tuned"  #: trained further on observed executions of a cluster


class ModelState(models.TextChoices):
    """State of a model version."""

    AVAILABLE = "available", "Available"  #: may be put in force
    IN_FORCE = "in_force", "In force"  #: predicts for its cluster
    REFUSED = "refused", "Refused"  #: by the guard: no better than the one it was made from


class FineTuningState(models.TextChoices):
    """State of a fine-tuning."""

    RUNNING = "running", "Running"
    ACCEPTED = "accepted", "Accepted"  #: better on the executions held out; in force since
    REFUSED = "refused", "Refused"  #: not better; kept for the record, never in force
    FAILED = "failed", "Failed"


class ExecutionOrigin(models.TextChoices):
    """Origin of an observed execution."""

    LIVE = "live", "Live query"  #: results of agents and stream processor
    REPORTED = "reported", "Reported"  #: sent over REST by what ran the query
