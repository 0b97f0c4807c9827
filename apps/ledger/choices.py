"""Kinds of entries of the ledger."""

from django.db import models

__all__ = ["ChangeAction"]


class ChangeAction(models.TextChoices):
    """Kind of a change of an object."""

    CREATED = "created", "Created"
    CHANGED = "changed", "Changed"
    DELETED = "deleted", "Deleted"
