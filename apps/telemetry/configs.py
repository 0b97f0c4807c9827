"""Configurations of agents, the plan of the stream processor, and the push of changes to agents."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.dispatch import Signal
from django.http.request import split_domain_port, validate_host

from apps.accounts.services import token_digest
from apps.core.clock import shared_now
from apps.core.consumers import UNKNOWN, ReadOnlyConsumer, in_socket_thread
from apps.core.errors import Fault
from apps.core.logs import request_id
from apps.queries.choices import QueryState
from apps.telemetry.directory import SECRET_PREFIX
from apps.telemetry.models import Agent, AgentKind, Assignment, LiveQuery, LiveState, StreamPlan, TelemetrySource
from apps.telemetry.streams import stream_trigger_s
from engine.jarvis.settings import AdaptationSettings
from engine.rollouts.measures import EPOCH_S

__all__ = [
    "AgentConsumer",
    "agent_config",
    "config_acknowledged",
    "configs_renew",
    "fixed_settings",
    "live_served",
    "lives_executed",
    "push",
    "refined_of",
    "refiner",
    "scheduler",
    "settings_read",
    "stream_plan",
]

_TIMEOUT_S = 1.0
_EACH_S = 0.001
_PAUSE_S = 5.0

_log = logging.getLogger(__name__)
_not_before = 0.0  # on the monotonic clock, after Redis did not answer


def group_of(agent: Any) -> str:
    """The group of an agent's connection."""
    return f"agent.{agent}"


def push(agents: Iterable[Any]) -> None:
    """Notify the connections of these agents once the present transaction is committed.

    Agents of several calls in one transaction are told together, each once. It never fails: while Redis does not
    answer, nobody is told.
    """
    ids = set(agents)
    if not ids:
        return
    pending = transaction.get_connection().run_on_commit
    waiting = next((entry[1] for entry in reversed(pending) if isinstance(entry[1], _Push)), None)
    if waiting is not None:
        waiting.agents |= ids
    else:
        transaction.on_commit(_Push(ids), robust=True)


class _Push:
    def __init__(self, agents: set[Any]) -> None:
        self.agents = agents

    def __call__(self) -> None:
        global _not_before
        if time.monotonic() < _not_before:
            return
        try:
            async_to_sync(_send)(self.agents)
        except Exception as error:
            _log.warning("agents get no push for %g s: %s", _PAUSE_S, error or type(error).__name__)
            _not_before = time.monotonic() + _PAUSE_S


async def _send(agents: set[Any]) -> None:
    layer = get_channel_layer()
    async with asyncio.timeout(_TIMEOUT_S + _EACH_S * len(agents)):
        for agent in agents:
            await layer.group_send(group_of(agent), {"type": "look", "request_id": request_id()})


DISABLED = 4403
REPLACED = 4409


class AgentConsumer(ReadOnlyConsumer):
    """`/ws/agents/`: sends `{"config_version": n}` to an agent when it connects, and whenever the version changed.

    Where a request changed it, by itself or by a job, its `request_id` stands beside the version.
    The agent says who it is with `Authorization: Bearer sla_…`. It is closed with 4401 when no agent has this secret
    (any more), with 4403 while it is disabled, with 4409 when it has connected anew, and without Redis with 1013.
    """

    group: str | None = None
    version: int | None = None  # that was sent last

    async def connect(self) -> None:
        headers = dict(self.scope["headers"])
        if not _host_allowed(headers.get(b"host", b"").decode("latin-1")):
            await self.close()
            return
        await self.accept()
        self.digest = _token_digest(headers.get(b"authorization", b"").decode("latin-1"))
        agent = await self._agent()
        if agent is None:
            await self.close(code=UNKNOWN)
            return
        self.group, self.since = group_of(agent.pk), (await in_socket_thread(shared_now)()).timestamp()
        await self.channel_layer.group_add(self.group, self.channel_name)
        await self.channel_layer.group_send(self.group, {"type": "connected", "since": self.since})
        await self.look({})

    async def disconnect(self, code: int) -> None:
        if self.group is not None:
            await self.channel_layer.group_discard(self.group, self.channel_name)

    async def look(self, event: Mapping[str, object]) -> None:
        """Check after a change that the agent may stay connected, and send the version of its configuration."""
        agent = await self._agent()
        if agent is None or not agent.enabled:
            await self.close(code=UNKNOWN if agent is None else DISABLED)
        elif agent.config_version != self.version:
            self.version = agent.config_version
            asked = {"request_id": event["request_id"]} if event.get("request_id") else {}
            await self.send_json({"config_version": self.version, **asked})

    async def connected(self, event: Mapping[str, float]) -> None:
        """Close this connection: the agent has a newer one."""
        if event["since"] > self.since:
            await self.close(code=REPLACED)

    @in_socket_thread
    def _agent(self) -> Agent | None:
        """The agent, read anew: another process may just have changed it."""
        if not self.digest:
            return None
        return Agent.objects.filter(secret_hash=self.digest).only("enabled", "config_version").first()


def _host_allowed(host: str) -> bool:
    """As Django judges requests. Behind a proxy the host is the proxy's to pass on, as for them."""
    return validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)


def _token_digest(authorization: str) -> str:
    scheme, _, secret = authorization.partition(" ")
    secret = secret.strip()
    return token_digest(secret) if scheme.lower() == "bearer" and secret.startswith(SECRET_PREFIX) else ""


FIXED = "fixed"
Refiner = Callable[[Assignment], Mapping[str, object] | None]
Scheduler = Callable[[Agent], Mapping[str, object] | None]

#: Sent with `agent` (an `Agent`, as written) when a heartbeat acknowledges another refined document, applied or
#: refused, for one of its queries or its schedule than the heartbeat before. Each web process also sends it for the
#: first heartbeat it gets.
config_acknowledged = Signal()
_refiner: Refiner | None = None
_scheduler: Scheduler | None = None


def refiner(function: Refiner) -> Refiner:
    """Register the function that returns the refined document (`engine.jarvis.refined_config`) of a part, or None.

    It is asked whenever a configuration is made, so it is quick. After a change of what it answers, `configs_renew`.
    """
    global _refiner
    _refiner = function
    return function


def refined_of(part: Assignment) -> Mapping[str, object] | None:
    """The refined document an agent is to use; none if load factors are set by hand."""
    return None if _refiner is None or part.by_hand else _refiner(part)


def scheduler(function: Scheduler) -> Scheduler:
    """Register the function that returns the refined schedule of an agent (`engine.klink.settings`), or None."""
    global _scheduler
    _scheduler = function
    return function


def schedule_of(agent: Agent) -> Mapping[str, object] | None:
    """The refined schedule an agent is to use, even if its load factors are set by hand."""
    return None if _scheduler is None else _scheduler(agent)


def fixed_settings(load_factors: Sequence[float]) -> dict[str, object]:
    """Settings of load factors by hand."""
    return {"method": FIXED, "load_factors": list(load_factors)}


def settings_read(given: Any, operators: int, faults: list[Fault]) -> dict[str, object]:
    """Settings as stored: the given fields, with numbers as numbers. Empty settings adapt from the default.

    `operators` is how many may run at a source: so many load factors are set by hand, or none.
    """
    before = len(faults)
    read = AdaptationSettings.read(given, "", "settings", faults)
    if read is None or len(faults) > before:
        return {}
    count, expected = len(read.load_factors), operators if read.method == FIXED else 0
    if count != expected:
        why = "one for each operator that may run at a source" if expected else f"the method {read.method} finds them"
        faults.append(Fault("settings.load_factors", f"load_factors has {count} items; allowed: {expected}, {why}"))
    return {**given, "load_factors": list(read.load_factors)} if read.load_factors else dict(given)


SUB_EPOCHS = 10
BATCH_RECORDS = 1000
SPOOL_MAX_BYTES = 256 * 2**20
RELAY_IDLE_S = 60.0
_AT_ONCE = 500  # agents whose parts are read with one statement
_EVERYWHERE = ("0.0.0.0", "::", "[::]")  # no address to send to


def live_served() -> QuerySet[LiveQuery]:
    """Live queries that agents and stream processor run now; no trials."""
    return LiveQuery.objects.exclude(state=LiveState.STOPPED).filter(query__state=QueryState.RUNNING)


def lives_executed() -> QuerySet[LiveQuery]:
    """Everything that agents and stream processor execute now: live queries, and trials of versions."""
    executed = Q(query__state=QueryState.RUNNING) | Q(trial_until__isnull=False)
    return LiveQuery.with_trials.exclude(state=LiveState.STOPPED).filter(executed)


class _StreamDelay:
    """Time from an agent to a result, looked up once where it is asked for."""

    @cached_property
    def seconds(self) -> float:
        """The stream processor's trigger, and a batch, which takes as long at the most where it keeps up."""
        return 2.0 * stream_trigger_s()


def agent_config(agent: Agent) -> dict[str, object]:
    """The configuration of an agent (`agent/config.py` defines it). Its version grows when its content changes."""
    return _renewed(agent, _StreamDelay(), _parts([agent.pk]))


def _renewed(agent: Agent, delay: _StreamDelay, parts: Sequence[Assignment]) -> dict[str, object]:
    content = _content(agent, delay, parts)
    digest = _digest(content)
    if digest != agent.config_digest:
        # of two that see the change at once, one counts
        same = Agent.objects.filter(pk=agent.pk, config_digest=agent.config_digest)
        if same.update(config_digest=digest, config_version=F("config_version") + 1):
            push([agent.pk])
        agent.refresh_from_db(fields=["config_digest", "config_version"])
    return {"version": agent.config_version, **content}


def configs_renew(agents: Iterable[Any]) -> None:
    """Bring the versions of these agents' configurations up to date, and those of the relays above them.

    Agents whose version changed are told after the commit.
    """
    ids = set(agents)
    above = Agent.objects.filter(children__in=ids).values("pk")  # a relay waits for what runs below it
    delay = _StreamDelay()
    agents = list(Agent.objects.filter(Q(pk__in=ids) | Q(pk__in=above)).select_related("cluster", "parent"))
    for begin in range(0, len(agents), _AT_ONCE):
        some = agents[begin : begin + _AT_ONCE]
        parts: dict[Any, list[Assignment]] = defaultdict(list)
        for part in _parts([agent.pk for agent in some]):
            parts[part.agent_id].append(part)
        for agent in some:
            _renewed(agent, delay, parts[agent.pk])


def _content(agent: Agent, delay: _StreamDelay, given: Sequence[Assignment]) -> dict[str, object]:
    relay = _relay(agent) if agent.kind == AgentKind.RELAY and agent.enabled and agent.listen else None
    parts = given if agent.enabled and relay is None else []  # a relay does nothing else
    schedule = schedule_of(agent) if parts else None
    timed = any(_deadline(part.live) for part in parts)
    return {
        "agent": str(agent.pk),
        "cluster": agent.cluster.slug,
        "epoch_s": EPOCH_S,
        "sub_epochs": SUB_EPOCHS,
        "budget_cores": agent.budget_cores,
        "batch_records": BATCH_RECORDS,
        "spool_max_bytes": SPOOL_MAX_BYTES,
        "sources": {source.source_id: _source(agent, source) for part in parts for source in part.live.sources},
        "queries": [_query(part) for part in parts],
        "relay": relay,
        "parent": {"url": _address_of(agent.parent)} if _is_below(agent) else None,
        **({"refined_schedule": schedule} if schedule else {}),
        **({"stream_delay_s": delay.seconds} if timed else {}),
    }


def _parts(agents: Iterable[Any]) -> list[Assignment]:
    rows = Assignment.objects.filter(agent__in=list(agents), enabled=True, live__in=lives_executed())
    return list(
        rows.select_related("live__query__cluster", "live__source", "live__joined", "live__version").order_by(
            "live__query__name"
        )
    )


def _source(agent: Agent, source: TelemetrySource) -> dict[str, object]:
    return {
        "kind": source.kind,
        "options": {**source.options, **agent.source_options.get(source.source_id, {})},
        "time": source.time,
        "columns": source.columns,
        "lateness_s": source.lateness_s,
    }


def _query(part: Assignment) -> dict[str, object]:
    live = part.live
    return {
        "query": live.key,
        "version": live.version.number,
        "plan": live.plan,
        "pipeline": live.pipeline,
        "settings": part.settings,
        "refined": refined_of(part),
        "weight": part.weight,
        **_deadline(live),
    }


def _deadline(live: LiveQuery) -> dict[str, object]:
    """The query's objective as a latency constraint; nothing where it has none. A trial is promised nothing."""
    query = live.query
    if not query.objective_bound_s or live.trial_until is not None:
        return {}
    return {
        "latency_constraint_s": query.objective_bound_s,
        "priority": query.priority,
        "shed_late": live.shed_late,
    }


def _relay(agent: Agent) -> dict[str, object]:
    children = list(agent.children.filter(enabled=True).exclude(secret_hash="").order_by("name"))
    parts = _parts([child.pk for child in children])
    runs: dict[Any, dict[str, str]] = {child.pk: {} for child in children}
    for part in parts:
        runs[part.agent_id][part.live.key] = part.live.plan
    return {
        "listen": agent.listen,
        "children": [
            {"agent": str(child.pk), "secret_hash": child.secret_hash, "queries": runs[child.pk]} for child in children
        ],
        "pipelines": {part.live.plan: part.live.pipeline for part in parts},
        "idle_after_s": RELAY_IDLE_S,
    }


def _address_of(relay: Agent) -> str:
    """Address of a relay: the host it enrolled from, if it listens on all addresses."""
    host, _, port = relay.listen.rpartition(":")
    return f"http://{relay.host if host in _EVERYWHERE and relay.host else host}:{port}"


def _is_below(agent: Agent) -> bool:
    parent = agent.parent
    return parent is not None and parent.enabled and parent.kind == AgentKind.RELAY and bool(parent.listen)


def stream_plan() -> dict[str, object]:
    """The plan of the stream processor. Its version grows when its content changes."""
    queries = [_planned(live) for live in _lives()]
    digest = _digest(queries)
    row, _ = StreamPlan.objects.get_or_create(pk=1)
    if row.digest != digest:
        StreamPlan.objects.filter(pk=1, digest=row.digest).update(digest=digest, version=F("version") + 1)
        row.refresh_from_db()
    return {"version": row.version, "queries": queries}


def _lives() -> QuerySet[LiveQuery]:
    rows = lives_executed().select_related("query__cluster", "version")
    return rows.prefetch_related("assignments__agent__parent").order_by("query__cluster__slug", "query__name")


def _planned(live: LiveQuery) -> dict[str, object]:
    senders = {_sender(part.agent) for part in live.assignments.all() if part.enabled and part.agent.enabled}
    return {
        "query": live.key,
        "version": live.version.number,
        "plan": live.plan,
        "pipeline": live.pipeline,
        "agents": sorted(senders),
        "subinterval_s": live.query.cluster.subinterval_s,
        "retain_s": live.retain_s,
        "idle_after_s": live.idle_after_s,
        "started_us": round(live.started_at.timestamp() * 1e6),
    }


def _sender(agent: Agent) -> str:
    """Sender of the agent's records: the relay above it, if there is one."""
    return str(agent.parent_id if _is_below(agent) else agent.pk)


def _digest(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
