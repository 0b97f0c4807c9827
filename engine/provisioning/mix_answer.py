"""Answer of a search for the cheapest mix, also where it is a pool of one type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.provisioning.combinations import NodeType
from engine.provisioning.objectives import ObjectiveFigures
from engine.provisioning.pool.bounds import Refutation, beyond_sentence, split_sentence
from engine.provisioning.pool.problem import Placement
from engine.provisioning.pool.proof import Proof
from engine.provisioning.pool.search import PoolAnswer
from engine.provisioning.pool.solver import PoolSize
from engine.words import mix_text

__all__ = ["MixAnswer", "of_pool"]


@dataclass(frozen=True, eq=False)
class MixAnswer:
    """The cheapest mix found.

    Attributes
    ----------
    counts : mapping or None
        New nodes by type; None if no mix within the limits was found.
    cost_per_hour : float or None
        Of the new nodes.
    least_cost_per_hour : float or None
        No mix that costs less can keep every objective (by Mace): every one is refuted by a lower bound. Equal to the
        cost where the answer is proven to be the cheapest. None if all mixes are refuted.
    refuted, tried : int
        Cheaper combinations that a bound refutes, and those that were placed without success.
    proofs : tuple of Proof
        The cheaper mixes that came nearest, and why they are not enough; for each type in use, one node less of it.
    complete : bool
        False if the search gave up before it had looked at every combination that could be cheaper.
    confirmed : bool
        As in `PoolAnswer`; without it a pool of one type is the answer only where no mix was confirmed.
    figures, splits, beyond, confirmation
        As in `PoolAnswer`.
    """

    types: tuple[NodeType, ...]
    present: int
    counts: dict[str, int] | None
    cost_per_hour: float | None
    least_cost_per_hour: float | None
    best: PoolSize | None
    placement: Placement
    refuted: int
    tried: int
    proofs: tuple[Proof, ...]
    complete: bool
    flows: int
    figures: ObjectiveFigures
    confirmed: bool = True
    splits: dict[str, int] = field(default_factory=dict)
    beyond: tuple[Refutation, ...] = ()
    confirmation: str = ""

    @property
    def is_sufficient(self) -> bool:
        """Whether it is confirmed and leaves no objective at risk."""
        return self.counts is not None and self.confirmed and not self.figures.at_risk

    @property
    def proven(self) -> bool:
        """Whether nothing cheaper can do (by Mace)."""
        least, cost = self.least_cost_per_hour, self.cost_per_hour
        return self.counts is not None and least is not None and cost is not None and cost <= least * (1.0 + 1e-9)

    @property
    def message(self) -> str:
        return " ".join(self._none_found() if self.counts is None else self._found(self.counts))

    def _none_found(self) -> Iterator[str]:
        if self.beyond:
            yield beyond_sentence(self.beyond)
        which = (bool(self.beyond), self.complete)
        yield {
            (False, True): "No mix within the limits keeps every objective.",
            (False, False): "No mix among those looked at keeps every objective.",
            (True, True): "No mix within the limits keeps the others.",
            (True, False): "No mix among those looked at keeps the others.",
        }[which]
        if self.proofs:
            yield f"The nearest does not do: {self.proofs[0].message}."

    def _found(self, counts: Mapping[str, int]) -> Iterator[str]:
        if self.beyond:
            yield beyond_sentence(self.beyond)
        if any(counts.values()):
            yield f"{mix_text(counts)} at {self.cost_per_hour:g} per hour."
        else:
            yield "No new node is needed."
        if self.proven:
            yield "Every cheaper mix is proven too small."
        elif self._is_bounded:
            yield f"No cheaper mix was found; by bound it is at least {self.least_cost_per_hour:g} per hour."
        else:
            yield "No cheaper mix was found."
        if not self.confirmed:
            yield "It is not confirmed."
        yield from self.figures.sentences
        if self.splits:
            yield split_sentence(self.splits)

    @property
    def _is_bounded(self) -> bool:
        least, cost = self.least_cost_per_hour, self.cost_per_hour
        return least is not None and cost is not None and least < cost

    def to_dict(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "present": self.present,
            "cost_per_hour": self.cost_per_hour,
            "least_cost_per_hour": self.least_cost_per_hour,
            "proven": self.proven,
            "complete": self.complete,
            "refuted": self.refuted,
            "tried": self.tried,
            "best": None if self.best is None else self.best.to_dict(),
            "placement": {
                name: [{"node": r.node, "core": r.core, "fraction": r.fraction} for r in replicas]
                for name, replicas in self.placement.items()
            },
            "proofs": [proof.to_dict() for proof in self.proofs],
            "flows": self.flows,
            "confirmed": self.confirmed,
            "splits": self.splits,
            "beyond": [refutation.to_dict() for refutation in self.beyond],
            "confirmation": self.confirmation,
            **self.figures.to_dict(),
            "message": self.message,
        }


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
        types=tuple(types),
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
