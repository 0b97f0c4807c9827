"""Reading rollouts: lists, the policy, and a rollout as the panel shows it."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from apps.core.errors import Missing
from apps.fleet.models import Cluster
from apps.rollouts.members import JudgedMeasure, StageJudgement
from apps.rollouts.models import ENDED, GIVEN, UNDER_WAY, ConfigState, Rollout, RolloutPolicy, RolloutState
from apps.rollouts.predictions import GOOD, WORSE, config_check_of
from engine.rollouts.guard import GuardHealth
from engine.rollouts.measures import IN_SECONDS
from engine.words import counted

__all__ = [
    "RolloutAction",
    "RolloutFigure",
    "RolloutStep",
    "RolloutView",
    "rollout_now",
    "rollout_numbered",
    "rollout_policy",
    "rollout_view",
    "rollouts_listed",
]


class StepState(StrEnum):
    """Progress of a step of a rollout."""

    DONE = "done"
    NOW = "now"
    NEXT = "next"


class RolloutAction(StrEnum):
    """Action on a rollout that is possible now."""

    PAUSE = "pause"
    RESUME = "resume"
    ROLL_BACK = "roll-back"
    STOP = "stop"  #: a waiting one


@dataclass(frozen=True)
class RolloutStep:
    """`Canary, 5 agents`: `25 of 40 epochs, no agent slower`."""

    title: str
    words: str
    share: float  #: of it that is over, 0 to 1
    state: StepState


@dataclass(frozen=True)
class RolloutFigure:
    """Change of a measure against its value without the configuration."""

    key: str  #: cpu, bytes, overflow, latency; of scheduling window, window_p99, queue
    label: str  #: `Agent CPU`
    text: str  #: `+2.1 ± 0.8 %`: the change and its uncertainty
    limit_text: str  #: `limit +5 %`
    change: float | None  #: relative; of overflow in percentage points, of delays in seconds; None: unknown yet
    worse: bool  #: beyond its limit by more than the uncertainty
    unsure: bool  #: beyond its limit, perhaps by chance


@dataclass(frozen=True)
class RolloutView:
    """A rollout as the panel of the page Sources shows it."""

    rollout: Any  #: the row, with config, back and by
    config: str  #: `c-118`
    words: str
    state: str
    badge: str  #: `Canary healthy`
    tone: str  #: ok, warning, danger, info, neutral
    steps: tuple[RolloutStep, ...]
    figures: tuple[RolloutFigure, ...]
    compared: str  #: `Compared with 41 agents on c-117`
    measured_at: datetime | None
    reasons: tuple[str, ...]  #: of the verdict, or why it ended
    notes: tuple[str, ...]  #: agents that are silent or refused, by name
    buttons: frozenset[RolloutAction]
    given: int  #: agents that were sent it, which a rollback would reach
    waiting: tuple[str, ...] = ()  #: configurations in line behind it


def rollouts_listed(cluster: Cluster) -> QuerySet[Rollout]:
    """Rollouts of a cluster, newest first, with their configurations."""
    rows = Rollout.objects.filter(config__cluster=cluster)
    return rows.select_related("config__cluster", "config__parent", "back", "by")


def rollout_numbered(cluster: Cluster, number: int) -> Rollout:
    """The rollout of a cluster's configuration, by the configuration's number."""
    rollout = rollouts_listed(cluster).filter(config__number=number).first()
    if rollout is None:
        message = f"no rollout of c-{number}"
        raise Missing(f"Cluster {cluster.slug!r} has {message}.", [("number", message)])
    return rollout


def rollout_policy(cluster: Cluster) -> RolloutPolicy:
    """The rollout policy of a cluster; the defaults, not stored, unless it was set."""
    return RolloutPolicy.objects.filter(cluster=cluster).first() or RolloutPolicy(cluster=cluster)


_SHOWN = dt.timedelta(hours=1)  # after it has ended
_LABELS = {
    "cpu": "Agent CPU",
    "bytes": "Bytes sent",
    "overflow": "Overflow",
    "latency": "Delay",
    "window": "Window latency",
    "window_p99": "Window latency, p99",
    "queue": "Waiting",
}
_BUTTONS = {
    RolloutState.WAITING: {RolloutAction.STOP},
    RolloutState.CANARY: {RolloutAction.PAUSE, RolloutAction.ROLL_BACK},
    RolloutState.WAVE: {RolloutAction.PAUSE, RolloutAction.ROLL_BACK},
    RolloutState.PAUSED: {RolloutAction.RESUME, RolloutAction.ROLL_BACK},
    RolloutState.DONE: {RolloutAction.ROLL_BACK},
}
_TONES = {
    RolloutState.WAITING: "neutral",
    RolloutState.PAUSED: "warning",
    RolloutState.ROLLING_BACK: "danger",
    RolloutState.DONE: "ok",
    RolloutState.ROLLED_BACK: "danger",
    RolloutState.STOPPED: "neutral",
}


def rollout_now(cluster: Cluster, now: dt.datetime | None = None) -> RolloutView | None:
    """The rollout under way, else a waiting one, else the newest that ended within the hour."""
    rows = rollouts_listed(cluster)
    rollout = rows.filter(state__in=UNDER_WAY).first() or rows.filter(state=RolloutState.WAITING).last()
    since = (now or timezone.now()) - _SHOWN
    rollout = rollout or rows.filter(state__in=ENDED, ended_at__gte=since).order_by("-ended_at").first()
    return rollout_view(rollout) if rollout else None


def rollout_view(rollout: Rollout) -> RolloutView:
    """Any rollout as the panel shows it."""
    verdict = StageJudgement.parse(rollout.verdict)
    counts = Counter(rollout.members.values_list("stage", flat=True))
    sent = rollout.members.filter(state__in=GIVEN).count()
    measured = verdict.measured_us
    badge, tone = _badge(rollout)
    waiting = rollouts_listed(rollout.config.cluster).filter(state=RolloutState.WAITING).exclude(pk=rollout.pk)
    return RolloutView(
        rollout=rollout,
        config=rollout.config.name,
        words=rollout.config.words,
        state=rollout.state,
        badge=badge,
        tone=tone,
        steps=tuple(_steps(rollout, counts)),
        figures=tuple(_figure(key, row) for key, row in verdict.figures.items()),
        compared=_compared(rollout),
        measured_at=dt.datetime.fromtimestamp(measured / 1e6, dt.UTC) if measured else None,
        reasons=tuple(rollout.reasons or verdict.reasons),
        notes=verdict.notes,
        buttons=_buttons(rollout),
        given=sent,
        waiting=tuple(row.config.name for row in waiting.order_by("created_at", "pk")),
    )


def _buttons(rollout: Rollout) -> frozenset[RolloutAction]:
    if rollout.state == RolloutState.DONE and rollout.config.state != ConfigState.CURRENT:
        return frozenset()  # superseded everywhere
    return frozenset(_BUTTONS.get(RolloutState(rollout.state), set()))


def _badge(rollout: Rollout) -> tuple[str, str]:
    """`Canary healthy`, with its tone."""
    if rollout.state not in (RolloutState.CANARY, RolloutState.WAVE):
        return str(rollout.get_state_display()), _TONES[RolloutState(rollout.state)]
    stage = f"Wave {rollout.stage}" if rollout.stage else "Canary"
    verdict = StageJudgement.parse(rollout.verdict)
    if verdict.health == GuardHealth.WORSE:
        return f"{stage} worse", "danger"
    if not verdict.figures:
        return f"{stage}: no figures yet", "info"
    if verdict.epochs < verdict.needed:
        return f"{stage}: watching", "info"
    return (f"{stage} doubtful", "warning") if verdict.doubtful else (f"{stage} healthy", "ok")


def _steps(rollout: Rollout, counts: Counter[int]) -> list[RolloutStep]:
    steps = [_checked(rollout)]
    if rollout.state == RolloutState.WAITING:
        return [*steps, RolloutStep("Waiting", "Another rollout is under way", 0.0, StepState.NOW)]
    for stage in sorted(counts):
        agents = counted(counts[stage], "agent")
        title = f"Wave {stage}, {agents}" if stage else f"Canary, {agents}"
        steps.append(_stage(rollout, stage, title))
    return steps


def _checked(rollout: Rollout) -> RolloutStep:
    checked = config_check_of(rollout.config)
    at = dt.datetime.fromisoformat(checked.at) if checked else None
    words = {GOOD: "On recorded epochs", WORSE: "Started by force, against its check"}.get(
        checked.health if checked else "", "Nothing recorded to predict from"
    )
    clock = f", {timezone.localtime(at):%H:%M}" if at else ""
    return RolloutStep("Checked", f"{words}{clock}", 1.0, StepState.DONE)


def _stage(rollout: Rollout, stage: int, title: str) -> RolloutStep:
    verdict, over = StageJudgement.parse(rollout.verdict), rollout.state == RolloutState.DONE or stage < rollout.stage
    if over:
        return RolloutStep(title, "No measure worse", 1.0, StepState.DONE)
    if stage > rollout.stage:
        words = "Not reached" if rollout.state in ENDED or rollout.back_id else "Starts after the stage before it"
        return RolloutStep(title, words, 0.0, StepState.NEXT)
    epochs, needed = verdict.epochs, verdict.needed
    share = min(1.0, epochs / needed) if needed else 0.0
    if rollout.back_id or rollout.state in ENDED:
        return RolloutStep(title, str(rollout.get_state_display()), share, StepState.NOW)
    words = f"{min(epochs, needed)} of {needed} epochs" if needed else "; ".join(verdict.reasons[:1])
    return RolloutStep(title, words or "Sent", share, StepState.NOW)


def _figure(key: str, row: JudgedMeasure) -> RolloutFigure:
    change, limit = row.change, row.limit
    scale, unit = {"overflow": (1, " pp"), **dict.fromkeys(IN_SECONDS, (1, " s"))}.get(key, (100, " %"))
    limit_text = f"limit {_signed(limit * scale)}{unit}" if limit is not None else "saves bytes"
    chance = f"{row.uncertainty * scale:.2g}"
    text = _signed(change * scale) + (f" ± {float(chance):g}" if float(chance) else "") + unit
    return RolloutFigure(key, _LABELS[key], text, limit_text, change, worse=row.worse, unsure=row.unsure)


def _signed(number: float) -> str:
    """`+2.1`, `−18`, `0`."""
    text = f"{number:+.2g}" if abs(number) < 10 else f"{number:+.0f}"
    return "0" if float(text) == 0 else text.replace("-", "−")


def _compared(rollout: Rollout) -> str:
    verdict = StageJudgement.parse(rollout.verdict)
    if not verdict.figures:
        return ""
    others, parent = verdict.others, rollout.config.parent
    if not others:
        return "Compared with before"
    if parent:
        return f"Compared with {counted(others, 'agent')} on {parent.name}"
    return f"Compared with {counted(others, 'agent')} without it"
