"""The API's description beyond what the code says: the rooms, and examples of the main operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["EXAMPLES", "TAGS", "OperationExample", "add_examples"]

#: One tag for each app, in the order of the documentation.
TAGS = [
    {"name": name, "description": description}
    for name, description in (
        ("core", "The index of resources."),
        ("ledger", "Changes of objects, and taking them back."),
        ("accounts", "Tokens of the signed-in person."),
        ("signin", "Invitations, and accounts of programs."),
        ("jobs", "Work that takes time: state, progress, result."),
        ("fleet", "Clusters, node pools, nodes and links."),
        ("saved_views", "Filters, search and order of the console's lists under a name."),
        ("queries", "Continuous queries with their versions and statistics, arrivals, and clusters as documents."),
        ("estimates", "Latency estimates of clusters, queries and documents, and how accurate they were."),
        ("connections", "Engines that run elsewhere, and their jobs as queries."),
        ("predictions", "Predicted costs of queries that never ran, and the models behind them."),
        ("admission", "May this query run? Previews, decisions and alternatives."),
        ("planning", "Placements, plans, what-ifs, forecasts, backtests and resource plans."),
        ("telemetry", "Agents, sources, live queries, and the records that they and producers send."),
        ("measurements", "What telemetry measured of a query's operators."),
        ("results", "Results of live queries, alert rules and alerts."),
        ("microbatch", "Spark queries that are watched by their progress."),
        ("rollouts", "Configurations of agents, their rollouts and schedules."),
        ("reports", "Reports, their schedules and deliveries."),
        ("policies", "What evidence means, freezes, quotas and who overrides: the policy of a cluster, with versions."),
        ("exports", "Decisions and proposals as settings of Flink and Spark, with their reverse."),
        ("kubernetes", "Answers to Kubernetes before it creates or changes a job."),
        ("operation", "Sluice itself: its processes, queues, database, and what to do."),
        ("incidents", "Late queries by cause, engines that are away, and where they are reported to."),
    )
]


@dataclass(frozen=True)
class OperationExample:
    """A request and an answer to it. Answers leave out members that an example needs not show."""

    request: Any = None
    response: Any = None
    status: str = "200"


_OPERATORS = [
    {
        "id": "features",
        "kind": "map",
        "inputs": [{"from": "clicks", "selectivity": 1, "cycles_per_event": 20000}],
    },
    {
        "id": "score",
        "kind": "sink",
        "inputs": [{"from": "features", "selectivity": 0.02, "cycles_per_event": 4000}],
    },
]
_JOB = {
    "id": "e67898f0-6f0b-4b0c-9f52-1c5b7a0f9a11",
    "url": "/api/v1/jobs/e67898f0-6f0b-4b0c-9f52-1c5b7a0f9a11",
    "kind": "workers.preview_admission",
    "title": "Preview fraud v1",
    "cluster": "prod",
    "requested_by": "ci",
    "state": "queued",
    "progress": 0.0,
    "step": "",
    "attempt": 0,
    "cancel_requested": False,
    "result": None,
    "result_url": "",
    "result_api_url": "/api/v1/admissions/5c1d6f0e-3c7e-4f66-9d0b-0f7d3f0b8a55",
    "error": None,
    "created_at": "2026-03-01T08:00:00Z",
    "started_at": None,
    "finished_at": None,
}


def _job(kind: str, title: str, result: str) -> dict[str, Any]:
    return {**_JOB, "kind": kind, "title": title, "result_api_url": result}


EXAMPLES = {
    "previewAdmission": OperationExample(
        {
            "cluster": "prod",
            "document": {
                "query": "fraud",
                "operators": _OPERATORS,
                "objective": {"statistic": "worst", "bound_s": 2.0},
            },
            "mode": "preview",
        },
        _JOB,
        "202",
    ),
    "createEstimate": OperationExample(
        {"cluster": "prod"}, _job("workers.estimate_cluster", "Estimate prod", "/api/v1/estimates/8"), "202"
    ),
    "createWhatIf": OperationExample(
        {"cluster": "prod", "find": "smallest_pool", "options": {"pool": "standard"}},
        _job("workers.answer_what_if", "Smallest pool", "/api/v1/what-ifs/1f0c2f43-3c27-44d2-b5c2-5cf9a2d2c1d0"),
        "202",
    ),
    "createPlacement": OperationExample(
        {"cluster": "prod", "objective": "objectives", "budget_s": 10},
        _job("workers.search_placement", "Place prod", "/api/v1/placements/0b9a2a58-54d4-43c2-8f0a-33a1c1a8b7e9"),
        "202",
    ),
    "createQuery": OperationExample(
        {
            "cluster": "prod",
            "name": "fraud",
            "team": "payments",
            "objective": {"statistic": "worst", "bound_s": 2.0},
            "operators": _OPERATORS,
        },
    ),
    "createTelemetrySource": OperationExample(
        {
            "cluster": "prod",
            "source_id": "shop-log",
            "kind": "log_file",
            "options": {"path": "/var/log/shop.log"},
            "time": "ts",
            "columns": {"ts": "timestamp", "line": "string", "file": "string"},
        },
    ),
    "createLiveQuery": OperationExample({"cluster": "prod", "query": "round-trips", "agents": ["web-7"]}),
    "enrolAgent": OperationExample(
        {"token": "slu_enrol_…", "name": "web-7", "host": "web-7", "cores": 4},
        {
            "agent": "7d6b6d4e-9b39-4f7c-9b2f-2f8f7f0c9c10",
            "secret": "slu_agent_…",
            "cluster": "prod",
            "heartbeat_s": 2.0,
        },
        "201",
    ),
}


def add_examples(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """drf-spectacular's POSTPROCESSING_HOOKS entry: examples into the operations they are of."""
    for operations in result["paths"].values():
        for operation in operations.values():
            example = EXAMPLES.get(operation["operationId"])
            if example is not None:
                _add(operation.get("requestBody"), example.request)
                _add(operation["responses"].get(example.status), example.response)
    return result


def _add(body: dict[str, Any] | None, value: Any) -> None:
    content = (body or {}).get("content", {}).get("application/json")
    if content is not None and value is not None:
        content["example"] = value
