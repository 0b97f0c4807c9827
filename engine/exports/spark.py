"""Decisions for Spark: executors, shuffle partitions, limits per trigger, a patch for `SparkApplication`.

Sources: Spark's configuration (`spark.executor.*`, `spark.sql.shuffle.partitions`), the Kafka source's option
`maxOffsetsPerTrigger`, and the custom resource `sparkoperator.k8s.io/v1beta2`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from engine.exports.export import (
    DecidedJob,
    DecidedOperator,
    EngineExport,
    EngineSettings,
    ExportedJob,
    ExportedOperator,
    ExportNote,
    ProgramSettings,
    common_notes,
    is_uneven,
    kubernetes_metadata,
    uneven_note,
)

__all__ = ["spark_export"]

INSTANCES = "spark.executor.instances"
CORES = "spark.executor.cores"
MEMORY = "spark.executor.memory"
SHUFFLE = "spark.sql.shuffle.partitions"


def spark_export(job: DecidedJob) -> EngineExport:
    """A decision as settings of Spark, and what puts the job back as it was.

    Executors are the nodes that the decision uses, their cores those that it uses there, shuffle partitions the most
    replicas of an operator that is no source. Where single tasks run is Spark's own choice: a note says so.
    """
    notes = common_notes(job, job.operators)
    known = [operator for operator in job.operators if operator.vertex is not None]
    before, after = _settings(job, known, is_after=False), _settings(job, known, is_after=True)
    metadata = kubernetes_metadata(job, notes)
    program_before, program_after = _limits(job, known, notes)
    notes += _notes(job, known, before, after)
    return EngineExport(
        engine="spark",
        job=ExportedJob(job.id, job.name),
        operators=tuple(
            ExportedOperator(
                operator.name,
                operator.vertex,
                len(operator.before) or None,
                len(operator.after) or None,
                operator.after,
            )
            for operator in job.operators
        ),
        apply=EngineSettings(after, program_after, (), _patch(metadata, after)),
        reverse=EngineSettings(before, program_before, (), _patch(metadata, before)),
        notes=tuple(notes),
    )


def _settings(job: DecidedJob, operators: Sequence[DecidedOperator], *, is_after: bool) -> dict[str, str | None]:
    """Settings of one direction. What was set before is put back; what was not set, or is not known, is removed."""
    wanted = _wanted(operators, is_after=True)
    if is_after:
        return {**wanted, **({MEMORY: job.settings[MEMORY]} if wanted and MEMORY in job.settings else {})}
    ran = _wanted(operators, is_after=False)
    told = {name: job.settings.get(name, ran.get(name)) for name in wanted}
    return {**told, **({MEMORY: job.settings[MEMORY]} if wanted and MEMORY in job.settings else {})}


def _wanted(operators: Sequence[DecidedOperator], *, is_after: bool) -> dict[str, str | None]:
    cores: dict[str, set[int]] = defaultdict(set)
    shuffle = 0
    for operator in operators:
        replicas = operator.after if is_after else operator.before
        for replica in replicas:
            cores[replica.node].add(replica.core)
        if not operator.is_source:
            shuffle = max(shuffle, (operator.parallelism if is_after else None) or len(replicas))
    if not cores:
        return {}
    settings: dict[str, str | None] = {
        INSTANCES: str(len(cores)),
        CORES: str(max(max(used) + 1 for used in cores.values())),
    }
    return {**settings, **({SHUFFLE: str(shuffle)} if shuffle else {})}


def _limits(
    job: DecidedJob, operators: Sequence[DecidedOperator], notes: list[ExportNote]
) -> tuple[dict[str, ProgramSettings], dict[str, ProgramSettings]]:
    """Settings of the program, before and after: the trigger, and limits of its sources for a share of events."""
    before: dict[str, ProgramSettings] = {}
    after: dict[str, ProgramSettings] = {}
    if job.trigger_s is not None:
        before[job.name] = after[job.name] = {"trigger": f"{job.trigger_s * 1e3:g} milliseconds"}
    if job.rate_share == 1.0:
        return before, after
    sources = [operator.name for operator in operators if operator.is_source]
    if job.rate_eps is None or job.trigger_s is None or len(sources) != 1:
        notes.append(ExportNote.of("lost", "rate_share", job.name, "share_unlimited", share=job.rate_share))
        return before, after
    limit = max(1, math.floor(job.rate_eps * job.rate_share * job.trigger_s))
    before[sources[0]], after[sources[0]] = {"maxOffsetsPerTrigger": None}, {"maxOffsetsPerTrigger": limit}
    values = {"share": job.rate_share, "rate_eps": job.rate_eps, "trigger_s": job.trigger_s, "limit": limit}
    notes.append(ExportNote.of("program", "rate_share", sources[0], "share_limited", **values))
    return before, after


def _notes(
    job: DecidedJob,
    operators: Sequence[DecidedOperator],
    before: Mapping[str, str | None],
    after: Mapping[str, str | None],
) -> list[ExportNote]:
    notes = [uneven_note(operator, "Spark") for operator in operators if is_uneven(operator.after)]
    if len({replica.node for operator in operators for replica in operator.after}) > 1:
        notes.append(ExportNote.of("lost", "nodes", job.name, "executors"))
    counts = {len(operator.after) for operator in operators if operator.after and not operator.is_source}
    if len(counts) > 1:
        notes.append(ExportNote.of("lost", "shuffle_partitions", job.name, most=max(counts), least=min(counts)))
    if SHUFFLE in after and after[SHUFFLE] != before.get(SHUFFLE):
        notes.append(ExportNote.of("info", "checkpoint", job.name, setting=SHUFFLE))
    if after:
        notes.append(ExportNote.of("info", "restart", job.name))
        notes += [ExportNote.of("info", "unset", name, setting=name) for name, value in before.items() if value is None]
    return notes


def _patch(metadata: Mapping[str, str], settings: Mapping[str, str | None]) -> dict[str, JsonValue]:
    executor: dict[str, JsonValue] = {}
    for name, key in ((INSTANCES, "instances"), (CORES, "cores")):
        if name in settings:
            value = settings[name]
            executor[key] = int(value) if value is not None else None
    if settings.get(MEMORY):
        executor["memory"] = settings[MEMORY]
    spec: dict[str, JsonValue] = {"executor": executor} if executor else {}
    if SHUFFLE in settings:
        spec["sparkConf"] = {SHUFFLE: settings[SHUFFLE]}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": dict(metadata),
        "spec": spec,
    }
