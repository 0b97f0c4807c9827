"""Questions with parameters: the smallest pool, the cheapest mix, the front, survival, growth; read strictly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from engine.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.estimation import Progress
from engine.fields import BAD, Anything, Choice, Field, Flag, Listed, Number, Table
from engine.provisioning.changes import MOST_NODES
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.node_types import node_of
from engine.provisioning.pareto import front
from engine.provisioning.sizing import cheapest_mix, smallest_pool
from engine.provisioning.survival import lose_each
from engine.tables import ID, INDEX, NOT_NEGATIVE, POSITIVE
from engine.wording import show, suggest

__all__ = ["QUESTIONS", "find", "read_parameters"]

_LOAD = (
    Field("factor", Anything(), help="load as a multiple of the present one, or an object by source (1)"),
    Field("lose", Number(least=0, most=1, whole=True), help="1: also with any one node lost (0)"),
    Field("keep_present", Flag(), help="false: new nodes instead of the present ones (true)"),
    Field("rounds", Number(least=0, most=1000, whole=True), help="of the placement search, for each pool"),
)
_HEADROOM = (
    Field("headroom_s", NOT_NEGATIVE, help="seconds to leave of every bound (0)"),
    Field("headroom_share", NOT_NEGATIVE, help="share to leave of every bound (0)"),
)
_TRIED = Field("most_tried", Number(least=1, most=10_000, whole=True), help="mixes that are placed at most")
_TYPES = Field("types", Anything(), required=True, help="name, capacity_cps, cores, price_per_hour and max of each")
_SPLIT = Field("split", Flag(), help="false: no stateless operator is split, however large (true)")
_BUDGET = Field("budget_s", POSITIVE, help="seconds after which the best bracket so far is the answer")
_LEAVE_OUT = Field("leave_out", Flag(), help="true: go on without objectives that no number of nodes keeps (false)")
_FLOW = Field("flow", Flag(), help="false: by Mace alone (true)")


@dataclass(frozen=True)
class Question:
    """A question: its parameters, what answers it, and whether it takes a seed and nodes that are closed."""

    table: Table
    answer: Callable[..., Any]
    placed: bool = True


QUESTIONS = {
    "smallest_pool": Question(
        Table(
            "a question for the smallest pool",
            Field("like", Anything(), help="a node, or a type: capacity_cps, cores, price_per_hour"),
            *_LOAD,
            *_HEADROOM,
            Field("most", Number(least=1, most=MOST_NODES, whole=True), help="largest pool looked at (64)"),
            _SPLIT,
            _LEAVE_OUT,
            _BUDGET,
            Field("confirm", INDEX, help="steps by which Flow may move the answer (12; 6 for a mix)"),
        ),
        smallest_pool,
    ),
    "cheapest_mix": Question(
        Table("a question for the cheapest mix", _TYPES, *_LOAD, *_HEADROOM, _TRIED, _SPLIT, _LEAVE_OUT, _BUDGET),
        cheapest_mix,
    ),
    "pareto": Question(Table("a question for the Pareto front", _TYPES, *_LOAD, _TRIED, _SPLIT, _BUDGET), front),
    "survival": Question(
        Table(
            "a question for survival",
            Field("nodes", Listed(ID), help="nodes to lose; all unless given"),
            Field("place", Choice(("fill", "search")), help="what may move (fill: what was lost)"),
            Field("rounds", Number(least=0, most=1000, whole=True), help="of the placement search"),
            _FLOW,
        ),
        lose_each,
    ),
    "growth": Question(
        Table(
            "a question for growth",
            Field("queries", Listed(ID), help="queries to grow one at a time; all unless given"),
            Field("most", Number(above=1), help="largest factor looked at (16)"),
            Field("confirm", INDEX, help="times Flow may lower a factor (3)"),
            _FLOW,
        ),
        headroom_by_query,
        placed=False,
    ),
}


def find(
    deployment: Deployment,
    question: str,
    parameters: Any = None,
    *,
    seed: int = 0,
    mace_every: int = 1,
    closed: Sequence[str] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Answer a question by name; the answer as JSON.

    Raises
    ------
    DocumentError
        If the question or its parameters make no sense.
    """
    read = read_parameters(question, parameters, deployment)
    asked = QUESTIONS[question]
    if asked.placed:
        read |= {"seed": seed, "closed": closed}
    answer: dict[str, Any] = asked.answer(deployment, mace_every=mace_every, progress=progress, **read).to_dict()
    return answer


def read_parameters(
    question: str, parameters: Any, deployment: Deployment, *, path: str = "parameters"
) -> dict[str, Any]:
    """The parameters of a question, checked against a deployment.

    Raises
    ------
    DocumentError
        With every fault.
    """
    if question not in QUESTIONS:
        allowed = suggest(str(question), list(QUESTIONS)) or f"; allowed: {', '.join(QUESTIONS)}"
        raise DocumentError([Fault("find", f"find is {show(question)}{allowed}")], "question")
    faults: list[Fault] = []
    record: Any = QUESTIONS[question].table.read({} if parameters is None else parameters, "", path, faults)
    if record is BAD:
        raise DocumentError(faults, "question")
    _factor(record, deployment, path, faults)
    _like(record, deployment, path, faults)
    for i, query in enumerate(record.get("queries", ())):
        if query is not BAD and query not in deployment.queries:
            message = f"item {i} is {query!r}, which is no query{suggest(query, list(deployment.queries))}"
            faults.append(Fault(f"{path}.queries[{i}]", message))
    if faults:
        raise DocumentError(faults, "question")
    return dict(record)


def _factor(record: dict[str, Any], deployment: Deployment, path: str, faults: list[Fault]) -> None:
    factor = record.get("factor", 1.0)
    known = [source.id for source in deployment.sources]
    if not isinstance(factor, dict):
        NOT_NEGATIVE.read(factor, path, "factor", faults)
        return
    for name, by in factor.items():
        NOT_NEGATIVE.read(by, f"{path}.factor", name, faults)
        if name not in (*known, "*"):
            faults.append(Fault(f"{path}.factor.{name}", f"{name!r} is no source{suggest(name, known)}"))


def _like(record: dict[str, Any], deployment: Deployment, path: str, faults: list[Fault]) -> None:
    like = record.get("like")
    if isinstance(like, dict):
        try:
            node_of(like, path=f"{path}.like")
        except DocumentError as error:
            faults.extend(error.faults)
    elif like is not None and like not in list(deployment.node_index):
        near = suggest(str(like), list(deployment.node_index))
        faults.append(Fault(f"{path}.like", f"like is {show(like)}, which is no node{near}"))
