"""Decisions and proposals as exports: an imported query, where it runs and where it was decided to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from apps.admission.choices import AdmissionState
from apps.admission.decisions import is_passing, placement_now, placement_of
from apps.admission.models import AdmissionRequest
from apps.connections.choices import ConnectionEngine
from apps.connections.models import ImportedJob
from apps.core.errors import Impossible, Malformed, Missing
from apps.planning.models import PlacementRun
from apps.planning.parallelism import parallelism_latest
from apps.planning.placement_search import stored_proposal
from apps.queries.models import Query, QueryVersion
from apps.queries.selectors import cluster_memory, row_need_bytes
from engine.admission.changes import rate_share_in, start_s_in
from engine.connectors.answers import number_of
from engine.connectors.picture import Place
from engine.document.elements import Replica
from engine.exports.export import DecidedJob, DecidedOperator, EngineExport, ExportNote, KubernetesTarget
from engine.exports.flink import flink_export
from engine.exports.spark import spark_export

__all__ = [
    "PARTS",
    "admission_export",
    "export_part",
    "parallelism_export",
    "placement_export",
    "placement_queries",
]

_WRITERS = {"flink": flink_export, "spark": spark_export}
#: Parts of an export that can be read on their own.
PARTS = ("all", "settings", "patch", "calls", "program")
_TRIGGER = "trigger_s"


def admission_export(request: AdmissionRequest, *, engine: str = "") -> EngineExport:
    """The decision on an imported query in terms of its engine.

    Raises
    ------
    Impossible
        The query was not imported from an engine, or the decision places it nowhere.
    """
    decision = request.decision
    after = placement_of(request.query, decision) if decision is not None else {}
    if decision is None or not after:
        message = f"The request on {request.version} has no placement to export: {request.get_state_display().lower()}."
        raise Impossible(message, [("admission", "has no placement")], code="nothing_to_export")
    is_applied = request.state == AdmissionState.APPLIED
    before = request.placed_before if is_applied else placement_now(request.query)
    notes = ()
    if not (is_passing(request) or is_applied):
        message = f"The verdict is {request.get_verdict_display().lower()}: nothing of this was admitted."
        notes = (ExportNote("lost", "verdict", request.query.name, message),)
    return _export(
        request.query,
        request.version,
        before,
        after,
        engine,
        share=rate_share_in(decision.changes),
        start_s=start_s_in(decision.changes),
        notes=notes,
    )


def placement_queries(run: PlacementRun) -> list[str]:
    """Names of the imported queries that a proposal places, in order."""
    proposal = stored_proposal(run)
    names = {operator.partition("/")[0] for operator in (proposal.placement if proposal else ())}
    rows = ImportedJob.objects.filter(query__cluster=run.cluster, query__name__in=names)
    return sorted(rows.values_list("query__name", flat=True))


def placement_export(run: PlacementRun, *, query: str = "", engine: str = "") -> EngineExport:
    """A proposal for one of its imported queries in terms of the query's engine.

    Raises
    ------
    Malformed
        It places several imported queries, and none was named.
    Missing
        It places no query of that name.
    Impossible
        The query was not imported, or there is no proposal.
    """
    proposal = stored_proposal(run)
    if proposal is None or not proposal.placement:
        raise Impossible("The run has no proposal to export.", [("placement", "is none")], code="nothing_to_export")
    imported = placement_queries(run)
    if not query and len(imported) > 1:
        raise Malformed(f"query: name one of {', '.join(imported)}.", [("query", f"allowed: {', '.join(imported)}")])
    if not query and not imported:
        raise Impossible("None of its queries was imported from an engine.", code="not_imported")
    name = query or imported[0]
    row = run.cluster.queries.select_related("running_version").filter(name=name).first()
    after = {
        operator.partition("/")[2]: [asdict(replica) for replica in replicas]
        for operator, replicas in proposal.placement.items()
        if operator.startswith(f"{name}/")
    }
    if row is None or not after:
        raise Missing(f"The proposal places no query {name!r}.", [("query", f"{name!r} is not placed by it")])
    moved = {move.operator.removeprefix(f"{name}/"): move.before for move in run.moves.filter(query=name)}
    return _export(row, row.running_version, {**after, **moved}, after, engine, share=row.rate_share)


def parallelism_export(query: Query, parallelism: int, *, engine: str = "") -> EngineExport:
    """A parallelism of a query's newest plan in terms of its engine.

    Raises
    ------
    Missing
        There is no plan of its parallelism.
    Malformed
        The plan did not look at that parallelism.
    Impossible
        The query was not imported, runs otherwise than when it was planned, or the parallelism needs more slots than
        there are.
    """
    kept = parallelism_latest(query)
    if kept is None:
        raise Missing(f"Query {query.name} has no plan of its parallelism yet.")
    choice = kept.plan.choice(parallelism)
    if choice is None:
        allowed = ", ".join(str(entry.parallelism) for entry in kept.plan.choices)
        message = f"parallelism is {parallelism}; allowed: one of the plan, {allowed}"
        raise Malformed(f"{message[0].upper()}{message[1:]}.", [("parallelism", message)])
    if choice.slots_short:
        raise Impossible(choice.words, [("parallelism", choice.words)], code="nothing_to_export")
    if kept.is_stale:
        message = f"The plan of {query.name} is of another version, placement or drain than now; ask for another plan."
        raise Impossible(message, [("query", "runs otherwise than it was planned")], code="nothing_to_export")
    before = placement_now(query)
    after = dict(before)
    for name, replicas in choice.placement.items():
        after[name.removeprefix(f"{query.name}/")] = [asdict(replica) for replica in replicas]
    counts = {name.removeprefix(f"{query.name}/"): count for name, count in choice.operators.items()}
    notes = tuple(ExportNote("info", "parallelism", query.name, str(note)) for note in choice.notes)
    return _export(
        query, query.running_version, before, after, engine, share=query.rate_share, notes=notes, parallelism=counts
    )


def export_part(export: EngineExport, part: str = "all", *, is_reverse: bool = False) -> Any:
    """An export whole, or one of its `PARTS` in one direction."""
    if part == "all":
        return export.to_dict()
    return (export.reverse if is_reverse else export.apply).to_dict()[part]


def _export(
    query: Query,
    version: QueryVersion | None,
    before: Mapping[str, Any],
    after: Mapping[str, object],
    engine: str,
    *,
    share: float,
    start_s: float = 0.0,
    notes: tuple[ExportNote, ...] = (),
    parallelism: Mapping[str, int] | None = None,
) -> EngineExport:
    job = ImportedJob.objects.select_related("connection", "version", "query__cluster").filter(query=query).first()
    if job is None:
        message = f"Query {query.name} was not imported from an engine: there is nothing to export to."
        raise Impossible(message, [("query", "was not imported")], code="not_imported")
    kind = engine or _engine_of(job)
    writer = _WRITERS.get(kind)
    if writer is None:
        allowed = ", ".join(_WRITERS)
        raise Malformed(f"engine is {kind!r}; allowed: {allowed}.", [("engine", f"it is {kind!r}; allowed: {allowed}")])
    return writer(
        _decided_job(
            job, version, before, after, share=share, start_s=start_s, notes=notes, parallelism=parallelism or {}
        )
    )


def _engine_of(job: ImportedJob) -> str:
    """Its connection's; what Prometheus and Kafka's lag are asked of is Flink."""
    return "spark" if job.connection.engine == ConnectionEngine.SPARK else "flink"


def _decided_job(
    job: ImportedJob,
    version: QueryVersion | None,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    *,
    share: float,
    start_s: float,
    notes: tuple[ExportNote, ...],
    parallelism: Mapping[str, int],
) -> DecidedJob:
    vertices: Mapping[str, str] = job.vertices
    sources = _source_operators(version)
    look = job.connection.kept_look
    running = (row.operators for row in look.jobs if row.id == job.engine_id) if look else ()
    shown = {row.id: row for row in next(iter(running), ())}
    parallelism = {vertex: row.parallelism for vertex, row in shown.items()}
    rows = () if version is None else version.operators.all()
    needs = {row.name: row_need_bytes(row.kind, row.stateless, row.extra) for row in rows}
    memory = cluster_memory(job.query.cluster, without=job.query)
    operators = tuple(
        DecidedOperator(
            name,
            vertices.get(name),
            _replicas(before.get(name) or ()),
            _replicas(replicas),
            is_source=name in sources,
            slot_group=shown[vertices[name]].slot_group if vertices.get(name) in shown else None,
            parallelism=parallelism.get(name),
            need_bytes=needs.get(name),
        )
        for name, replicas in after.items()
    )
    if version is not None and job.version_id != version.pk:
        message = (
            f"The decision is on {version}, the engine runs {job.version or 'another version'}: vertices are joined by "
            "the operators' names."
        )
        notes = (*notes, ExportNote("assumed", "version", job.name, message))
    settings = {name: str(value) for name, value in job.settings.items() if isinstance(value, str | int | float)}
    return DecidedJob(
        id=job.engine_id,
        name=job.name,
        operators=operators,
        parallelism_now=parallelism,
        places=_places(job, look.places if look else ()),
        settings=settings,
        rate_share=share,
        rate_eps=_rate_eps(version),
        trigger_s=number_of(settings.get(_TRIGGER)),
        start_s=start_s,
        target=_target(settings),
        notes=notes,
        memory_left={node: entry.free_bytes for node, entry in memory.items() if entry.free_bytes is not None},
    )


def _source_operators(version: QueryVersion | None) -> set[str]:
    if version is None:
        return set()
    return set(version.operators.exclude(inputs__source_id="").values_list("name", flat=True))


def _replicas(parts: Sequence[Any]) -> tuple[Replica, ...]:
    return tuple(Replica(**part) for part in parts)


def _places(job: ImportedJob, places: Iterable[Place]) -> dict[str, Place]:
    """Places of the connection's last look by the name of their node; those that it did not show are left out."""
    seen = {place.id: place for place in places}
    return {node: replace(seen[id_], name=node) for node, id_ in job.places.items() if id_ in seen}


def _rate_eps(version: QueryVersion | None) -> float | None:
    """Mean events/s of the sources that a version reads; None where one of them is not known."""
    if version is None:
        return None
    names = set(version.operators.exclude(inputs__source_id="").values_list("inputs__source_id", flat=True)) - {""}
    rows = list(version.query.cluster.arrivals.filter(source_id__in=names))
    return sum(row.mean_eps for row in rows) if rows and len(rows) == len(names) else None


def _target(settings: Mapping[str, str]) -> KubernetesTarget | None:
    """The object that runs it, where the engine's settings tell: Flink on Kubernetes knows its own name."""
    name = settings.get("kubernetes.cluster-id")
    return KubernetesTarget(name, settings.get("kubernetes.namespace", "")) if name else None
