"""Helm renders the chart: deploy/kubernetes is what it gives, and values that are not allowed are refused.

`RECORD_GOLDEN=1 ./sluice test tests/lab/deploy/test_chart.py` writes deploy/kubernetes anew.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.test_kubernetes import FOLDER, KUBERNETES, SIZES
from tests.golden import is_recording

CHART = FOLDER.parent / "helm" / "sluice"
_RELAY = "sluice/templates/relay.yaml"
#: In a process of its own: Helm is a library of Go, which takes over the signals of a process.
_RENDER = """
import json, sys
import helm_python
chart, values = sys.argv[1], json.loads(sys.argv[2])
try:
    with helm_python.Chart.load(chart) as loaded:
        print(json.dumps([True, loaded.render(values, name="sluice", namespace="sluice")]))
except helm_python.HelmError as error:
    print(json.dumps([False, str(error)]))
"""

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(find_spec("helm_python") is None, reason="deploy/tools.txt is not installed: no Helm"),
]


def render(**values: Any) -> tuple[bool, Any]:
    """Texts by template, or why there are none."""
    command = [sys.executable, "-c", _RENDER, str(CHART), json.dumps(values)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    is_rendered, answer = json.loads(done.stdout)
    return is_rendered, answer


def rendered(size: str) -> dict[str, str]:
    """The files of one size by name."""
    is_rendered, texts = render(size=size, createNamespace=True, relay={"enabled": True})
    assert is_rendered, texts
    kept = {name: text.strip().removeprefix("---\n") for name, text in texts.items() if name.endswith(".yaml")}
    head = "# Rendered from the chart deploy/helm/sluice, which is what to change (CONTRIBUTING.md).\n"
    parts = ["configuration", "data", "migrate", "web", "workers", "beat", "stream", "network", "disruption", "scaling"]
    main = "\n---\n".join(kept[f"sluice/templates/{part}.yaml"] for part in parts)
    return {f"{size}.yaml": f"{head}{main}\n", "relay.yaml": f"{head}{kept[_RELAY]}\n"}


@pytest.mark.parametrize("size", SIZES)
def test_manifests_are_what_the_chart_gives(size: str) -> None:
    for name, text in rendered(size).items():
        if is_recording():
            (FOLDER / name).write_text(text)
        assert (FOLDER / name).read_text() == text


def test_every_part_can_be_left_out() -> None:
    off = {"ingress": {"enabled": False}, "stream": {"enabled": False}, "networkPolicies": False, "scaling": False}
    is_rendered, texts = render(**off, storageClasses={"data": "nfs", "stream": ""}, image={"tag": "1.2.3"})
    assert is_rendered, texts
    objects = [one for text in texts.values() for one in yaml.safe_load_all(text) if one]
    for one in objects:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
    kinds = {one["kind"] for one in objects}
    assert not kinds & {"Ingress", "NetworkPolicy", "HorizontalPodAutoscaler", "StatefulSet", "Namespace"}
    assert [one["spec"]["storageClassName"] for one in objects if one["kind"] == "PersistentVolumeClaim"] == ["nfs"]
    replicas = {one["metadata"]["name"]: one["spec"]["replicas"] for one in objects if one["kind"] == "Deployment"}
    assert replicas == {"web": 2, "worker": 2, "background": 1, "beat": 1}


def test_every_wrong_value_is_named_at_once() -> None:
    is_rendered, said = render(
        size="huge", replicas={"web": 0}, hots="sluice.example.org", variables={"SLUICE_SECRET_KEY": "x" * 50}
    )
    assert not is_rendered
    assert all(name in said for name in ("/size", "/replicas/web", "hots", "/variables/SLUICE_SECRET_KEY")), said
    assert "xxxx" not in said
