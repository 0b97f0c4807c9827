"""States of nodes, and origins of numbers."""

from django.db import models

__all__ = ["ABSENT", "CostEvidence", "CycleUnit", "Evidence", "Fallback", "InputOrigin", "NodeState"]


class NodeState(models.TextChoices):
    """State of a node: which operators it runs."""

    ACTIVE = "active", "Active"  #: runs operators and takes new ones
    DRAINING = "draining", "Draining"  #: runs what it has, takes nothing new
    OFFLINE = "offline", "Offline"  #: not part of the cluster's capacity
    PLANNED = "planned", "Planned"  #: wanted or ordered, not there yet; no part of the capacity until it is activated


ABSENT = (NodeState.OFFLINE, NodeState.PLANNED)


class CycleUnit(models.TextChoices):
    """Unit of cycles, as in `engine.document.cycles`."""

    NOMINAL = "nominal", "Nominal cycles"  #: of a clock rate that somebody stated
    CALIBRATED = "calibrated", "Calibrated cycles"  #: of the clock at which a core was measured to run
    CPU_NS = "cpu_ns", "Nanoseconds of CPU"  #: of busy threads, as connected engines tell


class Evidence(models.TextChoices):
    """Origin of a number."""

    ASSUMED = "assumed", "Assumed"  #: entered by a person
    PREDICTED = "predicted", "Predicted"  #: computed by a model
    MEASURED = "measured", "Measured"  #: counted on a running system


class CostEvidence(models.TextChoices):
    """Origin of an operator's cost: that of a number, or that it runs and nothing tells what an event costs it."""

    ASSUMED = "assumed", "Assumed"  #: entered by a person
    PREDICTED = "predicted", "Predicted"  #: computed by a model
    MEASURED = "measured", "Measured"  #: counted on a running system
    UNKNOWN = "unknown", "Not known"  #: it runs, and nothing tells


class InputOrigin(models.TextChoices):
    """Origin of an input of a plan or of a setting: the evidence of a number, or that nobody has given one."""

    MEASURED = "measured", "Measured"  #: counted on a running system
    PREDICTED = "predicted", "Predicted"  #: computed by a model
    ASSUMED = "assumed", "Assumed"  #: entered by a person, or split off a measured sum by an assumption
    DEFAULT = "default", "Default"  #: nobody has given it: the product's value


class Fallback(models.TextChoices):
    """Answer to an API server where there is no verdict that says yes or no."""

    ALLOW = "allow", "Allow, with a warning"  #: fails open
    DENY = "deny", "Deny"  #: fails closed
