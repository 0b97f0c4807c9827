"""Remedies as members of a team see them: what each does to queries of others in sums, and what to ask an operator for.

Who sees a part of a cluster learns what helps a query of their team. Others have no name there, and no number. What
moves operators, adds nodes or stops queries is done by operators of the cluster, who see the same remedies by the same
ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from apps.queries.masks import OTHER, QueryMask, mask_of
from apps.queries.models import Query
from engine.records import Fact, Record, Sentence, Words
from engine.remedies.answer import QueryRemedies, Remedy, TriedRemedy

__all__ = ["RemediesSeen", "RemedyPart", "remedies_seen"]

_OWN = ("scale_rate", "objective")  # kinds that the team sees to itself


@dataclass(frozen=True)
class RemedyPart(Record):
    """A remedy to members of a team who see a part of the cluster."""

    TITLE: ClassVar[str] = "a remedy as members of a team see it"

    remedy: Annotated[str, Words("its id")]
    others: Annotated[int, Words("queries of other teams that it changes")]
    request: Annotated[Sentence, Words("what to ask an operator for; empty of what the team does itself")]


@dataclass(frozen=True)
class RemediesSeen:
    """Remedies as the caller sees them; `parts` by their ids, None for whoever sees the whole cluster."""

    answer: QueryRemedies
    parts: Mapping[str, RemedyPart] | None


def remedies_seen(query: Query, answer: QueryRemedies) -> RemediesSeen:
    """Remedies of a query as the caller sees them: whole, or masked with what to ask an operator for."""
    mask = mask_of(query.cluster)
    if mask is None:
        return RemediesSeen(answer, None)
    mask = mask.naming(answer.to_dict())
    parts = {remedy.id: _part(query, remedy, mask) for remedy in answer.remedies}
    shown = replace(
        answer,
        unknown=tuple(mask.text(str(text)) for text in answer.unknown),
        remedies=tuple(_masked(remedy, mask) for remedy in answer.remedies),
        tried=tuple(_tried(row, mask) for row in answer.tried),
    )
    return RemediesSeen(QueryRemedies.parse(mask.document(shown.to_dict())), parts)


def _part(query: Query, remedy: Remedy, mask: QueryMask) -> RemedyPart:
    touched = {*_moved(remedy), *(effect.query for effect in remedy.effects), *remedy.breaks, *remedy.mends}
    asked = {"cluster": query.cluster.slug, "query": query.name, "remedy": remedy.id, "title": _title(remedy, mask)}
    request = "" if remedy.kind in _OWN else Fact("remedies.request", **asked)
    return RemedyPart(remedy.id, len(mask.others(touched)), request)


def _moved(remedy: Remedy) -> set[str]:
    """Queries of which operators are elsewhere then."""
    return {operator.partition("/")[0] for operator in remedy.placement}


def _removed(change: Mapping[str, Any]) -> set[str]:
    return {str(change["remove_query"])} if "remove_query" in change else set()


def _stopped(remedy: Remedy) -> set[str]:
    return {effect.query for effect in remedy.effects if effect.after_state == "stopped"}


def _title(remedy: Remedy, mask: QueryMask) -> Sentence:
    """The change, with queries of others in a number."""
    moved, stopped = mask.others(_moved(remedy)), mask.others(_stopped(remedy))
    if stopped:
        return Fact("remedies.part_stop", own=sorted(_stopped(remedy) - stopped), others=len(stopped))
    if moved and remedy.kind == "move":
        own = [name for name in remedy.placement if name.partition("/")[0] not in moved]
        return Fact("remedies.part_move", own=own, others=len(moved))
    return mask.text(str(remedy.title))


def _masked(remedy: Remedy, mask: QueryMask) -> Remedy:
    moved, stopped = mask.others(_moved(remedy)), mask.others(_stopped(remedy))
    told: dict[str, Any] = {"title": _title(remedy, mask)}
    if stopped:
        told |= {"cost": Fact("remedies.part_stop_cost"), "risk": Fact("remedies.part_stop_risk")}
    elif moved:
        told |= {"risk": Fact("remedies.part_moved_risk", others=len(moved))}
    return replace(
        remedy,
        **{"cost": remedy.cost, "risk": remedy.risk, **told},
        breaks=tuple(mask.text(name) for name in remedy.breaks),
        mends=tuple(mask.text(name) for name in remedy.mends),
        effects=tuple(effect for effect in remedy.effects if not mask.others([effect.query])),
        placement={name: places for name, places in remedy.placement.items() if name.partition("/")[0] not in moved},
        changes=tuple(change for change in remedy.changes if not mask.others(_removed(change))),
    )


def _tried(row: TriedRemedy, mask: QueryMask) -> TriedRemedy:
    why = str(row.why)
    return row if mask.text(why) == why else replace(row, why=Fact("remedies.part_tried", other=OTHER))
