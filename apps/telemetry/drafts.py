"""Creates a live query from a template: a draft to admit, and source, tables and arrivals where they are missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from apps.accounts.models import User
from apps.core.errors import Conflict, Fault, from_engine
from apps.fleet.models import Cluster
from apps.queries.arrivals.services import arrivals_create_from_counts, arrivals_fields_update
from apps.queries.models import Query
from apps.queries.services import query_create
from apps.telemetry.models import StaticTable, TelemetrySource
from apps.telemetry.sources import source_upsert, table_upsert
from engine.dataflow import Pipeline
from engine.dataflow.features import event_fields, operator_features
from engine.dataflow.templates import PipelineDraft, Template
from engine.dataflow.types import Type
from engine.document.elements import WINDOW_END
from engine.errors import DocumentError, OptionError

__all__ = ["live_query_describe", "made_of", "operators_of"]

#: How operators of pipelines are called in plans.
_KINDS = {"project": "map", "parse": "map", "buckets": "map"}


def made_of(template: Template, source: str | None, parameters: Mapping[str, float]) -> PipelineDraft:
    """The template filled in.

    Raises
    ------
    Malformed
        With a fault for each parameter.
    """
    try:
        return template(source or None, **parameters)
    except OptionError as error:
        raise from_engine(error) from error


@transaction.atomic
def live_query_describe(
    *,
    cluster: Cluster,
    template: Template,
    name: str,
    source: str,
    parameters: Mapping[str, float] | None = None,
    options: Mapping[str, object] | None = None,
    rate_eps: float = 100.0,
    objective: Mapping[str, object] | None = None,
    team: str = "",
    user: User | None = None,
) -> Query:
    """A draft of a query with expressions; nothing runs before it is admitted and started.

    A source of that name is used as it is if it has the columns that the template reads; otherwise it is made, with
    `options` for its collector. The same holds for static tables, which begin empty. Where nothing is known of the
    source's arrivals, `rate_eps` records a second are assumed until they are measured.

    Raises
    ------
    Malformed
        Parameters, options or the name have faults.
    Conflict
        The name is taken, or the source has other columns.
    """
    draft = made_of(template, source, parameters or {})
    _source(cluster, template, draft, options or {})
    for table, content in draft.document.get("tables", {}).items():
        if not StaticTable.objects.filter(cluster=cluster, name=table).exists():
            table_upsert(cluster=cluster, name=table, columns=content["columns"], rows=content["rows"])
    if not cluster.arrivals.filter(source_id=source).exists():
        arrivals = arrivals_create_from_counts(
            cluster=cluster,
            source_id=source,
            counts=[rate_eps * cluster.slice_s] * cluster.slices,
            description=f"Assumed for {name} until it is measured",
        )
        columns = {column: Type(kind) for column, kind in draft.document["source"]["columns"].items()}
        arrivals_fields_update(arrivals=arrivals, event_fields=event_fields(columns))
    body = {"operators": operators_of(draft)}
    note = f"From the template {template.title}"
    return query_create(
        cluster=cluster, name=name, body=body, objective=objective, team=team, note=note[:200], user=user
    )


def _source(cluster: Cluster, template: Template, made: PipelineDraft, options: Mapping[str, object]) -> None:
    declared = made.document["source"]
    existing = TelemetrySource.objects.filter(cluster=cluster, source_id=declared["id"]).first()
    if existing is None:
        source_upsert(
            cluster=cluster,
            source_id=declared["id"],
            kind=template.collector,
            time=declared["time"],
            columns=declared["columns"],
            options=dict(options),
        )
        return
    lacking = [name for name, kind in declared["columns"].items() if existing.columns.get(name) != kind]
    if lacking or existing.time != declared["time"]:
        said = ", ".join(lacking) or f"{declared['time']} as its time"
        message = f"source is {existing.source_id!r}, which does not have {said}; allowed: another name"
        raise Conflict(f"source: {message}.", [Fault("source", message)])


def operators_of(made: PipelineDraft) -> list[dict[str, object]]:
    """Operators of a template as in a query's document, with assumed statistics."""
    try:
        pipeline = Pipeline.parse(made.document)
    except DocumentError as error:
        raise from_engine(error) from error
    window = pipeline.window
    before = made.document["source"]["id"]
    operators = []
    for operator, assumed, declared in zip(pipeline.operators, made.assumed, made.document["operators"], strict=True):
        statistics = {"selectivity": assumed.selectivity, "cycles_per_event": assumed.cycles_per_record}
        entry: dict[str, Any] = {
            "id": operator.id,
            "kind": _KINDS.get(operator.kind, operator.kind),
            "stateless": not operator.stateful,
            "bytes_per_event": assumed.bytes_per_record,
            "inputs": [{"from": before, **statistics}],
            "expression": declared["expression"],
            **operator_features(operator),
        }
        if operator.stateful and window is not None:
            slides = window.slide_us != window.size_us
            entry["window"] = {
                "policy": "time",
                "type": "sliding" if slides else "tumbling",
                "size": window.size_us / 1e6,
                **({"slide": window.slide_us / 1e6} if slides else {}),
                "measured_from": WINDOW_END,
            }
        operators.append(entry)
        before = operator.id
    return operators
