"""Decisions as Spark's settings and patches, and the way back."""

from __future__ import annotations

from dataclasses import replace

import yaml

from engine.document.elements import Replica
from engine.exports.export import DecidedJob, DecidedOperator, KubernetesTarget, export_text
from engine.exports.spark import spark_export

JOB = DecidedJob(
    id="90a7ee2c",
    name="clicks",
    operators=(
        DecidedOperator("kafka", "source", (Replica("driver"),), (Replica("exec-1"),), is_source=True),
        DecidedOperator(
            "count",
            "state",
            (Replica("driver", 0, 0.5), Replica("driver", 1, 0.5)),
            tuple(Replica(node, core, 0.25) for node in ("exec-1", "exec-2") for core in (0, 1)),
        ),
    ),
    settings={"spark.executor.memory": "2g", "spark.sql.shuffle.partitions": "200"},
    rate_eps=1000.0,
    trigger_s=2.0,
    target=KubernetesTarget("clicks", "streams"),
)


def test_nodes_become_executors_and_replicas_shuffle_partitions() -> None:
    export = spark_export(JOB)
    assert export.apply.settings == {
        "spark.executor.instances": "2",
        "spark.executor.cores": "2",
        "spark.sql.shuffle.partitions": "4",
        "spark.executor.memory": "2g",
    }
    assert export.apply.patch["spec"] == {
        "executor": {"instances": 2, "cores": 2, "memory": "2g"},
        "sparkConf": {"spark.sql.shuffle.partitions": "4"},
    }
    assert export.apply.calls == (), "Spark has no call for it"


def test_the_reverse_has_the_settings_that_spark_told() -> None:
    reverse = spark_export(JOB).reverse
    assert reverse.settings["spark.sql.shuffle.partitions"] == "200"
    assert reverse.patch["spec"]["executor"]["instances"] == 1


def test_what_was_not_set_before_is_removed_with_a_note() -> None:
    job = replace(JOB, settings={}, operators=tuple(replace(operator, before=()) for operator in JOB.operators))
    export = spark_export(job)
    assert export.reverse.settings["spark.executor.instances"] is None
    assert export.reverse.patch["spec"]["executor"]["instances"] is None
    assert "unset" in {note.code for note in export.notes}


def test_a_share_of_the_rate_is_a_limit_per_trigger() -> None:
    export = spark_export(replace(JOB, rate_share=0.5))
    assert export.apply.program["kafka"] == {"maxOffsetsPerTrigger": 1000}
    assert export.reverse.program["kafka"] == {"maxOffsetsPerTrigger": None}


def test_a_share_without_a_known_trigger_is_a_note_and_no_guess() -> None:
    export = spark_export(replace(JOB, rate_share=0.5, trigger_s=None))
    assert export.apply.program == {}
    assert ("lost", "rate_share") in {(note.level, note.code) for note in export.notes}


def test_yaml_reads_back_as_it_was() -> None:
    document = spark_export(replace(JOB, rate_share=0.5)).to_dict()
    assert yaml.safe_load(export_text(document, "yaml")) == document
