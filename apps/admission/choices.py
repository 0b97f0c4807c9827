"""Verdicts and the life of an admission request."""

from django.db import models

__all__ = [
    "OPEN",
    "PARTS_UNDER_WAY",
    "SET_ASIDE",
    "AdmissionSource",
    "AdmissionState",
    "ErrorLack",
    "PartState",
    "ReceiptLack",
    "ReceiptOutcome",
    "ReceiptSpan",
    "TrialState",
    "Verdict",
    "WrongReason",
]


class Verdict(models.TextChoices):
    """Verdict of the engine on a request."""

    ADMIT = "admit", "Admit"
    ADMIT_WITH_CHANGES = "admit_with_changes", "Admit with changes"
    QUEUE = "queue", "Queue"
    REVIEW = "review", "Review"
    REJECT = "reject", "Reject"


class AdmissionSource(models.TextChoices):
    """Way by which a request came in."""

    CONSOLE = "console", "Console"  #: a page, or Sluice itself
    API = "api", "REST API"  #: a program with a token, such as ./sluice admit
    KUBERNETES = "kubernetes", "Kubernetes"  #: a review of an API server, or of a manifest


class AdmissionState(models.TextChoices):
    """State of a request."""

    ESTIMATING = "estimating", "Estimating"  #: its job runs
    FAILED = "failed", "Failed"  #: its job failed; the job says why
    PREVIEW = "preview", "Preview"  #: decided, not applied
    APPLIED = "applied", "Applied"  #: the query runs
    QUEUED = "queued", "Queued"  #: waits until its start time, then is previewed again
    AWAITING = "awaiting", "Awaiting review"  #: a person decides
    DECLINED = "declined", "Declined"  #: a person said no
    WITHDRAWN = "withdrawn", "Withdrawn"  #: the requester took it back
    SUPERSEDED = "superseded", "Superseded"  #: a later preview of the same request replaced it


class PartState(models.TextChoices):
    """State of a part of a decision, which follows its verdict."""

    PENDING = "pending", "Pending"  #: waits for a worker, or for the part before it
    RUNNING = "running", "Running"  #: is computed
    DONE = "done", "Done"
    OUT_OF_BUDGET = "out_of_budget", "Out of time"  #: took longer than it may; what it found stands
    CANCELLED = "cancelled", "Cancelled"  #: the request went on without it, or somebody cancelled its job
    FAILED = "failed", "Failed"
    DOES_NOT_APPLY = "does_not_apply", "Does not apply"  #: this verdict has none


#: States of a part that something still becomes of
PARTS_UNDER_WAY = frozenset({PartState.PENDING, PartState.RUNNING})


class TrialState(models.TextChoices):
    """State of a trial of a request's version."""

    RUNNING = "running", "Running"  #: at its agent
    MEASURED = "measured", "Measured"  #: enough was measured; the request was previewed again
    TOO_LITTLE = "too_little", "Too little measured"  #: nothing was previewed
    STOPPED = "stopped", "Stopped"  #: by a person, or because its request or query went on


# Something may still become of a request in one of these
OPEN = frozenset({AdmissionState.ESTIMATING, AdmissionState.PREVIEW, AdmissionState.QUEUED, AdmissionState.AWAITING})


class ReceiptSpan(models.TextChoices):
    """Time after which a decision comes back."""

    HOUR = "hour", "An hour"
    DAY = "day", "A day"
    WEEK = "week", "A week"


class ReceiptOutcome(models.TextChoices):
    """Outcome of a promise."""

    DUE = "due", "Not yet due"
    HELD = "held", "Held"  #: the objective is kept, and the interval held
    OUTSIDE = "outside", "Outside its interval"  #: the objective is kept
    MISSED = "missed", "Objective missed"
    NOT_KNOWN = "not_known", "Not known"  #: nothing was measured that it could be held against


class ReceiptLack(models.TextChoices):
    """Why nothing is known of a promise."""

    NOTHING = "nothing", "Nothing was measured"
    DISTURBED = "disturbed", "Measured only while the stream processor was not at work"
    FEW = "few", "Too few results"
    STALE = "stale", "The newest result was too old"
    DELETED = "deleted", "The query was deleted"
    STOPPED = "stopped", "The query was stopped"
    REPLACED = "replaced", "Another version runs"
    NO_PROMISE = "no_promise", "Neither an objective nor an interval was promised"


class ErrorLack(models.TextChoices):
    """Why an error is not split into load, costs and model."""

    LATE = "late", "It was written too long after it was due"
    NOT_KEPT = "not_kept", "The surroundings of the query were not kept"
    TOO_LARGE = "too_large", "More runs on its servers than is kept"
    OTHER = "other", "What runs now does not compare with what ran"


class WrongReason(models.TextChoices):
    """Why a verdict turned out wrong, as a person says it."""

    LOAD = "load", "Other load than was told"
    COST = "cost", "Other costs than were told"
    CHANGE = "change", "Somebody changed something since"
    MODEL = "model", "The model errs"
    FAILURE = "failure", "Something failed: a node, a network, an engine"
    MEASUREMENT = "measurement", "The measurement is wrong"
    OTHER = "other", "Something else"


#: Reasons for which what was measured says nothing of estimates: its runs count in no calibration.
SET_ASIDE = frozenset({WrongReason.FAILURE, WrongReason.MEASUREMENT})
