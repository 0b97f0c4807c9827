"""Origins and states of refined configurations, and states of rollouts and their members."""

from django.db import models

__all__ = [
    "ENDED",
    "GIVEN",
    "IN_FORCE",
    "SPREADING",
    "UNDER_WAY",
    "ConfigOrigin",
    "ConfigState",
    "MemberState",
    "RolloutState",
]


class ConfigOrigin(models.TextChoices):
    """Origin of a configuration."""

    SPARK = "spark", "Spark"  #: the refinement job of the stream processor
    PERSON = "person", "By hand"
    ROLLBACK = "rollback", "Rollback"  #: restores the configuration before another one, under a higher number


class ConfigState(models.TextChoices):
    """State of a configuration."""

    DRAFT = "draft", "Draft"  #: at no agent yet; its rollout may wait in line
    REFUSED = "refused", "Refused"  #: by its check, as worse than the policy allows; starts only by force
    ROLLING = "rolling", "Rolling out"  #: some agents have it
    CURRENT = "current", "Current"  #: in force at some agents, and not rolled back
    SUPERSEDED = "superseded", "Superseded"  #: was current, and is replaced by newer ones everywhere
    STOPPED = "stopped", "Stopped"  #: ended before it was current
    ROLLED_BACK = "rolled-back", "Rolled back"


class RolloutState(models.TextChoices):
    """State of a rollout."""

    WAITING = "waiting", "Waiting"  #: another one is under way
    CANARY = "canary", "Canary"  #: the first few agents are watched
    WAVE = "wave", "Wave"  #: more agents get it
    PAUSED = "paused", "Paused"
    ROLLING_BACK = "rolling-back", "Rolling back"
    DONE = "done", "Done"
    ROLLED_BACK = "rolled-back", "Rolled back"
    STOPPED = "stopped", "Stopped"  #: ended before any agent had it, or with the query it was for


class MemberState(models.TextChoices):
    """State of a configuration at an agent."""

    PENDING = "pending", "Not yet"
    SENT = "sent", "Sent"
    APPLIED = "applied", "Applied"
    REFUSED = "refused", "Refused"
    SILENT = "silent", "No report"  #: no acknowledgement for longer than the policy waits


#: Configurations in force for good.
IN_FORCE = (ConfigState.CURRENT, ConfigState.SUPERSEDED)
#: Rollouts that have reached some agents, not yet all.
SPREADING = (RolloutState.CANARY, RolloutState.WAVE, RolloutState.PAUSED)
#: Rollouts that hold up those behind them.
UNDER_WAY = (*SPREADING, RolloutState.ROLLING_BACK)
#: Rollouts that have ended.
ENDED = (RolloutState.DONE, RolloutState.ROLLED_BACK, RolloutState.STOPPED)
#: Members that were sent the configuration.
GIVEN = (MemberState.SENT, MemberState.APPLIED, MemberState.REFUSED, MemberState.SILENT)
