"""Refined configurations, what each holds for whom, and how they get to the agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils import timezone

from apps.core.limits import DIGEST_LENGTH, MAX_FAULT, MAX_NOTE
from apps.fleet.models import Cluster
from apps.ledger.recorder import Tracked
from apps.telemetry.models import Agent, LiveQuery
from engine.jarvis.refined_config import LearnedFigures
from engine.klink.settings import WatermarkPrior
from engine.records import Record, record_fields

__all__ = [
    "ENDED",
    "GIVEN",
    "IN_FORCE",
    "SPREADING",
    "UNDER_WAY",
    "ConfigOrigin",
    "ConfigState",
    "Learned",
    "LearnedOperators",
    "LearnedSweeps",
    "LearnedWatermarks",
    "MemberState",
    "RefinedConfig",
    "RefinedPart",
    "Rollout",
    "RolloutEvent",
    "RolloutMember",
    "RolloutPolicy",
    "RolloutState",
    "SchedulePart",
    "SweepFigures",
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


_SHARE = [MinValueValidator(0.0), MaxValueValidator(1.0)]
_NOT_NEGATIVE = [MinValueValidator(0.0)]


def _user() -> models.ForeignKey:
    return models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )


def default_waves() -> list[float]:
    """Shares of all agents that have a configuration after each wave."""
    return [0.3, 1.0]


class RefinedConfig(models.Model):
    """A numbered configuration of a cluster's agents, `c-118`. What has been given to an agent never changes."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="refined_configs")
    number = models.PositiveIntegerField(help_text="Also the version that agents compare.")
    parent = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="+", help_text="What was current before."
    )
    origin = models.CharField(max_length=10, choices=ConfigOrigin.choices)
    author = _user()
    words = models.CharField(max_length=MAX_NOTE, blank=True, help_text="What it changes.")
    settings = models.JSONField(
        default=dict, blank=True, help_text="Settings of adaptation, as given; the others have their defaults."
    )
    schedule = models.JSONField(
        null=True,
        blank=True,
        help_text="Settings of scheduling, as given; null: none, or not the same for all.",
    )
    scope = models.JSONField(default=dict, blank=True, help_text="Queries and agents by name; empty: all.")
    state = models.CharField(max_length=12, choices=ConfigState.choices, default=ConfigState.DRAFT)
    checked = models.JSONField(default=dict, blank=True, help_text="What is predicted on recorded epochs.")
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["cluster", "number"], name="refined_config_number_once")]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """`c-118`."""
        return f"c-{self.number}"

    @property
    def all_parts(self) -> tuple[models.QuerySet, models.QuerySet]:
        """Content of the configuration: parts for queries, and for schedules."""
        return self.parts.all(), self.schedule_parts.all()


class RefinedPart(models.Model):
    """Part of a configuration for a live query at an agent, or at every agent without a part of its own."""

    config = models.ForeignKey(RefinedConfig, on_delete=models.CASCADE, related_name="parts")
    live = models.ForeignKey(LiveQuery, on_delete=models.CASCADE, related_name="refined_parts")
    agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="refined_parts", help_text="Null: all."
    )
    plan = models.CharField(max_length=DIGEST_LENGTH, help_text="Digest of the pipeline it is for.")
    document = models.JSONField(help_text="As agents get it (engine.jarvis.refined_config).")

    class Meta:
        ordering = ["live", "agent"]
        constraints = [
            models.UniqueConstraint(fields=["config", "live", "agent"], name="refined_part_once"),
            models.UniqueConstraint(
                fields=["config", "live"], condition=models.Q(agent=None), name="refined_part_for_all_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.config} for {self.live} at {self.agent or 'all'}"

    @property
    def figures(self) -> LearnedFigures:
        """The learned figures in its document."""
        names = record_fields(LearnedFigures)
        return LearnedFigures.parse({name: value for name, value in self.document.items() if name in names})


class SchedulePart(models.Model):
    """Schedule of an agent by a configuration, or of every agent without a part of its own."""

    config = models.ForeignKey(RefinedConfig, on_delete=models.CASCADE, related_name="schedule_parts")
    agent = models.ForeignKey(
        Agent, null=True, blank=True, on_delete=models.CASCADE, related_name="schedule_parts", help_text="Null: all."
    )
    document = models.JSONField(help_text="As agents get it (engine.klink.settings).")

    class Meta:
        ordering = ["agent"]
        constraints = [
            models.UniqueConstraint(fields=["config", "agent"], name="schedule_part_once"),
            models.UniqueConstraint(
                fields=["config"], condition=models.Q(agent=None), name="schedule_part_for_all_once"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.config} for {self.agent or 'all'}"


class RolloutPolicy(Tracked):
    """Care of a cluster's rollouts: stages and limits. Its row is the lock of everything that moves configurations."""

    ledger_kind, ledger_name = "rollout-policy", "cluster__slug"

    cluster = models.OneToOneField(Cluster, on_delete=models.CASCADE, related_name="rollout_policy")
    canary_count = models.PositiveSmallIntegerField(default=1, validators=[MinValueValidator(1)])
    canary_share = models.FloatField(default=0.1, validators=_SHARE, help_text="Of all agents, where that is more.")
    canary_epochs = models.PositiveSmallIntegerField(
        default=20, validators=[MinValueValidator(10), MaxValueValidator(600)], help_text="Fewest epochs judged."
    )
    waves = models.JSONField(default=default_waves, help_text="Share of all agents after each wave, ending with 1.")
    wave_epochs = models.PositiveSmallIntegerField(
        default=10, validators=[MinValueValidator(10), MaxValueValidator(600)]
    )
    silent_epochs = models.PositiveSmallIntegerField(
        default=30,
        validators=[MinValueValidator(5), MaxValueValidator(3600)],
        help_text="Epochs an agent is waited for.",
    )
    overflow_pp = models.FloatField(default=1.0, validators=_NOT_NEGATIVE, help_text="Percentage points of records.")
    bytes_rel = models.FloatField(default=0.05, validators=_NOT_NEGATIVE, help_text="Bytes per record.")
    latency_rel = models.FloatField(default=0.25, validators=_NOT_NEGATIVE, help_text="And more than latency_abs_s.")
    latency_abs_s = models.FloatField(default=0.5, validators=_NOT_NEGATIVE)
    cpu_rel = models.FloatField(default=0.10, validators=_NOT_NEGATIVE, help_text="CPU time that saves no bytes.")
    automatic = models.BooleanField(default=True, help_text="Proposals of Spark start by themselves.")
    propose_every_s = models.FloatField(default=600.0, validators=[MinValueValidator(10), MaxValueValidator(604_800)])
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "rollout policies"

    def __str__(self) -> str:
        return f"rollouts of {self.cluster}"


class Rollout(models.Model):
    """A configuration on its way to the agents: first some canaries, then waves, as long as they do well."""

    config = models.OneToOneField(RefinedConfig, on_delete=models.CASCADE, related_name="rollout")
    back = models.OneToOneField(
        RefinedConfig,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="undoes",
        help_text="The config of its rollback.",
    )
    state = models.CharField(max_length=12, choices=RolloutState.choices, default=RolloutState.WAITING)
    stage = models.PositiveSmallIntegerField(default=0, help_text="0: canaries; 1, 2, …: waves.")
    policy = models.JSONField(default=dict, help_text="As it was when the rollout began.")
    verdict = models.JSONField(default=dict, blank=True, help_text="Verdict of the guard on the present stage.")
    reasons = models.JSONField(default=list, blank=True, help_text="Why it ended, or is rolled back.")
    by = _user()
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True, blank=True)
    stage_at = models.DateTimeField(null=True, blank=True, help_text="When the present stage began.")
    heard_at = models.DateTimeField(
        null=True, blank=True, help_text="When no agent reported last: silence counts from then on."
    )
    ended_at = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-created_at", "-pk"]
        indexes = [models.Index(fields=["state"], name="rollout_by_state")]

    def __str__(self) -> str:
        return f"rollout of {self.config}"

    @property
    def given(self) -> RefinedConfig:
        """Configurations for its members now."""
        return self.back or self.config

    @property
    def terms(self) -> RolloutPolicy:
        """The cluster's policy as it was when the rollout began."""
        names = [field.name for field in RolloutPolicy._meta.fields if field.editable]
        return RolloutPolicy(**{name: self.policy[name] for name in names if name not in ("id", "cluster")})

    @property
    def last_stage(self) -> int:
        """Number of the last wave; 0 where there are canaries alone."""
        return int(self.policy.get("last_stage", 0))


class RolloutMember(models.Model):
    """An agent that a rollout is to reach, in its stage."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="members")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="rollout_parts")
    stage = models.PositiveSmallIntegerField()
    state = models.CharField(max_length=10, choices=MemberState.choices, default=MemberState.PENDING)
    reasons = models.JSONField(default=list, blank=True, help_text="Why it refused.")
    at = models.DateTimeField(default=timezone.now, help_text="When its state last changed.")
    applied_at = models.DateTimeField(null=True, blank=True, help_text="When it acknowledged the config.")

    class Meta:
        ordering = ["stage", "agent__name"]
        constraints = [models.UniqueConstraint(fields=["rollout", "agent"], name="agent_once_per_rollout")]
        indexes = [models.Index(fields=["agent", "state"], name="rollout_member_by_agent")]

    def __str__(self) -> str:
        return f"{self.agent} in {self.rollout}"


class RolloutEvent(models.Model):
    """A step of a rollout: when, by whom, and why."""

    rollout = models.ForeignKey(Rollout, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    by = _user()
    words = models.CharField(max_length=MAX_FAULT)

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, kw_only=True)
class LearnedOperators(LearnedFigures):
    """Figures of a query's operators at an agent; records and CPU seconds of an epoch of late."""

    input_records: float | None = None
    budget_s: float | None = None


@dataclass(frozen=True)
class SweepFigures(Record):
    """Figures of a stream's sweeping watermarks, as they are shown."""

    sweeps: int | None
    clamped: int | None
    least_s: float | None
    most_s: float | None
    expected: int | None
    within: int | None
    latency_mean_s: float | None
    latency_p99_s: float | None


@dataclass(frozen=True)
class LearnedSweeps(Record):
    """Watermarks of a query's streams, and what is only shown of them."""

    TITLE: ClassVar[str] = "learned watermarks"

    watermarks: tuple[WatermarkPrior, ...]
    event_cost_s: float | None
    figures: Mapping[str, SweepFigures]


class Learned(models.Model):
    """Newest statistics of a live query's operators at an agent."""

    live = models.ForeignKey(LiveQuery, on_delete=models.CASCADE, related_name="learned")
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="learned")
    plan = models.CharField(max_length=DIGEST_LENGTH)
    measured_us = models.BigIntegerField(help_text="Newest epoch behind it; what is older does not replace it.")
    document = models.JSONField(help_text="record_bytes, operators, fitted and plan_prior of a refined document.")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "learned"
        constraints = [models.UniqueConstraint(fields=["live", "agent"], name="learned_once")]

    def __str__(self) -> str:
        return f"{self.live} at {self.agent}"

    @property
    def figures(self) -> LearnedOperators:
        return LearnedOperators.parse(self.document)


class LearnedWatermarks(models.Model):
    """Statistics of a live query's sweeping watermarks at an agent, or at all agents together (null)."""

    live = models.ForeignKey(LiveQuery, on_delete=models.CASCADE, related_name="learned_watermarks")
    agent = models.ForeignKey(
        Agent,
        null=True,
        blank=True,
        on_delete=models.CASCADE,
        related_name="learned_watermarks",
        help_text="Null: all.",
    )
    plan = models.CharField(max_length=DIGEST_LENGTH)
    measured_us = models.BigIntegerField(help_text="Newest window behind it; what is older does not replace it.")
    document = models.JSONField(help_text="watermarks and event_cost_s of a refined document, and figures beside them.")
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "learned watermarks"
        constraints = [
            models.UniqueConstraint(fields=["live", "agent"], name="learned_watermarks_once"),
            models.UniqueConstraint(
                fields=["live"], condition=models.Q(agent=None), name="learned_watermarks_of_all_once"
            ),
        ]

    def __str__(self) -> str:
        return f"watermarks of {self.live} at {self.agent or 'all'}"

    @property
    def figures(self) -> LearnedSweeps:
        return LearnedSweeps.parse(self.document)
