"""Answer of a search for the cheapest mix, also where it is a pool of one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.provisioning.answers.pools import MixAnswer, PoolAnswer, Proof
from engine.provisioning.combinations import NodeType

__all__ = ["of_pool"]


def of_pool(answer: PoolAnswer, types: Sequence[NodeType], t: int) -> MixAnswer:
    """The answer for one type as a mix: new nodes have the names they would have in one."""
    entry = types[t]
    added = answer.added
    taken = {replica.node for held in answer.placement.values() for replica in held}
    new = {
        name: f"{entry.name}-{k + 1}"
        for k, name in enumerate(_new_names(answer))
        if f"{entry.name}-{k + 1}" not in taken
    }
    placement = {
        name: tuple(replace(replica, node=new.get(replica.node, replica.node)) for replica in held)
        for name, held in answer.placement.items()
    }
    never = answer.nodes is None and answer.proof is not None and answer.proof.refutation is not None
    proofs = () if answer.proof is None else (_priced(answer.proof, answer.present, entry, types),)
    return MixAnswer(
        present=answer.present,
        counts=None if added is None else {type_.name: added if k == t else 0 for k, type_ in enumerate(types)},
        cost_per_hour=None if added is None else added * entry.price_per_hour,
        least_cost_per_hour=None if never else _least(answer) * entry.price_per_hour,
        best=answer.best,
        placement=placement,
        refuted=max(0, (answer.most + 1 if never else _proven_least(answer)) - answer.present),
        tried=sum(1 for size in answer.sizes if answer.nodes is None or size.nodes < answer.nodes),
        proofs=proofs,
        complete=answer.complete,
        flows=answer.flows,
        figures=answer.figures,
        confirmed=answer.confirmed,
        splits=answer.splits,
        beyond=answer.beyond,
        confirmation=answer.confirmation,
    )


def _proven_least(answer: PoolAnswer) -> int:
    """Fewest nodes of the pool that are not refuted."""
    if answer.proof is not None and answer.proof.refutation is not None and answer.nodes is not None:
        return answer.nodes
    return min(answer.least, answer.nodes or answer.least)


def _least(answer: PoolAnswer) -> int:
    return max(0, _proven_least(answer) - answer.present)


def _new_names(answer: PoolAnswer) -> list[str]:
    """Names of the nodes that were added, in their order."""
    names = {replica.node for held in answer.placement.values() for replica in held}
    return sorted((name for name in names if name.startswith("new-")), key=lambda name: (len(name), name))


def _priced(proof: Proof, present: int, entry: NodeType, types: Sequence[NodeType]) -> Proof:
    """The case against one node less, in the words of mixes: with what was bought."""
    added = proof.nodes - present
    words = {type_.name: added if type_ is entry else 0 for type_ in types}
    return replace(proof, pool=words, cost_per_hour=added * entry.price_per_hour)
