"""A real Prometheus scrapes a console; dashboards and alert rules ask it for what there is."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from django.utils import timezone

from apps.core.metrics import Metric
from apps.estimates.objectives import objectives_refresh
from apps.estimates.services import ESTIMATE
from apps.exposition import families
from apps.telemetry import streams
from launcher.engines.prometheus import find_prometheus
from launcher.places import free_port
from tests.apps.small_cluster import run_jobs, small_cluster, start_query

DOCS = Path(__file__).resolve().parents[3] / "docs"
RULES = DOCS / "alerts" / "sluice.yml"
PROMETHEUS = find_prometheus() or Path("prometheus")
DASHBOARDS = sorted((DOCS / "grafana").glob("*.json"))
VARIABLES = {"$cluster": "little", "$query": "steady", "$__all": ".*"}


def _metrics() -> dict[str, set[str]]:
    """Labels by name of every metric that a scrape may have."""
    listed = [value for value in vars(families).values() if isinstance(value, Metric)]
    found = {metric.name: set(metric.labels) for metric in (*listed, streams._READY, *streams._OF_ALL)}
    found |= {metric.name: {"operator"} for metric in streams._OF_OPERATORS}
    own = {"process_cpu_seconds_total": set(), "process_resident_memory_bytes": set(), "sluice_build_info": {"version"}}
    return found | own | {"sluice_scrape_duration_seconds": set()}


def _expressions() -> Iterator[tuple[str, str]]:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for path in DASHBOARDS:
        dashboard = json.loads(path.read_text())
        for panel in dashboard["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"]


EXPRESSIONS = list(_expressions())
_SELECTOR = re.compile(r"\b((?:sluice|process)_\w+)(?:\{([^}]*)\})?")


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS, ids=[name for name, _ in EXPRESSIONS])
def test_expressions_name_metrics_and_labels_that_exist(name: str, expression: str) -> None:
    metrics, found = _metrics(), _SELECTOR.findall(expression)
    assert found, expression
    for metric, matchers in found:
        assert metric in metrics, f"{name}: {metric} is no metric"
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers)) - {"job", "instance"}
        assert labels <= metrics[metric], f"{name}: {metric} has no label {labels - metrics[metric]}"
    by = {word for words in re.findall(r"\bby \(([^)]*)\)", expression) for word in re.split(r",\s*", words)}
    assert by <= set().union(*(metrics[metric] for metric, _ in found)), name


def test_dashboards_have_ids_and_variables_of_their_own() -> None:
    dashboards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert len({dashboard["uid"] for dashboard in dashboards}) == len(dashboards) == 3
    for dashboard in dashboards:
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(ids)) == len(ids)
        named = {f"${variable['name']}" for variable in dashboard["templating"]["list"]}
        used = set(re.findall(r"\$(?!__)\w+", json.dumps([panel.get("targets") for panel in dashboard["panels"]])))
        assert used - {"$datasource"} <= named


@pytest.mark.prometheus
@pytest.mark.process
def test_promtool_accepts_the_rules() -> None:
    found = subprocess.run(
        [PROMETHEUS.with_name("promtool"), "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.prometheus
@pytest.mark.process
@pytest.mark.django_db(transaction=True)
def test_prometheus_scrapes_and_answers_every_expression(live_server: Any, settings: Any, tmp_path: Path) -> None:
    settings.METRICS_NETWORKS = ["127.0.0.0/8"]
    cluster = small_cluster()
    start_query(cluster, "steady", 0.1, "a", bound_s=15.0)
    ESTIMATE.request(cluster=cluster)
    run_jobs()
    objectives_refresh(cluster, now=timezone.now())
    job = {"job_name": "sluice", "static_configs": [{"targets": [live_server.url.removeprefix("http://")]}]}
    config = {"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": [job]}
    (tmp_path / "prometheus.yml").write_text(json.dumps(config | {"rule_files": [str(RULES)]}))
    address = f"127.0.0.1:{free_port()}"
    command = [str(PROMETHEUS), f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    log = (tmp_path / "log").open("w")
    server = subprocess.Popen([*command, f"--web.listen-address={address}"], stdout=log, stderr=log)

    def ask(path: str, **parameters: str) -> Any:
        answer = httpx.get(f"http://{address}/api/v1/{path}", params=parameters, trust_env=False).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    try:
        _until(lambda: ask("query", query='sluice_query_estimate_seconds{query="steady"}')["result"], tmp_path / "log")
        (target,) = ask("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        for _, expression in EXPRESSIONS:
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            ask("query", query=expression)
        for path in DASHBOARDS:
            for variable in json.loads(path.read_text())["templating"]["list"]:
                if variable["type"] == "query":
                    metric, label = re.fullmatch(r"label_values\((\w+).*, (\w+)\)", variable["definition"]).groups()
                    assert ask(f"label/{label}/values", **{"match[]": metric}), variable
        rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"} and not any(r.get("lastError") for r in rules)
    finally:
        server.terminate()
        server.wait(10)
        log.close()


def _until(is_there: Any, log: Path) -> None:
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        try:
            if is_there():
                return
        except (httpx.TransportError, ValueError):  # it answers in plain text until it is ready
            pass
        time.sleep(0.1)
    pytest.fail(f"Prometheus has nothing: {log.read_text()[-2000:]}")
