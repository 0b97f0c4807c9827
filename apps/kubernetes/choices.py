"""Grounds of answers to Kubernetes, and where reviews come from."""

from django.db import models

__all__ = ["ReviewBasis", "ReviewOrigin"]


class ReviewOrigin(models.TextChoices):
    """Sender of a review."""

    WEBHOOK = "webhook", "API server"  #: an AdmissionReview
    MANIFEST = "manifest", "Manifest"  #: a manifest that was asked about, as by a pipeline


class ReviewBasis(models.TextChoices):
    """Ground of an answer."""

    VERDICT = "verdict", "Verdict"  #: of an admission
    RUNNING = "running", "Runs already"  #: the version that runs, with as much parallelism
    UNCHANGED = "unchanged", "Nothing changed"  #: the specification is as it was
    STOPS = "stops", "Takes no load"  #: deleted or suspended
    LESS = "less", "Less than measured"  #: asks for less parallelism than its statistics are of
    UNKNOWN = "unknown", "Not known"  #: no statistics, and none can be predicted
    LATE = "late", "No verdict in time"
    OTHER = "other", "Not for Sluice"  #: a kind that it does not decide on
