"""States of invitations."""

from django.db import models

__all__ = ["InvitationState"]


class InvitationState(models.TextChoices):
    """State of an invitation."""

    OPEN = "open", "Open"  #: its link works
    USED = "used", "Used"  #: somebody has made an account by it
    EXPIRED = "expired", "Expired"
    REVOKED = "revoked", "Taken back"
