"""The manifests are what Kubernetes takes, and fit each other, the image and the code."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from agent import VERSION
from console.env import Env, variable_of

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
SIZES = ("small", "medium", "large")
KUBERNETES = "1.32"


def documents(name: str) -> list[dict[str, Any]]:
    """Objects of a file of manifests."""
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))


BASE, RELAY = documents("small"), documents("relay")
each_object = pytest.mark.parametrize(
    "document", BASE + RELAY, ids=lambda document: f"{document['kind']}-{document['metadata']['name']}"
)


def workloads(objects: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and pod templates of what runs."""
    for document in objects:
        if "template" in document["spec"] if document["kind"] in ("Deployment", "StatefulSet", "Job") else False:
            yield document["metadata"]["labels"]["app.kubernetes.io/component"], document["spec"]["template"]


each_workload = pytest.mark.parametrize(
    ("name", "template"), list(workloads(BASE + RELAY)), ids=lambda value: value if isinstance(value, str) else ""
)


@each_object
def test_object_has_the_schema_of_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_validation_finds_a_field_that_there_is_not() -> None:
    wrong = deepcopy(next(document for document in BASE if document["kind"] == "Deployment"))
    wrong["spec"]["replica"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@each_workload
def test_pod_runs_locked_down(name: str, template: dict[str, Any]) -> None:
    spec = template["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and spec["automountServiceAccountToken"] is False
    for container in spec["containers"] + spec.get("initContainers", []):
        locked = container["securityContext"]
        assert locked["readOnlyRootFilesystem"] and not locked["allowPrivilegeEscalation"]
        assert locked["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]


@each_workload
def test_long_running_process_has_probes_and_no_secret_in_clear(name: str, template: dict[str, Any]) -> None:
    (container,) = template["spec"]["containers"]
    assert name == "migrate" or container["livenessProbe"]
    for variable in container.get("env", []):
        assert ("SECRET" not in variable["name"] and "TOKEN" not in variable["name"]) or "valueFrom" in variable


def test_database_being_away_restarts_no_web_process() -> None:
    (container,) = dict(workloads(BASE))["web"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz?live=1"


def test_web_processes_share_no_access_log() -> None:
    spec = dict(workloads(BASE))["web"]["spec"]
    (name,) = (m["name"] for m in spec["containers"][0]["volumeMounts"] if m["mountPath"] == "/data/log")
    assert {"name": name, "emptyDir": {}} in spec["volumes"]


def test_selectors_find_the_pods_they_are_for() -> None:
    labels = {name: template["metadata"]["labels"] for name, template in workloads(BASE + RELAY)}
    for document in BASE + RELAY:
        spec = document.get("spec", {})
        if document["kind"] == "Service":
            chosen = spec["selector"]
        elif document["kind"] in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            chosen = spec["selector"]["matchLabels"]
        else:
            continue
        assert labels[document["metadata"]["name"]] == chosen, document["metadata"]["name"]


def test_network_policies_name_workloads_that_there_are() -> None:
    names = {name for name, _ in workloads(BASE + RELAY)}
    for document in BASE + RELAY:
        if document["kind"] == "NetworkPolicy":
            chosen = document["spec"]["podSelector"]
            listed = [*(chosen.get("matchExpressions") or [{"values": []}])[0]["values"]]
            one = chosen.get("matchLabels", {}).get("app.kubernetes.io/component")
            assert {*listed, *filter(None, [one])} <= names


def test_configuration_knows_only_variables_that_exist_and_no_secret() -> None:
    (values,) = (document["data"] for document in BASE if document["kind"] == "ConfigMap")
    known = {variable_of(field.name): field.name for field in fields(Env)}
    assert set(values) - {"NUMBA_CACHE_DIR"} <= set(known)
    assert not {"DATABASE_URL", "REDIS_URL", "SLUICE_SECRET_KEY"} & set(values)
    Env.read(values)


def test_scalers_ask_for_a_metric_that_the_console_gives() -> None:
    families = (FOLDER.parents[1] / "apps" / "exposition" / "families.py").read_text()
    for document in BASE:
        if document["kind"] == "HorizontalPodAutoscaler":
            metric = document["spec"]["metrics"][0]["external"]["metric"]
            assert f'"{metric["name"]}"' in families
            assert metric["selector"]["matchLabels"]["queue"] in ("interactive", "background")
            assert document["spec"]["scaleTargetRef"]["name"] in dict(workloads(BASE))


@pytest.mark.parametrize("size", SIZES[1:])
def test_size_has_the_same_objects_and_more_of_everything(size: str) -> None:
    larger = documents(size)
    for document in larger:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    names = [[(document["kind"], document["metadata"]["name"]) for document in file] for file in (BASE, larger)]
    assert names[0] == names[1]
    memory = [
        {name: _gib(template["spec"]["containers"][0]["resources"]["limits"]["memory"]) for name, template in pods}
        for pods in (workloads(BASE), workloads(larger))
    ]
    assert all(memory[1][name] > memory[0][name] for name in ("web", "worker", "background", "stream"))


def _gib(text: str) -> float:
    return float(text.removesuffix("Gi")) if text.endswith("Gi") else float(text.removesuffix("Mi")) / 1024


@each_workload
def test_image_is_of_this_version(name: str, template: dict[str, Any]) -> None:
    containers = template["spec"]["containers"] + template["spec"].get("initContainers", [])
    assert {container["image"] for container in containers} == {f"registry.example.org/sluice:{VERSION}"}
