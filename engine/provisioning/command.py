"""``what-if`` of the command line: scenarios, and questions with parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar

from engine.command_options import WhatIfCommandOptions
from engine.document.deployment import Deployment
from engine.document.kinds import ID, INDEX, NOT_NEGATIVE, POSITIVE
from engine.errors import DocumentError, Fault, OptionError, suggestion, value_words
from engine.kinds import Anything, Enumeration, ListOf, Number, String
from engine.provisioning.changes import MAX_NODES, apply_each
from engine.provisioning.combinations import node_of
from engine.provisioning.growth import headroom_by_query
from engine.provisioning.mix import cheapest_mix, pareto_front
from engine.provisioning.pool.search import smallest_pool
from engine.provisioning.question import PoolQuestion
from engine.provisioning.scenario import PLACES, place_unplaced
from engine.provisioning.survival import lose_each
from engine.provisioning.what_if import what_if
from engine.records import Fact, Flag, Record, Words, record_fields

__all__ = ["command"]

_Share = Annotated[float, NOT_NEGATIVE]
_Steps = Annotated[int | None, INDEX]
_Tried = Annotated[int, Number(least=1, most=10_000, whole=True), Words("mixes that are placed at most")]
_Split = Annotated[Flag, Words("false: no stateless operator is split, however large (true)")]
_Budget = Annotated[float | None, POSITIVE, Words("seconds after which the best bracket so far is the answer")]
_LeaveOut = Annotated[Flag, Words("true: go on without objectives that no number of nodes keeps (false)")]
_Flow = Annotated[Flag, Words("false: by Mace alone (true)")]
_Names = Annotated[list[str] | None, ListOf(ID)]


class _Question(Record):
    """Parameters of a question. None of them begins with what waits now, and the answer says so."""

    def answer(self, deployment: Deployment, options: WhatIfCommandOptions) -> Record:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class _Like(Record):
    like: Annotated[Any, Anything(), Words("a node, or a type: capacity_cps, cores, price_per_hour")] = None


@dataclass(frozen=True, kw_only=True)
class _Types(Record):
    types: Annotated[Any, Anything(), Words("name, capacity_cps, cores, price_per_hour and max of each")]


@dataclass(frozen=True, kw_only=True)
class _Load(_Question):
    factor: Annotated[Any, Anything(), Words("load as a multiple of the present one, or an object by source (1)")] = 1.0
    lose: Annotated[int, Number(least=0, most=1, whole=True), Words("1: also with any one node lost (0)")] = 0
    keep_present: Annotated[Flag, Words("false: new nodes instead of the present ones (true)")] = True
    rounds: Annotated[
        int | None, Number(least=0, most=1000, whole=True), Words("of the placement search, for each pool")
    ] = None

    def question(self, options: WhatIfCommandOptions) -> PoolQuestion:
        names = {field.name for field in fields(PoolQuestion)}
        given = {name: value for name, value in vars(self).items() if name in names}
        return PoolQuestion(**given, seed=options.seed, mace_every=options.mace_every)


@dataclass(frozen=True, kw_only=True)
class _Headroom(_Load):
    headroom_s: Annotated[_Share, Words("seconds to leave of every bound (0)")] = 0.0
    headroom_share: Annotated[_Share, Words("share to leave of every bound (0)")] = 0.0


@dataclass(frozen=True, kw_only=True)
class _SmallestPool(_Headroom, _Like):
    TITLE: ClassVar[str] = "a question for the smallest pool"

    most: Annotated[int, Number(least=1, most=MAX_NODES, whole=True), Words("largest pool looked at (64)")] = 64
    split: _Split = True
    leave_out: _LeaveOut = False
    budget_s: _Budget = None
    confirm: Annotated[_Steps, Words("steps by which walks may move the answer (12; 6 for a mix)")] = None

    def answer(self, deployment: Deployment, options: WhatIfCommandOptions) -> Record:
        return smallest_pool(deployment, self.question(options), like=self.like, most=self.most)


@dataclass(frozen=True, kw_only=True)
class _CheapestMix(_Headroom, _Types):
    TITLE: ClassVar[str] = "a question for the cheapest mix"

    most_tried: _Tried = 100
    split: _Split = True
    leave_out: _LeaveOut = False
    budget_s: _Budget = None

    def answer(self, deployment: Deployment, options: WhatIfCommandOptions) -> Record:
        return cheapest_mix(deployment, self.types, self.question(options), most_tried=self.most_tried)


@dataclass(frozen=True, kw_only=True)
class _ParetoFront(_Load, _Types):
    TITLE: ClassVar[str] = "a question for the Pareto front"

    most_tried: _Tried = 200
    split: _Split = True
    budget_s: _Budget = None

    def answer(self, deployment: Deployment, options: WhatIfCommandOptions) -> Record:
        return pareto_front(deployment, self.types, self.question(options), most_tried=self.most_tried)


@dataclass(frozen=True, kw_only=True)
class _Survival(_Question):
    TITLE: ClassVar[str] = "a question for survival"

    nodes: Annotated[_Names, Words("nodes to lose; all unless given")] = None
    domain: Annotated[
        Annotated[str, String()] | None, Words("label of nodes that fail together; each alone unless given")
    ] = None
    place: Annotated[str, Enumeration(PLACES[1:]), Words("what may move (fill: what was lost)")] = "fill"
    rounds: Annotated[int, Number(least=0, most=1000, whole=True), Words("of the placement search")] = 2
    flow: _Flow = True

    def answer(self, deployment: Deployment, options: WhatIfCommandOptions) -> Record:
        return lose_each(deployment, **vars(self), seed=options.seed, mace_every=options.mace_every).answer


@dataclass(frozen=True, kw_only=True)
class _Growth(_Question):
    TITLE: ClassVar[str] = "a question for growth"

    queries: Annotated[_Names, Words("queries to grow one at a time; all unless given")] = None
    most: Annotated[float, Number(above=1), Words("largest factor looked at (16)")] = 16.0
    confirm: Annotated[int, INDEX, Words("walks that narrow a factor (5)")] = 5
    flow: _Flow = True

    def answer(self, deployment: Deployment, options: WhatIfCommandOptions) -> Record:
        return headroom_by_query(deployment, **vars(self), mace_every=options.mace_every)


_QUESTIONS: dict[str, type[_Question]] = {
    "smallest_pool": _SmallestPool,
    "cheapest_mix": _CheapestMix,
    "pareto": _ParetoFront,
    "survival": _Survival,
    "growth": _Growth,
}


def _read_question(name: str, parameters: Any, deployment: Deployment) -> _Question:
    """A question by name with its parameters, checked against a deployment; raises with every fault."""
    if name not in _QUESTIONS:
        allowed = suggestion(name, list(_QUESTIONS)) or f"; allowed: {', '.join(_QUESTIONS)}"
        raise DocumentError([Fault("find", f"find is {value_words(name)}{allowed}")], "question")
    faults: list[Fault] = []
    given = {} if parameters is None else parameters
    question = _QUESTIONS[name].read(given, "", _PARAMETERS, faults)
    if isinstance(given, Mapping):
        known = {field: value for field, value in given.items() if field in record_fields(_QUESTIONS[name])}
        faults += [*_factor_faults(known.get("factor", 1.0), deployment), *_like_faults(known.get("like"), deployment)]
        faults += _query_faults(known.get("queries"), deployment)
    if question is None or faults:
        raise DocumentError(faults, "question")
    return question


_PARAMETERS = "parameters"


def _factor_faults(factor: Any, deployment: Deployment) -> list[Fault]:
    known, faults = [source.id for source in deployment.sources], list[Fault]()
    if not isinstance(factor, dict):
        NOT_NEGATIVE.read(factor, _PARAMETERS, "factor", faults)
        return faults
    for name, by in factor.items():
        NOT_NEGATIVE.read(by, f"{_PARAMETERS}.factor", name, faults)
        if name not in (*known, "*"):
            faults.append(Fault(f"{_PARAMETERS}.factor.{name}", f"{name!r} is no source{suggestion(name, known)}"))
    return faults


def _like_faults(like: Any, deployment: Deployment) -> list[Fault]:
    if isinstance(like, dict):
        try:
            node_of(like, path=f"{_PARAMETERS}.like")
        except DocumentError as error:
            return list(error.faults)
    elif like is not None and like not in list(deployment.node_index):
        near = suggestion(str(like), list(deployment.node_index))
        return [Fault(f"{_PARAMETERS}.like", f"like is {value_words(like)}, which is no node{near}")]
    return []


def _query_faults(queries: Any, deployment: Deployment) -> Iterator[Fault]:
    for i, query in enumerate(queries if isinstance(queries, list) else ()):
        if isinstance(query, str) and query and query not in deployment.queries:
            message = f"item {i} is {query!r}, which is no query{suggestion(query, list(deployment.queries))}"
            yield Fault(f"{_PARAMETERS}.queries[{i}]", message)


def command(document: Any, options: WhatIfCommandOptions) -> dict[str, object]:
    """Compare ``changes`` or ``scenarios`` beside a deployment document, or answer the question of option `find`.

    With `find`, changes are applied first.
    """
    if not isinstance(document, Mapping):
        raise DocumentError([Fault("", f"the document is {value_words(document)}; allowed: an object")])
    beside = {name: document[name] for name in ("changes", "scenarios") if name in document}
    if len(beside) > 1:
        raise DocumentError([Fault("scenarios", "scenarios is given beside changes; allowed: one of them")])
    base = {name: value for name, value in document.items() if name not in beside}
    deployment = Deployment.parse(base, placed=False)
    if options.find is not None:
        if "scenarios" in beside:
            raise DocumentError([Fault("scenarios", "scenarios does not go with find; allowed: changes")])
        return _answered(deployment, beside.get("changes", []), options.find, options)
    if options.parameters is not None:
        raise OptionError("parameters are those of a question; name it with the option find")
    scenarios = what_if(
        deployment,
        _scenarios(beside, options.place),
        seed=options.seed,
        mace_every=options.mace_every,
        flow=options.flow,
        intervals=options.intervals,
        rounds=options.rounds,
    )
    return {"scenarios": [outcome.answer for outcome in scenarios]}


def _scenarios(beside: Mapping[str, object], place: str | None) -> Any:
    """The scenarios; a bare list of changes is compared with what is now."""
    if "scenarios" not in beside:
        changed = {"name": "changed", "changes": beside.get("changes", []), "place": place or "fill"}
        return [{"name": "now"}, changed]
    given = beside["scenarios"]
    if place is None or not isinstance(given, list):
        return given
    return [{"place": place} | item if isinstance(item, dict) else item for item in given]


def _answered(deployment: Deployment, changes: Any, find: str, options: WhatIfCommandOptions) -> dict[str, object]:
    changed = apply_each(deployment, changes)
    whole = changed.deployment
    # Sizes place whatever has no place themselves; the other questions are about what runs.
    if find in ("survival", "growth"):
        whole = place_unplaced(whole, options.place or PLACES[1], mace_every=options.mace_every, seed=options.seed)
    answer = _read_question(find, options.parameters, whole).answer(whole, options).to_dict()
    left_out = {"backlog": str(Fact("document.backlogs_left_out"))} if whole.backlogs else {}
    return {"find": find, "words": [str(applied.words) for applied in changed.changes], "answer": answer | left_out}
