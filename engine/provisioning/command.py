"""``what-if`` of the command line: scenarios, and questions with parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from engine.document.backlog import LEFT_OUT
from engine.document.deployment import Deployment
from engine.document.tables import ID, INDEX, NOT_NEGATIVE, POSITIVE
from engine.errors import DocumentError, Fault, OptionError, suggestion, value_words
from engine.estimation.estimate import Progress
from engine.fields import BAD, Anything, Enumeration, Field, FieldTable, Flag, ListOf, Number
from engine.provisioning.changes import MAX_NODES, apply_each
from engine.provisioning.combinations import node_of
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.provisioning.scenario import PLACES, place_unplaced
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import what_if
from engine.words.provisioning import change_words

__all__ = ["QUESTIONS", "answer_question", "command", "read_parameters"]

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

_BESIDE = ("changes", "scenarios")


@dataclass(frozen=True)
class QuestionKind:
    """Kind of a question: its parameters and the function that answers it.

    `of_pool` marks functions that take a `PoolQuestion`, `place_unplaced` those that take a seed and closed nodes. None
    of them begins with what waits now, and the answer says so.
    """

    table: FieldTable
    answer: Callable[..., Any]
    of_pool: bool = False
    placed: bool = True


QUESTIONS = {
    "smallest_pool": QuestionKind(
        FieldTable(
            "a question for the smallest pool",
            Field("like", Anything(), help="a node, or a type: capacity_cps, cores, price_per_hour"),
            *_LOAD,
            *_HEADROOM,
            Field("most", Number(least=1, most=MAX_NODES, whole=True), help="largest pool looked at (64)"),
            _SPLIT,
            _LEAVE_OUT,
            _BUDGET,
            Field("confirm", INDEX, help="steps by which walks may move the answer (12; 6 for a mix)"),
        ),
        smallest_pool,
        of_pool=True,
    ),
    "cheapest_mix": QuestionKind(
        FieldTable("a question for the cheapest mix", _TYPES, *_LOAD, *_HEADROOM, _TRIED, _SPLIT, _LEAVE_OUT, _BUDGET),
        cheapest_mix,
        of_pool=True,
    ),
    "pareto": QuestionKind(
        FieldTable("a question for the Pareto front", _TYPES, *_LOAD, _TRIED, _SPLIT, _BUDGET),
        pareto_front,
        of_pool=True,
    ),
    "survival": QuestionKind(
        FieldTable(
            "a question for survival",
            Field("nodes", ListOf(ID), help="nodes to lose; all unless given"),
            Field("place", Enumeration(("fill", "search")), help="what may move (fill: what was lost)"),
            Field("rounds", Number(least=0, most=1000, whole=True), help="of the placement search"),
            _FLOW,
        ),
        lose_each,
    ),
    "growth": QuestionKind(
        FieldTable(
            "a question for growth",
            Field("queries", ListOf(ID), help="queries to grow one at a time; all unless given"),
            Field("most", Number(above=1), help="largest factor looked at (16)"),
            Field("confirm", INDEX, help="walks that narrow a factor (5)"),
            _FLOW,
        ),
        headroom_by_query,
        placed=False,
    ),
}


def answer_question(
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
    options = read_parameters(question, parameters, deployment) | {"mace_every": mace_every}
    kind = QUESTIONS[question]
    if kind.placed:
        options |= {"seed": seed, "closed": closed}
    if kind.of_pool:
        names = [entry.name for entry in fields(PoolQuestion) if entry.name in options]
        options["question"] = PoolQuestion(**{name: options.pop(name) for name in names})
    answer: dict[str, Any] = kind.answer(deployment, progress=progress, **options).to_dict()
    return answer | ({"backlog": LEFT_OUT} if deployment.backlogs else {})


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
        allowed = suggestion(str(question), list(QUESTIONS)) or f"; allowed: {', '.join(QUESTIONS)}"
        raise DocumentError([Fault("find", f"find is {value_words(question)}{allowed}")], "question")
    faults: list[Fault] = []
    record: Any = QUESTIONS[question].table.read({} if parameters is None else parameters, "", path, faults)
    if record is BAD:
        raise DocumentError(faults, "question")
    _factor(record, deployment, path, faults)
    _like(record, deployment, path, faults)
    for i, query in enumerate(record.get("queries", ())):
        if query is not BAD and query not in deployment.queries:
            message = f"item {i} is {query!r}, which is no query{suggestion(query, list(deployment.queries))}"
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
            faults.append(Fault(f"{path}.factor.{name}", f"{name!r} is no source{suggestion(name, known)}"))


def _like(record: dict[str, Any], deployment: Deployment, path: str, faults: list[Fault]) -> None:
    like = record.get("like")
    if isinstance(like, dict):
        try:
            node_of(like, path=f"{path}.like")
        except DocumentError as error:
            faults.extend(error.faults)
    elif like is not None and like not in list(deployment.node_index):
        near = suggestion(str(like), list(deployment.node_index))
        faults.append(Fault(f"{path}.like", f"like is {value_words(like)}, which is no node{near}"))


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Compare ``changes`` or ``scenarios`` beside a deployment document, or answer the question of option `find`.

    With `find`, changes are applied first. Options: `place`, `seed`, `mace_every`, `flow`, `intervals`, `rounds`,
    `find`, `parameters`.
    """
    if not isinstance(document, Mapping):
        raise DocumentError([Fault("", f"the document is {value_words(document)}; allowed: an object")])
    if all(name in document for name in _BESIDE):
        raise DocumentError([Fault("scenarios", "scenarios is given beside changes; allowed: one of them")])
    base = {name: value for name, value in document.items() if name not in _BESIDE}
    deployment = Deployment.parse(base, placed=False)
    if "find" in options:
        return _found(deployment, document, options)
    if "parameters" in options:
        raise OptionError("parameters are those of a question; name it with the option find")
    settings = {name: value for name, value in options.items() if name != "place"}
    return {"scenarios": [entry.to_dict() for entry in what_if(deployment, _scenarios(document, options), **settings)]}


def _scenarios(document: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    """The scenarios; a bare list of changes is compared with what is now."""
    if "scenarios" not in document:
        changed = {"name": "changed", "changes": document.get("changes", []), "place": options.get("place", "fill")}
        return [{"name": "now"}, changed]
    given = document["scenarios"]
    if "place" not in options or not isinstance(given, list):
        return given
    return [{"place": options["place"]} | item if isinstance(item, dict) else item for item in given]


def _found(deployment: Deployment, document: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    if "scenarios" in document:
        raise DocumentError([Fault("scenarios", "scenarios does not go with find; allowed: changes")])
    changed = apply_each(deployment, document.get("changes", []))
    every, seed = options.get("mace_every", 1), options.get("seed", 0)
    whole = changed.deployment
    # Sizes place whatever has no place themselves; the other questions are about what runs.
    if options["find"] in ("survival", "growth"):
        whole = place_unplaced(whole, options.get("place", PLACES[1]), mace_every=every, seed=seed)
    answer = answer_question(whole, options["find"], options.get("parameters"), seed=seed, mace_every=every)
    return {"find": options["find"], "words": list(map(change_words, changed.changes)), "answer": answer}
