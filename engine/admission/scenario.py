"""Scenario: the running deployment, the candidate and the changes, put together and placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from engine.admission.answer import AdmissionPolicy
from engine.admission.changes import (
    Change,
    LaterStart,
    NewNode,
    ObjectiveChange,
    join_changes,
    moves_in,
    nodes_in,
    rate_share_in,
    start_p_in,
)
from engine.arrays import FloatArray, frozen_array
from engine.costream.accuracy import PredictionRecord
from engine.costream.first_placement import FirstPlacement, PlacementPredictor
from engine.document.backlog import with_new_readers
from engine.document.candidate import Candidate
from engine.document.deployment import (
    Deployment,
    Node,
    Objective,
    Operator,
    Replica,
    Source,
    private_name,
    rename_inputs,
    with_node_like,
)
from engine.measurement.trust import QueryCalibration
from engine.placement.extension import extend_placement
from engine.placement.ground import RunningGround
from engine.placement.separation import ApartOperator
from engine.policies.candidate_policy import PolicyStanding

__all__ = ["AdmissionScenario", "CandidateQuestion", "Companion", "party_of", "scenario_of"]


@dataclass(frozen=True, eq=False)
class Companion:
    """Another member of a candidate's group, with the places of its operators: it joins whenever the candidate does."""

    candidate: Candidate
    changes: tuple[Change, ...] = ()  #: that it joins with
    team: str = ""


@dataclass(frozen=True, eq=False)
class CandidateQuestion:
    """Question of an admission: may `candidate` join the running deployment under `policy`?

    `mace_every` subintervals of `running` make one of Mace's (1 if it is at Mace's own width). A candidate that `runs`
    is one of the queries of `running`, and stays in its place among them.
    """

    running: Deployment
    candidate: Candidate
    policy: AdmissionPolicy
    mace_every: int = 1
    prediction: FirstPlacement | None = None  #: of a candidate that never ran
    predictor: PlacementPredictor | None = None  #: asked of scenarios that the prediction does not know
    record: PredictionRecord = field(
        default_factory=PredictionRecord
    )  #: of the model, or of nominal costs, on this cluster
    calibrations: Mapping[str, QueryCalibration] = field(default_factory=dict)  #: of running queries that were scored
    currency: str = ""  #: of prices, where it is known
    standing: PolicyStanding | None = None  #: quotas, freezes and the queue, where a cluster has a policy
    ground: RunningGround | None = None  #: what runs, as placements see it, where that is kept
    runs: bool = False
    companions: tuple[Companion, ...] = ()  #: the other members of its group

    @property
    def members(self) -> tuple[Candidate, ...]:
        """The candidate and the other members of its group."""
        return self.candidate, *(companion.candidate for companion in self.companions)

    @property
    def mace_width_s(self) -> float:
        """Width of Mace's subintervals."""
        return self.running.subinterval_s * self.mace_every

    @property
    def never_ran(self) -> bool:
        """Whether the candidate has a cost that nobody has measured or assumed."""
        return any(operator.never_ran for operator in self.candidate.operators)

    @property
    def is_unproven(self) -> bool:
        """Whether the answer rests on costs that a model or a table tells and no run of the cluster bears out."""
        is_told = self.prediction is not None or any(op.never_ran for own in self.members for op in own.operators)
        return is_told and not self.record.is_borne_out


@dataclass(frozen=True, eq=False)
class AdmissionScenario:
    """An answer in the making: everything in its place."""

    deployment: Deployment  #: what would run
    changes: tuple[Change, ...]  #: the changes it rests on
    altered: Mapping[str, str]  #: nodes asked for that could not be had, by operator of the candidate
    #: queries whose operators differ from what runs, as `party_of` names them; always with the candidate
    touched: frozenset[str]
    start_p: int  #: first subinterval (from 1) in which the candidate reads
    #: operators of the candidate that could not join one they exchange events with, and why
    apart: tuple[ApartOperator, ...] = ()

    def replicas_of(self, query: str) -> dict[str, tuple[Replica, ...]]:
        """Replicas of the operators of `query`."""
        operators = self.deployment.operators
        return {operators[i].id: operators[i].replicas for i in self.deployment.operators_of(query)}

    def nodes_of(self, query: str) -> tuple[str, ...]:
        """Nodes that `query` would use, in the order of the fleet."""
        used = {replica.node for replicas in self.replicas_of(query).values() for replica in replicas}
        return tuple(sorted(used, key=self.deployment.node_index.__getitem__))


def scenario_of(question: CandidateQuestion, changes: Sequence[Change] = ()) -> AdmissionScenario:
    """Apply `changes`, let the candidate join, and place what has no place; of a group, the other members first.

    All members of a group start when the candidate does.

    Raises
    ------
    InfeasibleError
        If an operator of the candidate fits no node.
    """
    deployment, candidate = _with_companions(question, changes), question.candidate
    ground = None if question.companions else question.ground
    operators, altered = candidate.operators, dict[str, str]()
    if not question.runs:  # what runs on a draining node may stay there
        joining = with_new_readers(operators, deployment.sources)
        operators, altered = _release_closed_places(joining, question.policy.closed_nodes)
    start_p = start_p_in(changes)
    for node in nodes_in(changes):
        deployment = _with_node(deployment, node)
    candidate = replace(
        candidate, sources=tuple(source for source in candidate.sources if source.id not in deployment.source_index)
    )
    sources = {source.id: source for source in (*deployment.sources, *candidate.sources)}
    operators, own = _private_sources(operators, sources, candidate, rate_share_in(changes), start_p)
    objective = candidate.objective
    for change in changes:
        if isinstance(change, ObjectiveChange):
            objective = Objective(change.query, change.statistic, change.bound_s)
    if question.runs:
        whole = deployment.with_query_as(operators, own, objective)
    else:
        whole = deployment.joined(operators, own, objective, {candidate.query: candidate.priority}, candidate.pins)
    moves = {name: (replica,) for name, replica in moves_in(changes).items()}
    whole = whole.with_placement(moves) if moves else whole
    closed, every = question.policy.closed_nodes, question.mace_every
    extension = extend_placement(whole, closed=closed, coarse=every, ground=ground)
    whole = whole.with_placement(extension.placement) if extension.placement else whole
    touched = {own.query for own in question.members} | {party_of(op) for op in deployment.operators if op.id in moves}
    altered = {name: node for name, node in altered.items() if name not in moves}
    return AdmissionScenario(whole, tuple(changes), altered, frozenset(touched), start_p, extension.apart)


def _with_companions(question: CandidateQuestion, changes: Sequence[Change]) -> Deployment:
    """The running deployment with the other members of the candidate's group, with their changes and its start."""
    deployment, start = question.running, [change for change in changes if isinstance(change, LaterStart)]
    for companion in question.companions:
        alone = replace(question, running=deployment, candidate=companion.candidate, companions=(), ground=None)
        deployment = scenario_of(alone, join_changes(companion.changes, start)).deployment
    return deployment


def party_of(operator: Operator) -> str:
    """The operator's query; an operator without one stands for itself, under a name that no query can have."""
    return operator.query or f"\0{operator.id}"


def node_capacity_cps(node: Node) -> float:
    """Cycles per second of all cores together; the mean where it varies."""
    return core_capacity_cps(node) * node.cores


def core_capacity_cps(node: Node) -> float:
    """Cycles per second of one core; the mean where it varies."""
    if node.capacity_cps is not None:
        return node.capacity_cps
    return 0.0 if node.capacity_series_cps is None else float(node.capacity_series_cps.mean())


def _release_closed_places(
    operators: tuple[Operator, ...], closed: Sequence[str]
) -> tuple[tuple[Operator, ...], dict[str, str]]:
    """The operators without the places they cannot have, and which those were."""
    altered = {
        operator.id: next(replica.node for replica in operator.replicas if replica.node in closed)
        for operator in operators
        if any(replica.node in closed for replica in operator.replicas)
    }
    return tuple(replace(op, replicas=()) if op.id in altered else op for op in operators), altered


def _with_node(deployment: Deployment, change: NewNode) -> Deployment:
    """One more node, connected as the node it is modelled on is; to that one by the worst of its links."""
    like = deployment.nodes[deployment.node_index[change.like]]
    capacity_cps, cores = change.capacity_cps, change.cores or like.cores
    node = replace(like, id=change.id, capacity_cps=capacity_cps, capacity_series_cps=None, cores=cores, labels={})
    return with_node_like(deployment, node, like.id)


def _private_sources(
    operators: tuple[Operator, ...], sources: Mapping[str, Source], candidate: Candidate, share: float, start_p: int
) -> tuple[tuple[Operator, ...], tuple[Source, ...]]:
    """The candidate's operators and the sources it brings, once its rate is cut or its start put off.

    It then reads copies of its own, ``source@query``, so that nobody else's load changes.
    """
    if share == 1.0 and start_p == 1:
        return operators, candidate.sources
    read = dict.fromkeys(e.source for op in operators for e in op.inputs if e.source in sources)
    brought = {source.id for source in candidate.sources}
    taken = {*sources} - brought
    names = {name: private_name(name, candidate.query, brought, taken) for name in read}
    copies = tuple(
        replace(sources[name], id=names[name], arrivals=_cut(sources[name], share, start_p)) for name in read
    )
    return tuple(rename_inputs(operator, names.get) for operator in operators), copies


def _cut(source: Source, share: float, start_p: int) -> FloatArray:
    arrivals = np.array(source.arrivals) * share
    arrivals[: start_p - 1] = 0.0
    return frozen_array(arrivals)
