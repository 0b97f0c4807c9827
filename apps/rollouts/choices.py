"""Where refined configurations come from, and where they and their rollouts stand."""

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
    """Who made a configuration."""

    SPARK = "spark", "Spark"  #: the refinement job of the stream processor
    PERSON = "person", "By hand"
    ROLLBACK = "rollback", "Rollback"  #: takes another one back: what was in force before, under a higher number


class ConfigState(models.TextChoices):
    """Where a configuration stands."""

    DRAFT = "draft", "Draft"  #: nobody has it yet; its rollout may wait in line
    REFUSED = "refused", "Refused"  #: its check found it worse than the policy allows; it starts by force alone
    ROLLING = "rolling", "Rolling out"  #: some agents have it
    CURRENT = "current", "Current"  #: in force at some agents, and not rolled back
    SUPERSEDED = "superseded", "Superseded"  #: it was current, and is replaced everywhere by newer ones
    STOPPED = "stopped", "Stopped"  #: it ended before it was current
    ROLLED_BACK = "rolled-back", "Rolled back"


class RolloutState(models.TextChoices):
    """Where a rollout stands."""

    WAITING = "waiting", "Waiting"  #: another one is under way
    CANARY = "canary", "Canary"  #: the first few agents are watched
    WAVE = "wave", "Wave"  #: more agents get it
    PAUSED = "paused", "Paused"
    ROLLING_BACK = "rolling-back", "Rolling back"
    DONE = "done", "Done"
    ROLLED_BACK = "rolled-back", "Rolled back"
    STOPPED = "stopped", "Stopped"  #: it ended before anybody had it, or what it was made for has ended


class MemberState(models.TextChoices):
    """How far a configuration has come at an agent."""

    PENDING = "pending", "Not yet"
    SENT = "sent", "Sent"
    APPLIED = "applied", "Applied"
    REFUSED = "refused", "Refused"
    SILENT = "silent", "No report"  #: it has not answered for longer than the policy waits


#: Configurations that agents may have for good.
IN_FORCE = (ConfigState.CURRENT, ConfigState.SUPERSEDED)
#: Rollouts whose configuration some agents have, and others not yet.
SPREADING = (RolloutState.CANARY, RolloutState.WAVE, RolloutState.PAUSED)
#: Rollouts that hold up those behind them.
UNDER_WAY = (*SPREADING, RolloutState.ROLLING_BACK)
#: Rollouts of which nothing more comes.
ENDED = (RolloutState.DONE, RolloutState.ROLLED_BACK, RolloutState.STOPPED)
#: Members that have been given the configuration, whatever they did with it.
GIVEN = (MemberState.SENT, MemberState.APPLIED, MemberState.REFUSED, MemberState.SILENT)
