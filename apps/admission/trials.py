"""Trials: a candidate's version runs at one agent for minutes, then its request is previewed with what was measured."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Sum

from apps.accounts.models import User
from apps.admission.choices import AdmissionState, TrialState
from apps.admission.members import requests_locked
from apps.admission.models import AdmissionRequest, AdmissionTrial
from apps.admission.parts import parts_under_way
from apps.admission.previews import ADMISSION
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Impossible, Malformed, SluiceError
from apps.fleet.models import Cluster
from apps.measurements.models import StatisticsWindow
from apps.measurements.selectors import pipeline_operators
from apps.measurements.services import TrialLearned, trial_learn
from apps.queries.choices import QueryState
from apps.queries.models import OperatorInput, Query
from apps.telemetry.live_services import trial_end, trial_start
from apps.telemetry.models import Agent, AgentState, LiveQuery
from apps.telemetry.pipelines import Executable, executable_of
from apps.telemetry.selectors import agent_state, agents_collecting
from engine.errors import EngineError
from engine.measurement.statistics import MIN_EVENTS
from engine.words import listed

__all__ = [
    "MAX_TRIAL_MINUTES",
    "SPARE_SHARE",
    "TRIAL_MINUTES",
    "TrialAgent",
    "TrialOffer",
    "admission_trial_start",
    "admission_trial_stop",
    "trial_events",
    "trial_newest",
    "trial_offer",
    "trials_advance",
]

TRIAL_MINUTES, MAX_TRIAL_MINUTES = 10, 60
SPARE_SHARE = 0.25  # of its budget that an agent must have left over for a trial
_UNDECIDED = frozenset({AdmissionState.PREVIEW, AdmissionState.AWAITING})
_UNWELL = frozenset({AgentState.DISABLED, AgentState.NEVER, AgentState.SILENT, AgentState.SPOOL, AgentState.OVERFLOW})
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrialAgent:
    """An agent where a trial may run, and what of its budget its last report leaves over."""

    agent: Agent
    spare_cores: float


@dataclass(frozen=True)
class TrialOffer:
    """Offer of a trial: the operator to measure and agents, most spare processor first; without them, why not."""

    operator: str = ""
    agents: tuple[TrialAgent, ...] = ()
    why_not: str = ""


def trial_newest(request: AdmissionRequest) -> AdmissionTrial | None:
    """The last trial of a request."""
    rows = AdmissionTrial.objects.filter(request=request).select_related("agent", "live__query", "follower__cluster")
    return rows.first()


def trial_events(trial: AdmissionTrial) -> int:
    """Events of the operator that were measured so far."""
    if trial.live is None:
        return trial.events
    windows = StatisticsWindow.objects.filter(
        query=trial.live.query_id, plan=trial.live.plan, operator=trial.operator, starts_at__gte=trial.started_at
    )
    return round(windows.aggregate(total=Sum("records_processed"))["total"] or 0)


def trial_offer(request: AdmissionRequest) -> TrialOffer:
    """Where the operator that the verdict rests on most could be measured now.

    An agent is offered if it collects what the query reads, reports to be well, has no other trial, and has at least
    `SPARE_SHARE` of its budget left over: the budget less what its process used by its last heartbeat.
    """
    operator = _operator_in_doubt(request)
    why_not, executable = _why_no_trial(request, operator)
    if why_not or executable is None:
        return TrialOffer(operator, why_not=why_not)
    sources = [source.source_id for source in (executable.source, executable.joined) if source is not None]
    collecting = agents_collecting(request.cluster, sources)
    if not collecting:
        return TrialOffer(operator, why_not=f"No agent that reports collects {listed(sources)}.")
    refused = {agent.pk: _why_not_at(agent) for agent in collecting}
    fits = [TrialAgent(agent, _spare_cores(agent)) for agent in collecting if not refused[agent.pk]]
    if not fits:
        return TrialOffer(operator, why_not=" ".join(refused.values()))
    return TrialOffer(operator, tuple(sorted(fits, key=lambda row: -row.spare_cores)))


def _operator_in_doubt(request: AdmissionRequest) -> str:
    """Name, within the query, of the operator to measure first; empty where the decision names none."""
    decision = request.decision
    if decision is None:
        return ""
    weakest = decision.robustness.weakest if decision.robustness else None
    names = [*([weakest.operator] if weakest else ()), *decision.measure]
    return next((str(name).rpartition("/")[2] for name in names if name), "")


def _why_no_trial(request: AdmissionRequest, operator: str) -> tuple[str, Executable | None]:
    """Why there can be no trial wherever the agents stand, as a sentence; and the executable version."""
    name = request.query.name
    if request.state not in _UNDECIDED:
        return f"The request is {request.get_state_display().lower()}; only an undecided preview can be tried.", None
    if not operator and "robustness" in parts_under_way(request):
        return "Which cost the verdict rests on is still being computed.", None
    if not operator:
        return "The decision names no operator whose cost is in doubt.", None
    if request.query.state == QueryState.RUNNING:
        return f"{name} runs, and no other version of it can be tried beside.", None
    live = LiveQuery.with_trials.filter(query=request.query).first()
    if live is not None and live.trial_until is not None:
        return f"{name} is tried already.", None
    if live is not None:
        return f"{name} has a stopped live run, whose results a trial would take over. Delete that first.", None
    executable = executable_of(request.version)
    if executable.faults or executable.pipeline is None:
        return f"{request.version} cannot be executed: {executable.faults[0].message}.", None
    operators = pipeline_operators(executable.pipeline, executable.pipeline.source_operators)
    if operator not in {row.name for row in operators}:
        return f"{operator} is fused of several operators, which are measured one by one.", None
    return "", executable


def _spare_cores(agent: Agent) -> float:
    """Its budget less what its process used by its last heartbeat; none where that does not say."""
    return float(agent.budget_cores - agent.heartbeat.get("cpu_cores", agent.budget_cores))


def _why_not_at(agent: Agent) -> str:
    """Why no trial can run at an agent, as a sentence; empty where one can."""
    other = (
        AdmissionTrial.objects.filter(agent=agent, state=TrialState.RUNNING).select_related("request__query").first()
    )
    if other is not None:
        return f"{agent.name} runs a trial of {other.request.query.name}."
    health = agent_state(agent)
    if health.state in _UNWELL:
        return f"{agent.name} is not well: {'; '.join(health.reasons)}."
    if _spare_cores(agent) < SPARE_SHARE * agent.budget_cores:
        used, share = agent.budget_cores - _spare_cores(agent), round(100 * SPARE_SHARE)
        return (
            f"{agent.name} uses {used:.2f} of its {agent.budget_cores:g} cores; "
            f"a trial needs {share}% of them left over."
        )
    return ""


@transaction.atomic
def admission_trial_start(
    *, request: AdmissionRequest, user: User | None, agent: str = "", minutes: int = TRIAL_MINUTES
) -> AdmissionTrial:
    """Run the request's version at an agent for some minutes; `trials_advance` ends it and previews again.

    `agent`: name of an agent; empty for the one with most processor to spare. `minutes`: 1 to 60.

    Raises
    ------
    Malformed
        Minutes out of range, or an agent that is not offered, with what is.
    Impossible
        There can be no trial, with why.
    """
    if not 1 <= minutes <= MAX_TRIAL_MINUTES:
        message = f"minutes is {minutes}; allowed: 1 to {MAX_TRIAL_MINUTES}"
        raise Malformed(f"{message}.", [("minutes", message)])
    Cluster.objects.select_for_update().get(pk=request.cluster_id)  # one at a time: agents are counted once
    request = _locked(request)
    offer = trial_offer(request)
    if not offer.agents:
        raise Impossible(f"No trial of {request.version}: {offer.why_not}", code="no_trial")
    chosen = next((row.agent for row in offer.agents if agent in ("", row.agent.name)), None)
    if chosen is None:
        raise _not_offered(request, agent, offer)
    now = shared_now()
    ends_at = now + timedelta(minutes=minutes)
    inputs = OperatorInput.objects.filter(operator__version=request.version, operator__name=offer.operator)
    trial = AdmissionTrial.objects.create(
        request=request,
        agent=chosen,
        live=trial_start(version=request.version, agent=chosen, until=ends_at),
        operator=offer.operator,
        assumed_cycles=inputs.order_by("position").values_list("cycles_per_event", flat=True).first(),
        started_by=user,
        started_at=now,
        ends_at=ends_at,
    )
    ADMISSION.announce(request)
    return trial


def _not_offered(request: AdmissionRequest, name: str, offer: TrialOffer) -> Malformed:
    known = request.cluster.agents.filter(name=name).first()
    why = _why_not_at(known) if known is not None else "there is no such agent"
    allowed = ", ".join(row.agent.name for row in offer.agents)
    why = why.rstrip(".") or "it does not collect what the query reads"
    message = f"agent is {name!r}: {why}; allowed: {allowed}"
    return Malformed(f"{message}.", [("agent", message)])


@transaction.atomic
def admission_trial_stop(*, request: AdmissionRequest) -> AdmissionTrial:
    """End a trial early: nothing is taken over of it, and nothing is previewed.

    Raises
    ------
    Conflict
        The request has no trial that runs.
    """
    request = _locked(request)
    trial = trial_newest(request)
    if trial is None or trial.state != TrialState.RUNNING:
        raise Conflict(f"No trial of {request.version} runs.", code="no_trial")
    return _ended(trial, TrialState.STOPPED, "It was stopped by hand.")


def trials_advance(now: datetime | None = None) -> int:
    """End trials whose time is up, whose agent is not well, or whose request has gone on; returns how many."""
    present = now or shared_now()
    ended = 0
    for trial in AdmissionTrial.objects.filter(state=TrialState.RUNNING).select_related("request"):
        try:
            ended += _advance(trial, present)
        except (SluiceError, EngineError) as error:
            _log.warning("%s is not ended now: %s", trial, error)
    for live in LiveQuery.with_trials.filter(trial_until__lt=present, trial=None).select_related("query__cluster"):
        trial_end(live=live)  # its request is gone
    return ended


def _advance(trial: AdmissionTrial, now: datetime) -> bool:
    is_over = trial.live is not None and (now >= trial.ends_at or bool(_why_early(trial.agent, now)))
    learned = None  # before anything is locked
    if trial.live is not None and is_over and trial_events(trial) >= MIN_EVENTS:
        learned = trial_learn(live=trial.live, now=now)
    return _end_if_over(trial, now, learned)


@transaction.atomic
def _end_if_over(trial: AdmissionTrial, now: datetime, learned: TrialLearned | None) -> bool:
    request = _locked(trial.request)
    trial = (
        AdmissionTrial.objects.select_for_update(of=("self",))
        .select_related("agent", "live__query__cluster")
        .get(pk=trial.pk)
    )
    if trial.state != TrialState.RUNNING:
        return False
    if request.state not in _UNDECIDED:
        _ended(trial, TrialState.STOPPED, f"The request is {request.get_state_display().lower()}.")
        return True
    if trial.live is None:
        _ended(trial, TrialState.STOPPED, "The query started, or goes by another name.")
        return True
    why = _why_early(trial.agent, now)
    if not why and now < trial.ends_at:
        return False
    return _finish(trial, request, why, learned)


def _why_early(agent: Agent | None, now: datetime) -> str:
    if agent is None:
        return "Its agent was deleted."
    health = agent_state(agent, now)
    return f"{agent.name}: {'; '.join(health.reasons)}." if health.state in _UNWELL else ""


def _finish(trial: AdmissionTrial, request: AdmissionRequest, why: str, learned: TrialLearned | None) -> bool:
    """Take over what was measured and preview again, or say that it is too little; whether the trial has ended.

    Where it was over only after it was looked at, it ends in the next round.
    """
    if trial_events(trial) < MIN_EVENTS:
        _ended(trial, TrialState.TOO_LITTLE, f"{why} {MIN_EVENTS} events are the least.".strip())
        return True
    if learned is None:
        return False
    learned.keep()
    measured = learned.usable.get(trial.operator)
    if measured is None:
        _ended(trial, TrialState.TOO_LITTLE, f"{why} The events came in too few subintervals.".strip())
        return True
    trial.cycles_per_event = measured.cycles_per_event.value
    trial.note = why
    _ended(trial, TrialState.MEASURED, why)
    try:
        trial.follower, _ = ADMISSION.request(parent=request, user=trial.started_by)
    except (SluiceError, EngineError) as error:
        trial.note = f"{why} Not previewed again: {error}"[:300].strip()
    trial.save(update_fields=["follower", "note"])
    return True


def _ended(trial: AdmissionTrial, state: TrialState, note: str) -> AdmissionTrial:
    trial.events, trial.state, trial.note, trial.ended_at = trial_events(trial), state, note[:300], shared_now()
    live, trial.live = trial.live, None
    trial.save()
    if live is not None:
        trial_end(live=live)
    ADMISSION.announce(trial.request)
    return trial


def _locked(request: AdmissionRequest) -> AdmissionRequest:
    """The request, and then its query, in the order in which a decision takes them."""
    locked = requests_locked().get(pk=request.pk)
    Query.objects.select_for_update().get(pk=locked.query_id)
    return locked
