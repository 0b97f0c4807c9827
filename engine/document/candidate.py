"""Candidates: queries that ask to be admitted, read by the rules of the document and against what runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import numpy as np

from engine.document.checks import DeploymentParts, UnreadReference, check_parts, find_excessive_rates
from engine.document.cycles import CYCLE_UNITS, convert_operators
from engine.document.deployment import Deployment
from engine.document.elements import Objective, Operator, Source
from engine.document.kinds import (
    CYCLE_UNIT,
    ID,
    MAX_OPERATORS,
    MAX_SOURCES,
    NOT_NEGATIVE,
    POSITIVE,
    PRIORITY,
    STATISTIC,
)
from engine.document.reader import OperatorRecord, collect_references, faulty_items, read_operators, with_unit
from engine.document.relatives import RelativeCost, Relatives
from engine.document.translation import source_rates, stream_rates, with_nominal_costs
from engine.errors import DocumentError, Fault, join_path
from engine.kinds import NumberSeries
from engine.records import BAD, ItemCount, Record, Words

__all__ = ["Candidate", "CandidateRecord", "parse_candidate", "read_candidate"]


@dataclass(frozen=True)
class CandidateBound(Record):
    """The latency objective of a candidate."""

    TITLE: ClassVar[str] = "an objective"

    statistic: Annotated[str, STATISTIC]
    bound_s: Annotated[float, POSITIVE]


@dataclass(frozen=True, kw_only=True)
class CandidateRecord(Record):
    """A query that asks to be admitted."""

    TITLE: ClassVar[str] = "a candidate"
    JUDGES_PARTS: ClassVar[bool] = True

    query: Annotated[str, ID]
    operators: Annotated[tuple[OperatorRecord, ...], ItemCount(1, MAX_OPERATORS)]
    sources: Annotated[tuple[Source, ...], ItemCount(most=MAX_SOURCES)] = ()
    objective: CandidateBound | None = None
    priority: Annotated[int, PRIORITY] = 0
    may_wait_s: Annotated[float, NOT_NEGATIVE] = 0.0
    cycle_unit: Annotated[Annotated[str, CYCLE_UNIT] | None, Words("unit of costs that name none; nominal")] = None
    relatives: Annotated[
        tuple[RelativeCost, ...],
        ItemCount(most=MAX_OPERATORS),
        Words("costs of operators of queries that run no more, for those of its own that never ran"),
    ] = ()


@dataclass(frozen=True)
class Candidate:
    """A query, its operators (placed or not), the sources it brings, and what it asks for."""

    query: str
    operators: tuple[Operator, ...]
    sources: tuple[Source, ...] = ()
    objective: Objective | None = None
    priority: int = 0
    may_wait_s: float = 0.0
    pins: Mapping[str, str] = field(default_factory=dict)  #: node of each operator whose core is still to be chosen


def parse_candidate(document: Any, running: Deployment, *, path: str = "candidate") -> Candidate:
    """Read a candidate that is to join `running`; its operators may lack nodes and belong to its query.

    Parameters
    ----------
    document : mapping
        ``query``, ``operators``, and optionally ``sources``, ``objective`` (statistic, bound_s), ``priority``,
        ``may_wait_s``.
    running : Deployment
        What the candidate's inputs, nodes and number of subintervals refer to.
    path : str
        What the paths of faults begin with.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    unit = document.get("cycle_unit") if isinstance(document, Mapping) else None
    if unit in CYCLE_UNITS:
        document = {**document, "operators": with_unit(document.get("operators"), unit)}
    record = CandidateRecord.read_parts(document, "", path, faults)
    if record is BAD:
        raise DocumentError(faults, "candidate")
    items = () if record.operators is BAD else record.operators
    listed = () if record.sources is BAD else record.sources
    where, faulty = join_path(path, "operators"), faulty_items(faults, join_path(path, "sources"))
    sources = [None if i in faulty else source for i, source in enumerate(listed)]
    operators = read_operators(items, where, faults, placed=False)
    operators = convert_operators(operators, running.nodes, where, faults)
    query = record.query
    owned = [_assign_query(op, query, f"{where}[{i}]", faults) for i, op in enumerate(operators)]
    ids = {item.id for item in items if item is not BAD and item.id is not BAD}
    references = collect_references(items, operators, where)
    faults += _join_faults(running, sources, owned, path, ids, references)
    if query is not BAD and query in running.query_index:
        faults.append(Fault(f"{path}.query", f"query {query!r} is running already; allowed: a new name"))
    if faults:
        raise DocumentError(faults, "candidate")
    brought = tuple(source for source in sources if source)
    joining = tuple(operator for operator in owned if operator)
    if any(operator.never_ran for operator in joining):
        above = running.with_above(entry.source for operator in joining for entry in operator.inputs)
        known = source_rates((*above[0], *brought), running.subinterval_s)
        known = stream_rates(above[1], known, running.subinterval_s)
        corrected = Relatives(running, record.relatives).corrected
        joining = with_nominal_costs(
            joining, known, running.subinterval_s, running.nodes, corrected, running.stream_processor
        )
    return Candidate(
        query=query,
        operators=joining,
        sources=brought,
        objective=None if record.objective is None else Objective(query, **vars(record.objective)),
        priority=record.priority,
        may_wait_s=record.may_wait_s,
    )


def _assign_query(operator: Operator | None, query: Any, path: str, faults: list[Fault]) -> Operator | None:
    """The operator as one of `query`."""
    if operator is None or query is BAD:
        return operator
    if operator.query not in (None, query):
        faults.append(Fault(f"{path}.query", f"query is {operator.query!r}; allowed: {query!r} or nothing"))
    return replace(operator, query=query)


def _join_faults(
    running: Deployment,
    sources: list[Source | None],
    operators: list[Operator | None],
    path: str,
    ids: set[str],
    references: list[UnreadReference],
) -> list[Fault]:
    """Faults of the whole once the candidate has joined; paths are turned into those of the candidate.

    Only what the candidate names can be at fault with it; where something is, the whole is looked at, which can say
    what else there is.
    """
    named = [element.id for element in (*sources, *operators) if element]
    named += [entry.source for operator in operators if operator for entry in operator.inputs]
    near = running.with_above([*named, *(reference.name for reference in references)])
    of_all = list(running.sources), list(running.operators)
    found: list[Fault] = []
    for known in (near, of_all):
        found = _faults_with(running, known, sources, operators, ids, references)
        if not found:
            return []
    counts = {"sources": len(running.sources), "operators": len(running.operators)}
    return [Fault(_shift_path(fault.path, counts, path), fault.message) for fault in found]


def _faults_with(
    running: Deployment,
    known: tuple[list[Source], list[Operator]],
    sources: list[Source | None],
    operators: list[Operator | None],
    ids: set[str],
    references: list[UnreadReference],
) -> list[Fault]:
    parts = DeploymentParts(
        running.subintervals,
        (*known[0], *sources),
        running.nodes,
        (*known[1], *operators),
        broken=ids - {operator.id for operator in operators if operator},
        references=references,
        subinterval_s=running.subinterval_s,
    )
    check_parts(parts)
    if not parts.faults and None not in (*sources, *operators):
        parts.faults += find_excessive_rates(
            [*known[0], *(source for source in sources if source)],
            running.nodes,
            [*known[1], *(operator for operator in operators if operator)],
            running.subinterval_s,
        )
    return parts.faults


def _shift_path(fault_path: str, counts: dict[str, int], path: str) -> str:
    """``operators[7].x`` of the whole is ``candidate.operators[2].x`` where 5 operators are running."""
    section, _, rest = fault_path.partition("[")
    if section not in counts:
        return fault_path
    number, _, tail = rest.partition("]")
    return f"{path}.{section}[{int(number) - counts[section]}]{tail}"


def read_candidate(document: Any, running: Deployment, *, path: str = "candidate") -> Candidate:
    """Read a candidate; it may repeat a running source as long as the arrivals are the same.

    Raises
    ------
    DocumentError
        With every fault, each with its path under `path`.
    """
    repeated = _repeated_sources(document, running)
    faults = [
        Fault(
            f"{path}.sources[{i}].arrivals",
            f"arrivals of {source.id!r} are not those of the running source; allowed: the same, or a new id",
        )
        for i, source in repeated.items()
        if not _same_arrivals(document["sources"][i].get("arrivals"), source)
    ]
    names = {source.id for source in repeated.values()}
    others = running
    if names:
        others = replace(running, sources=tuple(source for source in running.sources if source.id not in names))
    try:
        candidate = parse_candidate(document, others, path=path)
    except DocumentError as error:
        raise DocumentError([*faults, *error.faults], "candidate") from None
    if faults:
        raise DocumentError(faults, "candidate")
    return replace(candidate, sources=tuple(source for source in candidate.sources if source.id not in names))


def _repeated_sources(document: Any, running: Deployment) -> dict[int, Source]:
    """Running sources that the candidate lists again (once each), by their position in its list."""
    listed = document.get("sources") if isinstance(document, Mapping) else None
    known = running.source_index
    repeated: dict[int, Source] = {}
    for i, item in enumerate(listed if isinstance(listed, (list, tuple)) else ()):
        name = item.get("id") if isinstance(item, Mapping) else None
        if isinstance(name, str) and name in known:
            repeated[i] = running.sources[known[name]]
    return repeated


def _same_arrivals(arrivals: Any, source: Source) -> bool:
    """Whether `given` equals the arrivals of `source`; values that are no series are reported elsewhere."""
    read = NumberSeries().read(arrivals, "", "arrivals", [])
    return read is BAD or np.array_equal(read, source.arrivals)
