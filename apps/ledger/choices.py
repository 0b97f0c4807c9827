"""Kinds of entries of the ledger."""

from django.db import models

__all__ = ["ChangeAction"]


class ChangeAction(models.TextChoices):
    """Kind of an entry: a change of an object, a decision, or an attempt that was refused."""

    CREATED = "created", "Created"
    CHANGED = "changed", "Changed"
    DELETED = "deleted", "Deleted"
    DECIDED = "decided", "Decided"  #: a decision, or what a person does with a run
    REFUSED = "refused", "Refused"  #: an attempt that changed nothing
