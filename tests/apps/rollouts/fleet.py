"""A simulated fleet: agents that take or refuse configurations and report epochs by them; rollouts begun over it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from apps.fleet.models import Cluster
from apps.rollouts.models import RefinedConfig, Rollout
from apps.rollouts.rollout_services import rollout_start, rollouts_advance
from apps.rollouts.services import ConfigRequest, config_create
from apps.telemetry import heartbeats
from apps.telemetry.configs import agent_config
from apps.telemetry.epochs import epochs_add
from apps.telemetry.heartbeats import agent_heartbeat
from apps.telemetry.models import Agent, LiveQuery
from engine.jarvis.refined_config import RefinedAdaptation, judge_config
from engine.klink.settings import RefinedSchedule, ScheduleSettings
from engine.klink.settings import judge_schedule as judge_schedule
from engine.rollouts.measures import EpochRow, Sweep
from tests.apps.recordings import recorded
from tests.apps.telemetry.world import EXPRESSIONS, enrolled, live_at, probing

__all__ = ["GOOD", "OLD", "Behaviour", "Fleet", "fleet_of"]


STEP_S = 5


@dataclass(frozen=True)
class Behaviour:
    """An epoch of a hundred records; of windowed queries half of the bytes leave once in ten seconds."""

    bytes_per_record: float = 40.0
    overflow: float = 0.0  #: share of the records
    cpu_us: float = 20.0  #: per record
    delay_s: float = 0.2
    window_s: float = 0.4  #: from a window's end until it is out
    waiting: int = 10  #: records at an epoch's end


OLD, GOOD = Behaviour(), Behaviour(bytes_per_record=30.0, cpu_us=24.0)


@dataclass
class Fleet:
    """Agents a1, a2, … of one live query. `behaviours` are by version; those not named behave as `OLD`."""

    live: LiveQuery
    agents: list[Agent]
    behaviours: dict[int, Behaviour] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    refuses: dict[str, str] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    scheduled: dict[str, int] = field(default_factory=dict)  #: version of the schedule in force
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)  #: as the document in force says it
    unscheduled: dict[str, dict[str, Any]] = field(default_factory=dict)  #: refusals of schedules
    older: set[str] = field(default_factory=set)  #: know of no schedules
    refused: dict[str, dict[str, Any]] = field(default_factory=dict)
    reported: dict[str, int] = field(default_factory=dict)  #: version of the configuration that was reported last
    records: Callable[[Agent], int] = lambda agent: 100
    load: float = 1.0  #: by which bytes per record of everybody are multiplied
    ahead_s: dict[str, float] = field(default_factory=dict)  #: of agents whose clocks are not the console's
    now: datetime = field(default_factory=timezone.now)

    @property
    def cluster(self) -> Cluster:
        return self.live.query.cluster

    def step(self, steps: int = 1, *, advance: bool = True) -> None:
        """Five seconds pass: agents work, report, and rollouts are led on."""
        for _ in range(steps):
            self._pass(STEP_S)
            if advance:
                rollouts_advance(self.now)

    def skip(self, steps: int) -> None:
        """The time of so many steps passes, with one report at its end."""
        if steps:
            self._pass(steps * STEP_S)
            rollouts_advance(self.now)

    def until(self, met: Callable[[], bool], most: int = 60) -> None:
        """Let time pass until it is so, two steps of it between two looks."""
        for _ in range(0, most, 2):
            if met():
                return
            self.skip(2)
        raise AssertionError(f"not within {most} steps: {Rollout.objects.values('state', 'stage', 'verdict')}")

    def start(self, warm: int = 12) -> Fleet:
        """A minute goes by before anything is rolled out."""
        self.skip(warm)
        return self

    def state(self, config: RefinedConfig) -> tuple[str, int]:
        rollout = Rollout.objects.get(config=config)
        return rollout.state, rollout.stage

    def holders(self, version: int) -> set[str]:
        return {name for name, held in self.versions.items() if held == version}

    def _pass(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)
        awake = [agent for agent in self.agents if agent.name not in self.silent]
        for agent in awake:
            self._work(agent, seconds)
        self._seen(*awake)
        wanted = dict(Agent.objects.filter(pk__in=[agent.pk for agent in awake]).values_list("pk", "config_version"))
        for agent in awake:
            if self.reported.get(agent.name) != wanted[agent.pk]:
                self._report(agent)

    def _work(self, agent: Agent, seconds: int) -> None:
        version, schedule = self.versions.get(agent.name), self.scheduled.get(agent.name)
        does = self.behaviours.get(max(version or 0, schedule or 0), OLD)
        begin = round((self.now.timestamp() - seconds + self.ahead_s.get(agent.name, 0.0)) * 1e6)
        rows = [self._row(agent, does, begin + i * 1_000_000, version) for i in range(seconds)]
        rows = [replace(row, schedule_version=schedule) for row in rows]
        epochs_add(str(agent.pk), {self.live.key: rows})

    def _row(self, agent: Agent, does: Behaviour, at_us: int, version: int | None) -> EpochRow:
        n = self.records(agent)
        each = n * does.bytes_per_record * self.load
        burst = 10.0 if at_us // 1_000_000 % 10 == 2 else 0.0  # windows close at tens, and leave two epochs later
        sent = round(0.5 * each + 0.5 * each * burst) + at_us // 1_000_000 % 3
        used = n * does.cpu_us / 1e6
        return EpochRow(
            epoch_us=at_us,
            load_factors=(1.0, 1.0, 0.5),
            records_in=n,
            bytes_in=86 * n,
            bytes_sent=sent,
            overflow=round(does.overflow * n),
            used_s=used,
            budget_s=0.2,
            idle_s=max(0.0, 0.2 - used),
            delay_s=does.delay_s,
            version=version,
            queued=does.waiting,
            queued_bytes=86 * does.waiting,
            sweeps=(self._sweep(at_us, does),) if burst else (),
        )

    def _sweep(self, at_us: int, does: Behaviour) -> Sweep:
        """The window that ended at the last ten seconds; latencies differ a little from one to the next."""
        deadline_us = at_us // 10_000_000 * 10_000_000
        late_us = round(1e6 * does.window_s) + deadline_us // 10_000_000 % 3 * 10_000
        return Sweep(deadline_us, None, None, deadline_us + 100_000, deadline_us + late_us, deadline_us + late_us)

    def _report(self, agent: Agent) -> None:
        agent.refresh_from_db()
        config = agent_config(agent)
        queries = config["queries"]
        self.reported[agent.name] = agent.config_version
        if not queries:
            return
        self._take(agent, queries[0])
        self._take_schedule(agent, config.get("refined_schedule"))
        version = self.versions.get(agent.name)
        says = {
            "query": self.live.key,
            "plan": queries[0]["plan"],
            "load_factors": [1.0, 1.0, 0.5],
            "refined": {"version": version, "config": f"c-{version}"} if version else None,
            "refused": self.refused.get(agent.name),
        }
        heartbeats._heard.pop(str(agent.pk), None)  # each report is written
        common = {"life": "l1", "version": "0.1.0", "time": self.now.timestamp()}
        agent_heartbeat(agent_id=str(agent.pk), report={**common, "queries": [says], "schedule": self._schedule(agent)})
        self._seen(agent)

    def _schedule(self, agent: Agent) -> dict[str, Any] | None:
        if agent.name in self.older:
            return None
        held = self.scheduled.get(agent.name)
        return {
            "policy": ScheduleSettings.parse(self.schedules.get(agent.name, {})).policy,
            "mode": "latency",
            "memory_bytes": 860,
            "memory_bound": 8_388_608,
            "refined": {"version": held, "config": f"c-{held}"} if held else None,
            "refused": self.unscheduled.get(agent.name),
        }

    def _take_schedule(self, agent: Agent, document: Any) -> None:
        current = self.scheduled.get(agent.name, 0)
        if document is None or document["version"] == current or agent.name in self.older:
            return
        refined = RefinedSchedule.parse(document)
        now_us = round(self.now.timestamp() * 1e6)
        reasons = judge_schedule(refined, current=current, agent=str(agent.pk), now_us=now_us)
        reasons += [self.refuses[agent.name]] if agent.name in self.refuses else []
        if reasons:
            said = {"version": refined.version, "config": refined.config, "reasons": reasons}
            self.unscheduled[agent.name] = said
        else:
            self.scheduled[agent.name] = refined.version
            self.schedules[agent.name] = document["schedule"]

    def _seen(self, *agents: Agent) -> None:
        """Heartbeats are taken by the real clock."""
        for ahead_s in {self.ahead_s.get(agent.name, 0.0) for agent in agents}:
            alike = [agent.pk for agent in agents if self.ahead_s.get(agent.name, 0.0) == ahead_s]
            Agent.objects.filter(pk__in=alike).update(last_seen=self.now, clock_offset_s=ahead_s)

    def _take(self, agent: Agent, query: Mapping[str, Any]) -> None:
        """As agents do: at an epoch's boundary, or not, with reasons."""
        document = query["refined"]
        current = self.versions.get(agent.name, 0)
        if query["settings"].get("method") == "fixed":
            self.versions.pop(agent.name, None)  # what it had is of no use to it
            return
        if document is None or document["version"] == current:
            return
        refined = RefinedAdaptation.parse(document)
        operators = [row["id"] for row in self.live.pipeline["operators"][: self.live.source_operators]]
        reasons = judge_config(
            refined,
            current=current,
            query=self.live.key,
            plan=query["plan"],
            agent=str(agent.pk),
            operators=operators,
            now_us=round(self.now.timestamp() * 1e6),
        )
        reasons += [self.refuses[agent.name]] if agent.name in self.refuses else []
        if reasons:
            said = {"version": refined.version, "config": refined.config, "reasons": reasons}
            self.refused[agent.name] = said
        else:
            self.versions[agent.name] = refined.version


def fleet_of(*names: str, slug: str = "eu-1", expressions: Mapping[str, Any] = EXPRESSIONS) -> Fleet:
    """Agents that watch round trips in windows of ten seconds."""
    live = recorded(_probing_at, slug, json.dumps(expressions), *(names or ("a1", "a2", "a3")))
    return Fleet(live, list(Agent.objects.filter(cluster=live.query.cluster).order_by("name")))


def _probing_at(slug: str, expressions: str, *names: str) -> LiveQuery:
    return live_at(probing(slug, json.loads(expressions)), *names)[0]


def join(fleet: Fleet, name: str) -> Agent:
    """One more agent takes part."""
    from apps.telemetry.live_services import assignment_set

    agent = enrolled(fleet.cluster, name).agent
    assignment_set(live=fleet.live, agent=agent)
    fleet.agents.append(agent)
    return agent


BAD = Behaviour(bytes_per_record=80.0)
WISH = ConfigRequest({"margin": 0.96})


def made(fleet: Fleet, wish: ConfigRequest = WISH) -> RefinedConfig:
    return config_create(cluster=fleet.cluster, wish=wish, now=fleet.now)


def started(fleet: Fleet, wish: ConfigRequest = WISH) -> Rollout:
    return rollout_start(config=made(fleet, wish), now=fleet.now)


def words(rollout: Rollout) -> list[str]:
    return [event.words for event in rollout.events.all()]
