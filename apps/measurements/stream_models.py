"""What the stream processor was doing, and since when."""

from __future__ import annotations

from django.db import models

__all__ = ["StreamStretch", "StreamWork"]


class StreamWork(models.TextChoices):
    """The words end a sentence: the stream processor was …"""

    STEADY = "steady", "at work"
    WARMING = "warming", "warming up"
    AWAY = "away", "away"
    CATCHING_UP = "catching_up", "catching up"


class StreamStretch(models.Model):
    """A stretch of time in which the stream processor did one thing; the next begins where it ends."""

    work = models.CharField(max_length=12, choices=StreamWork.choices)
    ready_since = models.DateTimeField(null=True, help_text="As it said itself; another value is another start.")
    begins_at = models.DateTimeField()
    ends_at = models.DateTimeField(db_index=True, help_text="The last look at it.")

    class Meta:
        ordering = ["-ends_at", "-pk"]

    def __str__(self) -> str:
        return f"{self.work} from {self.begins_at:%Y-%m-%d %H:%M:%S}"
