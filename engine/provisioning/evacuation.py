"""Evacuation: the moves that empty nodes, in one step or one after the other, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from engine.document.deployment import Deployment
from engine.errors import DocumentError, EngineError, Fault, InfeasibleError
from engine.estimation.estimate import Progress
from engine.placement.answer import MoveAnswer
from engine.placement.proposal import Proposal, place
from engine.provisioning.answers.evacuations import DelayedQuery, EvacuationPlan, LossMeanwhile, PlannedStep
from engine.provisioning.answers.scenarios import Refusal
from engine.provisioning.changes import apply_changes
from engine.provisioning.survival import Survival, lose_each
from engine.solvers import solving

__all__ = ["evacuate", "operators_on"]

_SEARCH_SHARE = 0.4  # of a step's progress; the rest are losses of other nodes


def operators_on(deployment: Deployment, nodes: Collection[str]) -> list[str]:
    """Operators with a replica on any of some nodes."""
    return [op.id for op in deployment.operators if any(replica.node in nodes for replica in op.replicas)]


def evacuate(
    deployment: Deployment,
    steps: Sequence[Sequence[str]],
    *,
    closed: Collection[str] = (),
    back: bool = True,
    factors: Mapping[str, float] | None = None,
    budget_s: float | None = 2.0,
    rounds: int | None = None,
    seed: int = 0,
    mace_every: int = 1,
    walks: bool = True,
    progress: Progress | None = None,
) -> EvacuationPlan:
    """Plan how nodes are emptied, step by step.

    Only what is on the nodes of a step moves. Pins, anti-affinity and memory are respected: what they keep on a node
    makes the step impossible, and is named.

    Parameters
    ----------
    steps : sequence of sequences of str
        Nodes that are away together, in order.
    closed : collection of str
        Nodes that take nothing.
    back : bool
        Whether operators return before the next step. Without, they stay where a step put them.
    factors : mapping, optional
        Load of sources against their arrivals, by source; of a private copy ``s@q`` that of ``s``. 1 unless given.
    budget_s, rounds : float or None, int or None
        Of the placement search of each step.
    walks : bool
        Whether losses of further nodes are walked; False estimates them by Mace alone.

    Raises
    ------
    DocumentError
        A node does not exist, or is in two steps; a step has none, or no node stays.
    """
    solving()
    _refuse_steps(deployment, steps)
    known = {s.id: f for s in deployment.sources if (f := (factors or {}).get(s.id.partition("@")[0])) is not None}
    current = deployment.with_arrivals({s.id: s.arrivals * known[s.id] for s in deployment.sources if s.id in known})
    tell = progress or (lambda share, step: None)
    planned = []
    for k, nodes in enumerate(steps):

        def told(share: float, words: str, k: int = k) -> None:
            tell((k + share) / len(steps), f"Step {k + 1} of {len(steps)}: {words}")

        away = frozenset(nodes)
        told(0.0, "Placing what has to move")
        try:
            proposal = _emptied(current, away, frozenset(closed), budget_s, rounds, seed, mace_every, told)
            survival = _meanwhile(proposal.placed(), away, closed, seed, mace_every, walks, told)
        except InfeasibleError as error:
            planned.append(PlannedStep(nodes=tuple(nodes), refusal=_refusal(error)))
            continue
        planned.append(_step(tuple(nodes), proposal, survival))
        current = current if back else proposal.placed()
    used = {name.partition("@")[0]: factor for name, factor in known.items()}
    return EvacuationPlan(steps=tuple(planned), back=back, factors=used)


def _refuse_steps(deployment: Deployment, steps: Sequence[Sequence[str]]) -> None:
    faults: list[Fault] = []
    seen: set[str] = set()
    for k, nodes in enumerate(steps):
        if not nodes:
            faults.append(Fault(f"steps[{k}]", f"steps[{k}] has no node; allowed: at least one"))
        elif len({*nodes}) == len(deployment.nodes):
            faults.append(Fault(f"steps[{k}]", f"steps[{k}] has every node: none is left to take what runs"))
        for i, name in enumerate(nodes):
            if name not in deployment.node_index:
                faults.append(Fault(f"steps[{k}][{i}]", f"item {i} is {name!r}, which is no node"))
            elif name in seen:
                faults.append(Fault(f"steps[{k}][{i}]", f"item {i} is {name!r}, which an earlier item names already"))
            seen.add(name)
    if faults:
        raise DocumentError(faults, "evacuation")


def _emptied(
    deployment: Deployment,
    away: frozenset[str],
    closed: frozenset[str],
    budget_s: float | None,
    rounds: int | None,
    seed: int,
    mace_every: int,
    tell: Progress,
) -> Proposal:
    """The placement with what was on the nodes elsewhere, and nothing else moved."""
    leaving = {*operators_on(deployment, away)}
    moves = sum(r.node in away for op in deployment.operators for r in op.replicas)
    return place(
        replace(deployment, constraints=replace(deployment.constraints, max_moves=moves)),
        budget_s=budget_s,
        rounds=rounds,
        seed=seed,
        closed=sorted(closed | away),
        fixed=[op.id for op in deployment.operators if op.id not in leaving],
        objective="objectives" if deployment.objectives else "worst",
        mace_every=mace_every,
        progress=lambda share, words, best: tell(_SEARCH_SHARE * share, words),
    )


def _meanwhile(
    placed: Deployment,
    away: frozenset[str],
    closed: Collection[str],
    seed: int,
    mace_every: int,
    walks: bool,
    tell: Progress,
) -> Survival:
    """Every other node lost, with the nodes away."""
    left = apply_changes(placed, [{"lose_node": node} for node in sorted(away)])
    return lose_each(
        left,
        seed=seed,
        mace_every=mace_every,
        flow=walks,
        closed=[node for node in closed if node not in away],
        progress=lambda share, words: tell(_SEARCH_SHARE + (1.0 - _SEARCH_SHARE) * share, words),
    )


def _step(nodes: tuple[str, ...], proposal: Proposal, survival: Survival) -> PlannedStep:
    deployment, moves = proposal.deployment, proposal.report.moves
    bounds_s = {objective.query: objective.bound_s for objective in deployment.objectives}
    unknown = [move for move in moves if move.state_bytes is None and not _is_stateless(deployment, move)]
    timeless = dict.fromkeys(move.query for move in unknown if move.query)
    known = {query: delay for query, delay in proposal.delays.items() if query not in timeless}
    return PlannedStep(
        nodes=nodes,
        moves=moves,
        queries=proposal.report.queries,
        delays=(
            *(DelayedQuery(query, None, bounds_s.get(query), None) for query in timeless),
            *(
                DelayedQuery(query, delay.extra_s, bounds_s.get(query), delay.late_s)
                for query, delay in sorted(known.items(), key=lambda item: -item[1].extra_s)
            ),
        ),
        lasts_s=sum(move.duration_s for move in moves),
        unknown=tuple(move.operator for move in unknown),
        losses=tuple(_losses(survival)),
        by_mace=bool(survival.by_mace),
    )


def _is_stateless(deployment: Deployment, move: MoveAnswer) -> bool:
    return deployment.operators[deployment.operator_index[move.operator]].stateless is True


def _losses(survival: Survival) -> Iterator[LossMeanwhile]:
    for node, outcome in survival.losses.items():
        refusal = "" if outcome.refusal is None else _first_words(outcome.refusal)
        breaks, risks = survival.breaks(node), survival.risks(node)
        if breaks or risks or refusal:
            yield LossMeanwhile(node, breaks, risks, refusal)


def _first_words(error: EngineError) -> str:
    return error.faults[0].message if error.faults else error.message


def _refusal(error: InfeasibleError) -> Refusal:
    return Refusal.parse(error.to_dict())
