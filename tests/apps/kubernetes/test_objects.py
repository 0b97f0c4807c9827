"""Objects of Kubernetes by their operators' own rules: parallelism, spellings, aliases."""

from __future__ import annotations

import pytest

from apps.core.errors import Malformed
from apps.kubernetes.objects import StreamingObject, read_manifest

SLOTS = "taskmanager.numberOfTaskSlots"


def streaming(spec: str, kind: str = "FlinkDeployment", version: str = "flink.apache.org/v1beta1") -> StreamingObject:
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: orders}}\nspec: {spec}\n"
    (item,) = read_manifest(text)
    return item


@pytest.mark.parametrize(
    ("spec", "parallelism"),
    [
        ("{job: {parallelism: 8}}", 8),
        (
            "{taskManager: {replicas: 1}, job: {parallelism: 8}, flinkConfiguration: {" + SLOTS + ": '2'}}",
            2,
        ),
        ("{taskManager: {replicas: 3}, job: {}}", 3),
        ("{taskManager: {replicas: 2}, job: {}, flinkConfiguration: {taskmanager: {numberOfTaskSlots: 4}}}", 8),
        ("{job: {}, flinkConfiguration: {parallelism.default: 5}}", 5),
        ("{job: {}, flinkConfiguration: {parallelism: {default: 6}}}", 6),
        ("{job: {parallelism: 2}, flinkConfiguration: {pipeline: {jobvertex-parallelism-overrides: {a: 1, b: 7}}}}", 7),
        ("{job: {parallelism: 2}, flinkConfiguration: {pipeline.jobvertex-parallelism-overrides: 'a:1,b:7'}}", 7),
        ("{job: {}}", None),
    ],
)
def test_parallelism_of_flink_follows_the_rules_of_its_operator(spec: str, parallelism: int | None) -> None:
    item = streaming(spec)
    assert (item.parallelism, item.faults) == (parallelism, ())


@pytest.mark.parametrize(
    ("spec", "most", "least"),
    [
        ("{executor: {instances: 3, cores: 2}}", 6, None),
        ("{executor: {cores: 2}, sparkConf: {spark.executor.instances: '4'}}", 8, None),
        (
            "{executor: {cores: 2}, dynamicAllocation: {enabled: true, minExecutors: 1, maxExecutors: 5}}",
            10,
            2,
        ),
        ("{executor: {instances: 1}, sparkConf: {spark.dynamicAllocation.enabled: 'true'}}", None, 0),
    ],
)
def test_executors_of_spark_that_come_and_go_have_a_most_and_a_least(
    spec: str, most: int | None, least: int | None
) -> None:
    item = streaming(spec, "SparkApplication", "sparkoperator.k8s.io/v1beta2")
    assert (item.parallelism, item.least_parallelism, item.faults) == (most, least, ())


def test_setting_said_twice_in_two_spellings_is_a_fault() -> None:
    item = streaming("{job: {}, flinkConfiguration: {parallelism.default: 5, parallelism: {default: 6}}}")
    assert [fault.path for fault in item.faults] == ["spec.flinkConfiguration.parallelism.default"]


def test_name_of_a_job_is_read_from_nested_settings() -> None:
    assert streaming("{job: {}, flinkConfiguration: {pipeline: {name: shop}}}").job_names == ("shop", "orders")


def test_aliases_are_written_out_and_a_bomb_of_them_is_refused() -> None:
    item = streaming("{x: &n {parallelism: 4}, job: *n}")
    assert item.parallelism == 4
    bomb = "a: &a [x, x]\n" + "".join(
        f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
    )
    for text in (bomb, "a: &a [*a]"):
        with pytest.raises(Malformed, match="aliases"):
            read_manifest(text)


def test_saved_review_counts_as_the_object_it_asks_for() -> None:
    item = "{apiVersion: flink.apache.org/v1beta1, kind: FlinkDeployment, metadata: {name: session}, spec: {}}"
    text = f"apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\nrequest: {{uid: u, object: {item}}}\n"
    (read,) = read_manifest(text)
    assert (read.kind, read.name, read.has_job) == ("FlinkDeployment", "session", False)
