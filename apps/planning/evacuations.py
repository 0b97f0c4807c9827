"""Evacuations: nodes that are to be away for a time, and the plan that empties them. Carried out by
`evacuation_steps`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Prefetch, Q, QuerySet

from apps.accounts.models import User
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Fault, Impossible, Malformed, fault_count
from apps.core.events import announce
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.labels import selector_parse
from apps.fleet.choices import ABSENT, NodeState
from apps.fleet.models import Cluster, Node
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.planning.choices import (
    EVACUATION_STATES,
    OPEN_EVACUATION_STATES,
    EvacuationOrder,
    PlacementAlgorithm,
    RunState,
)
from apps.planning.models import Evacuation, EvacuationStep, Forecast
from apps.planning.placement_moves import MAX_BATCH_SIZE, MAX_PACE
from apps.planning.placement_parameters import check_parameters, objective_default
from apps.queries.models import Query
from apps.queries.snapshots.cluster import SLICES_PER_SUBINTERVAL
from apps.queries.snapshots.parts import snapshot_take
from engine.document.deployment import Deployment
from engine.document.elements import Constraints
from engine.provisioning.answers.evacuations import EvacuationPlan
from engine.words import listed

__all__ = [
    "EVACUATION",
    "EvacuationFilter",
    "failure_domain_labels",
    "load_words",
    "needed_s",
    "nodes_named",
    "queries_moving",
    "run_by_engine",
    "stored_plan",
]

MAX_HOLD_S = 7 * 86_400.0
_AHEAD = timedelta(days=366)  # that is planned at most
_LATE = timedelta(minutes=1)  # a beginning that is past by less is now
_WALK_CELLS = 30_000_000  # nodes x operators x slices of a step up to which losses are walked
_TURN_S = 10.0  # of a step: its search, and until the schedule looks at it again
_NAMED = 6


class EvacuationKind(RunKind[Evacuation]):
    """Plan of an evacuation of a cluster, as it is when the job begins, at the load forecast for its time."""

    model, job, name, path = Evacuation, JobKind.EVACUATION, "evacuation", "evacuations"
    topics = ("evacuation", "evacuations")
    answered = RunState.PROPOSED
    columns = ("result", "facts", "watched")
    related = ("cluster", "job", "requested_by", "confirmed_by")
    retention = timedelta(days=180)
    old = ~Q(state__in={RunState.ASKED, *OPEN_EVACUATION_STATES})

    def title(self, run: Evacuation) -> str:
        return f"Plan the evacuation of {listed(run.nodes, _NAMED)}"

    def page(self, run: Evacuation) -> str:
        return f"/c/{run.cluster.slug}/fleet/evacuations/{run.pk}/"

    def visible(self) -> QuerySet[Evacuation]:
        """Every evacuation without its bulk, newest first, with its steps."""
        steps = EvacuationStep.objects.select_related("placement").defer(
            "placement__result", "placement__snapshot_parts", "placement__expected_parts", "placement__live"
        )
        return super().visible().prefetch_related(Prefetch("steps", steps))

    def announce(self, run: Evacuation) -> None:
        """Tell its own page, and those of its cluster's nodes."""
        super().announce(run)
        announce(f"cluster:{run.cluster.slug}")

    def create(
        self,
        *,
        cluster: Cluster,
        user: User | None,
        nodes: Sequence[str],
        order: str = EvacuationOrder.TOGETHER,
        domain: str = "",
        starts_at: datetime | None = None,
        ends_at: datetime | None = None,
        hold_s: float = 0.0,
        back: bool = True,
        constraints: Mapping[str, object] | None = None,
        pace: float = 1.0,
        batch_size: int = 1,
    ) -> Evacuation:
        """Write an evacuation with its steps, not planned yet.

        Parameters
        ----------
        nodes : sequence of str
            Names of nodes; ``rack=r7`` stands for every node with that label, ``pool=large`` for those of a pool.
        domain : str
            Label by which nodes follow one another, with the order ``domain``.
        hold_s : float
            How long the nodes of a step are away, where steps follow one another.

        Raises
        ------
        Malformed
            With every fault of what was asked.
        Impossible
            A step would take the last node that is there.
        """
        names, faults = nodes_named(cluster, nodes)
        faults += _window_faults(starts_at, ends_at)
        faults += _number_faults(hold_s, pace, batch_size)
        if order not in EvacuationOrder.values:
            faults.append(Fault("order", f"order is {order!r}; allowed: {', '.join(EvacuationOrder.values)}"))
        elif order == EvacuationOrder.DOMAIN and domain not in (labels := failure_domain_labels(cluster)):
            allowed = f"a label of nodes: {listed(labels)}" if labels else "a label of nodes; none has one yet"
            said = f"domain is {domain[:80]!r}, which no node has" if domain else "domain is missing"
            faults.append(Fault("domain", f"{said}; allowed: {allowed}"))
        elif order != EvacuationOrder.DOMAIN and domain:
            faults.append(Fault("domain", f"domain is {domain[:80]!r}; allowed: none, unless order is 'domain'"))
        elif order == EvacuationOrder.TOGETHER and hold_s:
            faults.append(Fault("hold_s", "hold_s is for steps that follow one another; give ends_at instead"))
        try:
            read = _constraints(cluster, constraints or {})
        except Malformed as error:
            faults += error.faults
        if faults:
            raise Malformed(f"The evacuation has {fault_count(faults)}; first: {faults[0].message}", faults)
        with transaction.atomic():
            run = Evacuation.objects.create(
                cluster=cluster,
                requested_by=user,
                nodes=[node.name for node in names],
                order=order,
                domain=domain,
                starts_at=starts_at,
                ends_at=ends_at,
                hold_s=hold_s,
                back=back,
                constraints=read,
                pace=pace,
                batch_size=batch_size,
            )
            steps = _steps_of(names, order, domain)
            _require_others(cluster, steps)
            EvacuationStep.objects.bulk_create(
                EvacuationStep(evacuation=run, number=number, nodes=step) for number, step in enumerate(steps, 1)
            )
        return run

    def answer(self, run: Evacuation, report: JobReporter) -> None:
        from engine.provisioning.evacuation import evacuate  # and with it the engine, which only workers load

        report(0.0, "Taking a snapshot")
        snapshot = snapshot_take(run.cluster)
        deployment, constraints = snapshot.deployment, Constraints.parse(run.constraints)
        factors, basis = forecast_factors(run, deployment)
        cells = len(deployment.nodes) * len(deployment.operators) * deployment.subintervals
        plan = evacuate(
            replace(deployment, constraints=constraints),
            [step.nodes for step in run.steps.all()],
            closed=snapshot.closed_nodes,
            back=run.back,
            factors=factors,
            mace_every=SLICES_PER_SUBINTERVAL,
            walks=cells <= _WALK_CELLS,
            progress=report,
        )
        run.snapshot, run.snapshot_parts = snapshot.digest, snapshot.parts
        Evacuation.objects.filter(pk=run.pk).update(snapshot=snapshot.digest, snapshot_parts=snapshot.parts)
        run.result = plan.to_dict()
        run.watched = sorted({node.id for node in deployment.nodes} - {*run.nodes})
        run.facts = {
            "moves": sum(len(step.moves) for step in plan.steps),
            "possible": plan.is_possible,
            "breaks": list(plan.breaks),
            "risks": list(plan.risks),
            "late": list(dict.fromkeys(delay.query for step in plan.steps for delay in step.late)),
            "needed_s": needed_s(run, plan),
            "load": basis,
        }

    def keep(self, run: Evacuation, answer: None, job: Job) -> Evacuation:
        self.store(run)
        return run

    def facts(self, run: Evacuation) -> Mapping[str, object]:
        return {self.name: str(run.pk), **{name: run.facts[name] for name in ("moves", "possible")}}

    @transaction.atomic
    def delete(self, *, run: Evacuation) -> None:
        """Delete an evacuation that is not under way; what it moved stays where it is."""
        run = Evacuation.objects.select_for_update(of=("self",)).select_related("cluster").get(pk=run.pk)
        if run.state in OPEN_EVACUATION_STATES:
            raise Conflict(
                f"The evacuation is {run.get_state_display().lower()}; stop it before it is deleted.",
                code="wrong_state",
            )
        super().delete(run=run)


EVACUATION = register(EvacuationKind())


def stored_plan(run: Evacuation) -> EvacuationPlan | None:
    """The plan of an evacuation; None while there is none."""
    return EvacuationPlan.parse(run.result) if run.result else None


def nodes_named(cluster: Cluster, names: Sequence[str]) -> tuple[list[Node], list[Fault]]:
    """Nodes by their names or by selectors of labels (``rack=r7``, ``pool=large``), each once, and faults of these."""
    rows = list(cluster.nodes.select_related("pool").order_by("name"))
    by_name = {node.name: node for node in rows}
    found: dict[str, Node] = {}
    faults: list[Fault] = []
    if not names:
        faults.append(Fault("nodes", "nodes has no item; allowed: at least one node"))
    for i, name in enumerate(names):
        if "=" in name:
            try:
                selector = selector_parse(name, f"nodes[{i}]")
            except Malformed as error:
                faults += error.faults
                continue
            chosen = [node for node in rows if node.state not in ABSENT and selector.matches(_labels(node))]
            if not chosen:
                faults.append(Fault(f"nodes[{i}]", f"item {i} is {name!r}, which no node that is there has"))
        else:
            chosen = [by_name[name]] if name in by_name else []
            if not chosen:
                faults.append(Fault(f"nodes[{i}]", f"item {i} is {name!r}, which is no node of {cluster.slug}"))
        for node in chosen:
            if node.state in ABSENT:
                faults.append(Fault(f"nodes[{i}]", f"item {i} is {name!r}, which is {node.state}: nothing runs there"))
            found[node.name] = node
    return list(found.values()), faults


def _labels(node: Node) -> dict[str, str]:
    """Labels of a node: those of its pool, its own, and the pool itself."""
    return {"pool": node.pool.name, **node.all_labels}


def failure_domain_labels(cluster: Cluster) -> list[str]:
    """Labels that nodes of a cluster have and that may stand for what fails together."""
    nodes = cluster.nodes.select_related("pool").exclude(state__in=ABSENT)
    return sorted({name for node in nodes for name in (*node.pool.labels, *node.labels)} - {"place", "slots", "host"})


def _steps_of(nodes: Sequence[Node], order: str, domain: str) -> list[list[str]]:
    """Names of the nodes of each step. A node without the label of the domains is a step of its own."""
    if order == EvacuationOrder.TOGETHER:
        return [[node.name for node in nodes]]
    steps: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        value = _labels(node).get(domain) if order == EvacuationOrder.DOMAIN else None
        key = ("node", node.name) if value is None else ("domain", value)
        steps.setdefault(key, []).append(node.name)
    return list(steps.values())


def _require_others(cluster: Cluster, steps: Sequence[Sequence[str]]) -> None:
    """Refuse a step beside which no active node is left."""
    active = set(cluster.nodes.filter(state=NodeState.ACTIVE).values_list("name", flat=True))
    for step in steps:
        if not active - {*step}:
            message = f"with {listed(step, _NAMED)} away no active node of {cluster.slug} is left to take what runs"
            raise Impossible(f"{message[0].upper()}{message[1:]}.", [("nodes", message)])


def _window_faults(starts_at: datetime | None, ends_at: datetime | None) -> list[Fault]:
    now = shared_now()
    faults = []
    if starts_at is not None and starts_at < now - _LATE:
        faults.append(Fault("starts_at", f"starts_at is {starts_at.isoformat()}, which is past; allowed: from now on"))
    if ends_at is not None and ends_at <= (starts_at or now):
        begin = "now" if starts_at is None else starts_at.isoformat()
        faults.append(Fault("ends_at", f"ends_at is {ends_at.isoformat()}; allowed: after it begins, {begin}"))
    return faults + [
        Fault(name, f"{name} is {moment.isoformat()}; allowed: within {_AHEAD.days} days from now")
        for name, moment in (("starts_at", starts_at), ("ends_at", ends_at))
        if moment is not None and moment - now > _AHEAD
    ]


def _number_faults(hold_s: float, pace: float, batch_size: int) -> list[Fault]:
    limits = (
        ("hold_s", hold_s, 0, MAX_HOLD_S),
        ("pace", pace, 0, MAX_PACE),
        ("batch_size", batch_size, 1, MAX_BATCH_SIZE),
    )
    return [
        Fault(name, f"{name} is {value}; allowed: from {least} to {most:g}")
        for name, value, least, most in limits
        if isinstance(value, bool) or not math.isfinite(value) or not least <= value <= most
    ]


def _constraints(cluster: Cluster, constraints: Mapping[str, object]) -> dict[str, Any]:
    read = check_parameters(
        cluster=cluster,
        algorithm=PlacementAlgorithm.SEARCH,
        objective=objective_default(cluster),
        budget_s=1.0,
        seed=0,
        constraints=constraints,
    )["constraints"]
    faults = [
        Fault(f"constraints.{name}", f"{name} is not for an evacuation; allowed: pin, forbid, apart")
        for name in ("max_moves", "may_split")
        if name in read
    ]
    if faults:
        raise Malformed(faults[0].message, faults)
    return dict(read)


def needed_s(run: Evacuation, plan: EvacuationPlan) -> float:
    """Estimated time from the first move until every node is back, without the time that they are to be away.

    States travel one after the other, with a pause after each as long as `pace` times its travel, out and, where
    operators return, back; each step takes a search and some looks of the schedule besides.
    """
    return plan.lasts_s * (1.0 + run.pace) + len(plan.steps) * _TURN_S * (2 if run.back else 1)


def forecast_factors(run: Evacuation, deployment: Deployment) -> tuple[dict[str, float], dict[str, Any]]:
    """Load of the sources at the evacuation's time over that of their arrivals, and what is known of it.

    It is the upper end of the newest forecast, at the busiest of its buckets in the window: of one without an end,
    to the end of the forecast. A source without a forecast is taken as it is, and so are all outside the forecast's
    horizon: the second answer says which.
    """
    begin = run.starts_at or shared_now()
    sources = {source.id for source in deployment.sources if "@" not in source.id}
    forecast = Forecast.objects.filter(cluster=run.cluster, series__isnull=False).first()
    if forecast is None:
        return {}, {"by": "present", "why": "no_forecast"}
    end = run.ends_at or forecast.at(forecast.horizon)
    indexes = [k for k in range(forecast.horizon) if forecast.at(k) <= end and forecast.at(k + 1) > begin]
    if not indexes or forecast.at(forecast.horizon) < end:
        return {}, {"by": "present", "why": "beyond_forecast", "forecast": forecast.pk}
    width_s = deployment.subinterval_s
    factors = {}
    for source in deployment.sources:
        curves = forecast.series["sources"].get(source.id)
        rate = float(source.arrivals.mean()) / width_s
        if curves is None or rate <= 0.0:
            continue
        highest = max((curves["high"][k] for k in indexes if curves["high"][k] is not None), default=None)
        if highest is not None:
            factors[source.id] = float(highest) / rate
    lacking = sorted(sources - {*factors})
    until = None if run.ends_at else end.isoformat()
    return factors, {"by": "forecast", "forecast": forecast.pk, "as_present": lacking, "until": until}


def _day_words(moment: datetime) -> str:
    """`30 Nov, 02:00 UTC`."""
    return f"{moment.day} {moment:%b, %H:%M} UTC"


def load_words(run: Evacuation) -> str:
    """The load that a plan is made for, in words."""
    basis = run.facts.get("load", {})
    if basis.get("by") == "forecast":
        lacking = basis["as_present"]
        rest = f"; {listed(lacking, _NAMED)} as now, having no forecast" if lacking else ""
        until = basis.get("until")
        span = f"until {_day_words(datetime.fromisoformat(until))}, where it ends" if until else "for that time"
        return f"At the upper end of the load forecast {span}{rest}."
    if basis.get("why") == "beyond_forecast":
        return "At the present load: the newest forecast does not reach that time, so what it will be is not known."
    return "At the present load: there is no forecast, so what it will be at that time is not known."


def queries_moving(plan: EvacuationPlan) -> set[str]:
    """Queries of which an operator has to move."""
    return {move.query for step in plan.steps for move in step.moves if move.query}


def run_by_engine(cluster: Cluster, queries: Collection[str]) -> list[str]:
    """Those of some queries that a connected engine runs: Sluice cannot move these."""
    rows = Query.objects.filter(cluster=cluster, name__in=queries, imported_job__isnull=False)
    return sorted(rows.values_list("name", flat=True))


class EvacuationFilter(ListFilter):
    """`?cluster=eu-1&state=scheduled`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=EVACUATION_STATES)
    created_at = TimeFilter()
    starts_at = TimeFilter()
    sorts = sort_paths("created_at", "starts_at", "ends_at", "state", "finished_at", cluster="cluster__slug")
