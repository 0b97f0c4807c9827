"""Bodies of queries: through the engine's parser into rows of operators, and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.utils import timezone

from apps.core.errors import Fault, Malformed, fault_count, from_engine, join_path
from apps.core.limits import MAX_ELEMENT_NAME, MAX_SAMPLE_EVENTS
from apps.fleet.choices import CostEvidence, CycleUnit
from apps.fleet.models import Cluster
from apps.queries.models import Operator, OperatorInput, Query, QueryVersion
from engine.document.cycles import operator_unit
from engine.document.deployment import Deployment
from engine.document.elements import Operator as EngineOperator
from engine.document.export import operator_document
from engine.document.kinds import COST_NOISE as COST_NOISE_NAMES
from engine.errors import DocumentError

__all__ = [
    "COST_NOISE_NAMES",
    "Surroundings",
    "body_parse",
    "cost_noise_of",
    "evidence_of",
    "latest_version",
    "operators_store",
    "version_body",
    "with_operators",
]

_BATCH = 2000  # rows of one statement
_MAX_AGE_S = 1e9  # some thirty years; much older moments are before the calendar begins
_KEPT = ("filter", "join", "aggregate", "window", "state_bytes", "state_on_disk", "tuple_values_in", "tuple_values_out")
_KEPT += ("trigger", "buffer_timeout_s", "reads", "writes", "expression", "unread", "waits_outside", "measured_s")
_KEPT += ("cost_by", "keyed", "quiet_share", "checkpoint", "marginal_cost")


def with_operators(versions: QuerySet[QueryVersion]) -> QuerySet[QueryVersion]:
    """Versions with operators and inputs fetched: three statements, however many there are."""
    inputs = Prefetch("inputs", OperatorInput.objects.select_related("upstream"))
    return versions.select_related("query").prefetch_related(
        Prefetch("operators", Operator.objects.prefetch_related(inputs))
    )


class Surroundings:
    """Sources and nodes of a cluster, which bodies of queries may name; read once for however many bodies."""

    def __init__(self, cluster: Cluster) -> None:
        rows = cluster.nodes.values("name", "capacity_cps", "cores", "cycle_unit", "cycles_per_ns")
        nodes = ({"id": row.pop("name"), **row} for row in rows)
        self.cluster = cluster
        self.nodes = {str(node["id"]): node for node in nodes}
        self.sources = set(cluster.arrivals.values_list("source_id", flat=True))

    def document(self, operators: Sequence[Any], *, of: Sequence[Any] | None = None) -> dict[str, Any]:
        """A document of operators with all sources and nodes, or with those alone that other operators name."""
        named = self.sources | self.nodes.keys() if of is None else _texts(of)
        return {
            "subinterval_s": self.cluster.subinterval_s,
            "subintervals": 1,
            "sources": [{"id": name, "arrivals": [0.0]} for name in sorted(self.sources & named)],
            "nodes": [node for name, node in self.nodes.items() if name in named],
            "operators": operators,
        }


def _texts(value: Any) -> set[str]:
    """Every text in a body."""
    if isinstance(value, str):
        return {value}
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return set().union(*map(_texts, parts))


def body_parse(
    cluster: Cluster, body: Any, *, query: str, path: str = "", surroundings: Surroundings | None = None
) -> tuple[EngineOperator, ...]:
    """The operators of a query's body `{"operators": […]}`, by the rules and in the words of the deployment document.

    Sources and nodes are those of the cluster, read unless they are given; a node is optional. `path` is where the
    body stands in the request.

    Raises
    ------
    Malformed
        With every fault.
    """
    if not isinstance(body, Mapping):
        raise Malformed("The query is not an object.", [(path, 'allowed: an object such as {"operators": [...]}')])
    faults = [
        Fault(join_path(path, str(key)), "unknown field; allowed is operators") for key in body if key != "operators"
    ]
    operators = body.get("operators")
    if not isinstance(operators, Sequence) or isinstance(operators, str) or not operators:
        faults.append(
            Fault(join_path(path, "operators"), "operators is missing or empty; allowed: a list of operators")
        )
        raise _refusal(faults)
    known = surroundings or Surroundings(cluster)
    try:
        parsed = _parse_operators(known, operators)
    except DocumentError as error:
        raise _refusal([*faults, *from_engine(error, path).faults]) from None
    for i, operator in enumerate(parsed):
        faults += _own_faults(operator, query, join_path(path, f"operators[{i}]"))
    if faults:
        raise _refusal(faults)
    return parsed


def _refusal(faults: Sequence[Fault]) -> Malformed:
    return Malformed(f"The query has {fault_count(faults)}; first: {faults[0].path}: {faults[0].message}", faults)


def _parse_operators(known: Surroundings, operators: Sequence[Any]) -> tuple[EngineOperator, ...]:
    """Operators among what they name alone; with a fault, among everything there is, for faults say what is allowed."""
    try:
        return Deployment.parse(known.document(operators, of=operators), placed=False).operators
    except DocumentError:
        return Deployment.parse(known.document(operators), placed=False).operators


def _own_faults(operator: EngineOperator, query: str, path: str) -> list[Fault]:
    """Rules of the console beyond the document's."""
    faults = []
    if len(operator.id) > MAX_ELEMENT_NAME:
        faults.append(Fault(f"{path}.id", f"id has {len(operator.id)} characters; allowed: {MAX_ELEMENT_NAME}"))
    if operator.evidence and operator.evidence.events > MAX_SAMPLE_EVENTS:
        message = f"events is {operator.evidence.events:g}; allowed: at most {MAX_SAMPLE_EVENTS:g}"
        faults.append(Fault(f"{path}.evidence.events", message))
    if operator.evidence and (operator.evidence.age_s or 0) > _MAX_AGE_S:
        message = f"age_s is {operator.evidence.age_s:g}; allowed: at most {_MAX_AGE_S:g}"
        faults.append(Fault(f"{path}.evidence.age_s", message))
    if operator.query not in (None, query):
        faults.append(Fault(f"{path}.query", f"query is {operator.query!r}; allowed: {query!r} or nothing"))
    return faults


def operators_store(versions: Sequence[tuple[QueryVersion, Sequence[EngineOperator]]]) -> list[list[Operator]]:
    """Write the rows of new versions' operators and inputs, in batches; the operators of each version."""
    rows = [[_operator_row(version, i, each) for i, each in enumerate(operators)] for version, operators in versions]
    Operator.objects.bulk_create((row for listed in rows for row in listed), batch_size=_BATCH)
    OperatorInput.objects.bulk_create(
        (
            entry
            for listed, (_, operators) in zip(rows, versions, strict=True)
            for entry in _input_rows(listed, operators)
        ),
        batch_size=_BATCH,
    )
    return rows


def _input_rows(rows: Sequence[Operator], operators: Sequence[EngineOperator]) -> Iterator[OperatorInput]:
    by_name = {row.name: row for row in rows}
    for row, operator in zip(rows, operators, strict=True):
        document = operator_document(operator)["inputs"]
        for position in range(len(operator.inputs)):
            yield _input_row(by_name, row, position, operator, document[position])


def _operator_row(version: QueryVersion, position: int, operator: EngineOperator) -> Operator:
    document = operator_document(operator)
    return Operator(
        version=version,
        position=position,
        name=operator.id,
        kind=operator.kind or "other",
        stateless=operator.stateless,
        bytes_per_event=operator.bytes_per_event,
        requested=[{"node": r.node, "core": r.core, "fraction": r.fraction} for r in operator.replicas],
        extra={name: document[name] for name in _KEPT if name in document},
    )


def _input_row(
    rows: Mapping[str, Operator], row: Operator, position: int, operator: EngineOperator, document: Mapping[str, Any]
) -> OperatorInput:
    entry, evidence = operator.inputs[position], operator.evidence
    upstream = rows.get(entry.source)
    age_s = evidence.age_s if evidence else None
    kind = evidence.kind if evidence else CostEvidence.ASSUMED
    return OperatorInput(
        operator=row,
        position=position,
        upstream=upstream,
        source_id="" if upstream else entry.source,
        selectivity=entry.selectivity,
        cycles_per_event=document.get("cycles_per_event"),
        model=document.get("model"),
        evidence=CostEvidence.PREDICTED if entry.never_ran and kind != CostEvidence.UNKNOWN else kind,
        events=round(evidence.events) if evidence else 0,
        measured_at=None if age_s is None else timezone.now() - timedelta(seconds=age_s),
        batches=document.get("batches", []),
        cycle_unit=operator_unit(operator),
        **{name: getattr(entry, name) for name in COST_NOISE_NAMES},
    )


def cost_noise_of(entry: OperatorInput) -> dict[str, float]:
    """Variation of the cost of an input, as fields of a document's input; what is not known is left out."""
    noise = ((name, getattr(entry, name)) for name in COST_NOISE_NAMES)
    return {name: value for name, value in noise if value is not None}


def version_body(version: QueryVersion) -> dict[str, Any]:
    """The body that makes the same version again: operators by their bare names, statistics with their evidence."""
    return {"operators": [_operator_body(row) for row in version.operators.all()]}


def _operator_body(row: Operator) -> dict[str, Any]:
    inputs = list(row.inputs.all())
    body: dict[str, object] = {"id": row.name, "kind": row.kind, "inputs": [_input_body(entry) for entry in inputs]}
    body |= {"bytes_per_event": row.bytes_per_event} | ({} if row.stateless is None else {"stateless": row.stateless})
    body |= row.extra | _requested(row)
    evidence = evidence_of(inputs)
    if evidence != {"kind": CostEvidence.ASSUMED, "events": 0}:
        body["evidence"] = evidence
    return body


def _requested(row: Operator) -> dict[str, Any]:
    if len(row.requested) == 1 and row.requested[0]["fraction"] == 1.0:
        return {"node": row.requested[0]["node"], "core": row.requested[0]["core"]}
    return {"split": row.requested} if row.requested else {}


def _input_body(entry: OperatorInput) -> dict[str, Any]:
    body: dict[str, object] = {
        "from": entry.upstream.name if entry.upstream else entry.source_id,
        "selectivity": entry.selectivity,
        "cycles_per_event": entry.cycles_per_event,
        "model": entry.model,
        "batches": entry.batches,
    }
    return {name: value for name, value in body.items() if value not in (None, [], {})} | cost_noise_of(entry)


_WEAKEST_FIRST = (CostEvidence.UNKNOWN, CostEvidence.ASSUMED, CostEvidence.PREDICTED, CostEvidence.MEASURED)
_RANKS = {kind: rank for rank, kind in enumerate(_WEAKEST_FIRST)}


def evidence_of(inputs: Iterable[OperatorInput]) -> dict[str, Any]:
    """An operator's evidence is that of its least known input: its kind, and the fewest events."""
    weakest = min(inputs, key=lambda entry: (_RANKS[CostEvidence(entry.evidence)], entry.events), default=None)
    if weakest is None:
        return {"kind": CostEvidence.ASSUMED.value, "events": 0}
    # Without its age: what is shown of a version must not change with the clock alone.
    unit = {} if weakest.cycle_unit == CycleUnit.NOMINAL else {"cycle_unit": str(weakest.cycle_unit)}
    return {"kind": str(weakest.evidence), "events": weakest.events, **unit}


def latest_version(query: Query) -> QueryVersion | None:
    """The newest version, with its operators."""
    return with_operators(QueryVersion.objects.filter(query=query)).order_by("-number").first()
