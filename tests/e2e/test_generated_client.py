"""A Python client that a stranger generates from the API's description works against a running console."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import Api, Installation

SLUG = "generated"
PACKAGE = "sluice_generated_client"


@pytest.fixture(scope="module")
def package(console: Installation, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Name of the package that was generated, to be imported."""
    folder = tmp_path_factory.mktemp("generated")
    request = urllib.request.Request(
        f"{console.url}/api/schema/?format=json", headers={"Authorization": f"Bearer {console.token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        (folder / "schema.json").write_bytes(answer.read())
    command = ["-m", "openapi_python_client", "generate", "--meta", "none"]
    places = ["--path", str(folder / "schema.json"), "--output-path", str(folder / PACKAGE)]
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, *command, *places], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    # Bytes of frames and of Arrow have no form in a generated client; everything else has.
    refused = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("Unable", "WARNING"))]
    assert all("/batches" in line or "/frames" in line or "/progress" in line for line in refused), refused
    sys.path.insert(0, str(folder))
    yield PACKAGE
    sys.path.remove(str(folder))
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]


def test_queries_are_listed_and_an_admission_is_previewed(package: str, console: Installation, api: Api) -> None:
    def part(path: str) -> Any:
        return importlib.import_module(f"{package}.{path}")

    with part("client").AuthenticatedClient(base_url=console.url, token=console.token, timeout=60.0) as client:
        _use(client, part, api)


def _use(client: Any, part: Callable[[str], Any], api: Api) -> None:
    models = part("models")
    cluster = {"slug": SLUG, "name": "Generated", "subinterval_s": 1.0, "horizon_s": 60.0}
    part("api.fleet.create_cluster").sync(client=client, body=models.ClusterRequest.from_dict(cluster))
    pool = {"cluster": SLUG, "name": "std", "capacity_cps": 1e6, "cores": 1}
    part("api.fleet.create_node_pool").sync(client=client, body=models.PoolRequest.from_dict(pool))
    node = {"cluster": SLUG, "pool": "std", "name": "n1"}
    part("api.fleet.create_node").sync(client=client, body=models.NodeRequest.from_dict(node))
    api.post("arrivals", {"cluster": SLUG, "source_id": "clicks", "counts": [10.0] * 240})

    operators = [{"id": "work", "inputs": [{"from": "clicks", "selectivity": 1.0, "cycles_per_event": 1000.0}]}]
    document = {"query": "clicks-per-page", "operators": operators, "objective": {"statistic": "worst", "bound_s": 2.0}}
    asked = models.AdmissionCreateRequest.from_dict({"cluster": SLUG, "document": document})
    preview = part("api.admission.preview_admission").sync(client=client, body=asked, prefer="wait=30")
    assert isinstance(preview, models.AdmissionDetail)
    assert (preview.verdict, preview.query, preview.cluster) == ("admit", "clicks-per-page", SLUG)

    found = part("api.queries.list_queries").sync(client=client, cluster=[SLUG], sort="-created_at")
    assert [query.name for query in found.results] == ["clicks-per-page"]
    assert found.results[0].state == "draft"

    refused = part("api.queries.list_queries").sync(client=client, sort="beauty")
    assert isinstance(refused, models.ProblemDetails)
    assert (refused.status, refused.code, refused.faults[0].path) == (400, "malformed", "sort")
