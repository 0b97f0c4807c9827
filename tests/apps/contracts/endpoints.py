"""Catalogue of the endpoints of the REST API: methods, the scope of each, and the address in the world."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ENDPOINTS", "Endpoint"]

READ, OPERATE, ADMIT, INGEST, ADMIN = "read", "operate", "admit", "ingest", "admin"


@dataclass(frozen=True)
class Endpoint:
    """`methods` are {method: scope}; `at` the parts of the address: {keyword: name in the world}.

    An endpoint with `other_sign_in` takes another proof than a person's token: that of an agent, or an enrolment's.
    """

    methods: dict[str, str]
    at: dict[str, str] = field(default_factory=dict)
    query: str = ""
    other_sign_in: bool = False
    session_only: bool = False  #: changed by people alone, not by a token


def _list(post: str | None = None, **at: str) -> Endpoint:
    return Endpoint({"GET": READ} | ({"POST": post} if post else {}), at)


def _row(pk: str, *methods: str, scope: str = OPERATE) -> Endpoint:
    """One row: to be read, and changed by these methods."""
    return Endpoint({"GET": READ} | dict.fromkeys(methods, scope), {"pk": pk})


def _action(pk: str, scope: str = OPERATE) -> Endpoint:
    return Endpoint({"POST": scope}, {"pk": pk})


def _cluster(**methods: str) -> Endpoint:
    return Endpoint(methods, {"slug": "cluster"})


def _rollout(**methods: str) -> Endpoint:
    return Endpoint(methods, {"slug": "cluster", "number": "rollout_number"})


def _config(**methods: str) -> Endpoint:
    return Endpoint(methods, {"slug": "cluster", "number": "config"})


ENDPOINTS: dict[str, Endpoint] = {
    "api-index": _list(),
    "token-list": Endpoint({"GET": READ, "POST": READ}, session_only=True),
    "token-detail": Endpoint({"GET": READ}, {"pk": "token"}, session_only=True),
    "token-revoke": Endpoint({"POST": READ}, {"pk": "token"}, session_only=True),
    "saved-view-list": _list(READ),
    "saved-view-detail": _row("saved_view", "PATCH", "DELETE", scope=READ),
    "change-list": _list(),
    "change-detail": _row("change"),
    "change-undo": _action("change"),
    "change-group-undo": Endpoint({"POST": OPERATE}, {"group": "change_group"}),
    "operation": Endpoint({"GET": ADMIN}),
    "job-list": _list(),
    "job-detail": _row("job"),
    "job-cancel": _action("job"),
    "cluster-list": _list(OPERATE),
    "cluster-detail": _cluster(GET=READ, PATCH=OPERATE, DELETE=OPERATE),
    "cluster-document": _cluster(GET=READ, POST=OPERATE),
    "node-pool-list": _list(OPERATE),
    "node-pool-detail": _row("pool", "PATCH", "DELETE"),
    "node-pool-plan": _action("pool"),
    "node-list": _list(OPERATE),
    "node-export": _list(),
    "node-bulk": Endpoint({"POST": OPERATE}),
    "node-import-table": Endpoint({"POST": OPERATE}),
    "node-detail": _row("node_pk", "PATCH", "DELETE"),
    "node-activate": _action("node_pk"),
    "node-drain": _action("node_pk"),
    "node-offline": _action("node_pk"),
    "link-list": _list(OPERATE),
    "link-export": _list(),
    "link-import-table": Endpoint({"POST": OPERATE}),
    "link-detail": _row("link", "PATCH", "DELETE"),
    "query-list": _list(OPERATE),
    "query-bulk": Endpoint({"POST": OPERATE}),
    "query-detail": _row("query_pk", "PATCH", "DELETE"),
    "query-backlogs": Endpoint({"GET": READ, "PUT": INGEST}, {"pk": "query_pk"}),
    "query-statistics": Endpoint({"GET": READ, "PUT": INGEST}, {"pk": "query_pk"}),
    "query-stop": _action("query_pk"),
    "query-version": Endpoint({"GET": READ}, {"pk": "query_pk", "number": "1"}),
    "query-versions": _list(OPERATE, pk="query_pk"),
    "query-estimate": _row("query_pk"),
    "query-basis": _row("query_pk"),
    "query-parallelism": _row("query_pk", "POST"),
    "query-parallelism-export": Endpoint({"GET": READ}, {"pk": "query_pk"}, query="parallelism=1&format=json"),
    "query-capacity": _row("query_pk", "POST"),
    "query-remedies": _row("query_pk", "POST"),
    "query-remedies-preview": Endpoint({"POST": OPERATE}, {"pk": "query_pk"}),
    "cluster-capacity": _cluster(GET=READ),
    "cluster-capacity-metrics": _cluster(GET=READ),
    "query-plans": _list(OPERATE, pk="query_pk"),
    "query-plans-adopt": _action("query_pk"),
    "query-measurements": _row("query_pk"),
    "query-results": _list(query_pk="live_query_pk"),
    "query-results-file": Endpoint({"GET": READ}, {"query_pk": "live_query_pk", "form": "csv"}),
    "query-result": Endpoint({"GET": READ}, {"query_pk": "live_query_pk", "window_us": "window"}),
    "arrivals-list": _list(OPERATE),
    "arrivals-inspect": Endpoint({"POST": OPERATE}),
    "arrivals-detail": _row("series", "PATCH", "DELETE"),
    "arrivals-series": _row("series"),
    "estimate-list": _list(OPERATE),
    "estimate-detail": _row("estimate"),
    "document-estimate-detail": _row("document_estimate"),
    "objective-list": _list(),
    "objective-summary": Endpoint({"GET": READ}, query="cluster={cluster}"),
    "objective-detail": _row("objective"),
    "incident-list": _list(),
    "incident-detail": _row("incident"),
    "incident-acknowledge": _action("incident"),
    "incident-done": _action("incident"),
    "incident-channel-list": Endpoint({"GET": OPERATE, "POST": OPERATE}),
    "incident-channel-detail": Endpoint(
        {"GET": OPERATE, "PATCH": OPERATE, "DELETE": OPERATE}, {"pk": "incident_channel"}
    ),
    "incident-channel-test": _action("incident_channel"),
    "incident-silence-list": _list(OPERATE),
    "incident-silence-detail": _row("incident_silence", "DELETE"),
    "incident-routing": _cluster(GET=READ, PUT=OPERATE),
    "unscored-list": _list(),
    "unscored-summary": Endpoint({"GET": READ}, query="cluster={cluster}"),
    "unscored-detail": _row("unscored"),
    "accuracy-list": _list(INGEST),
    "accuracy-summary": Endpoint({"GET": READ}, query="cluster={cluster}"),
    "accuracy-detail": _row("observation"),
    "accuracy-simulation": Endpoint({"POST": OPERATE}),
    "calibration-list": _list(),
    "calibration-detail": _row("calibration"),
    "connection-list": _list(OPERATE),
    "connection-detail": _row("connection", "PATCH", "DELETE"),
    "connection-check": _action("connection"),
    "connection-import": _action("connection", ADMIT),
    "connection-refresh": _action("connection"),
    "connection-pause": _action("connection"),
    "connection-resume": _action("connection"),
    "connection-upload": _action("connection"),
    "imported-job-list": _list(),
    "imported-job-detail": _row("imported_job"),
    "prediction-list": _list(OPERATE),
    "prediction-accuracy": Endpoint({"GET": READ}, query="cluster={cluster}"),
    "prediction-detail": _row("prediction"),
    "observed-execution-list": _list(INGEST),
    "observed-execution-detail": _row("execution"),
    "model-version-list": _list(),
    "model-version-detail": _row("model_version"),
    "model-version-put-in-force": _action("model_version"),
    "fine-tuning-list": _list(OPERATE),
    "fine-tuning-detail": _row("fine_tuning"),
    "admission-list": _list(OPERATE),
    "admission-detail": _row("admission"),
    "admission-apply": _action("admission", ADMIT),
    "admission-complete": _action("admission"),
    "admission-curves": _row("admission"),
    "admission-export": Endpoint({"GET": READ}, {"pk": "admission"}, query="format=json"),
    "admission-approve": _action("admission", ADMIT),
    "admission-decline": _action("admission", ADMIT),
    "admission-override": _action("admission", ADMIT),
    "admission-preview": _action("admission"),
    "admission-request-review": _action("admission"),
    "receipt-list": _list(),
    "receipt-summary": Endpoint({"GET": READ}, query="cluster={cluster}"),
    "receipt-detail": _row("receipt"),
    "receipt-explain": _action("receipt", ADMIT),
    "admission-trial": Endpoint({"POST": OPERATE, "DELETE": OPERATE}, {"pk": "admission"}),
    "admission-withdraw": _action("admission"),
    "kubernetes-review-list": _list(OPERATE),
    "kubernetes-review-detail": _row("kubernetes_review"),
    "telemetry-batches": Endpoint({"POST": INGEST}, other_sign_in=True),
    "producer-batches": Endpoint(
        {"POST": INGEST}, {"cluster": "cluster", "query": "live_query", "operator": "window_operator"}
    ),
    "stream-processor": _list(),
    "stream-processor-state": _list(OPERATE),
    "stream-processor-metrics": _list(),
    "stream-processor-plan": Endpoint({"GET": INGEST}),
    "stream-processor-pipeline": Endpoint({"GET": INGEST}, {"digest": "digest"}),
    "stream-processor-frames": Endpoint({"POST": INGEST}),
    "stream-processor-progress": Endpoint({"POST": INGEST}),
    "spark-query-list": _list(OPERATE),
    "spark-query-detail": _row("spark_query", "PATCH", "DELETE"),
    "spark-query-progress": _action("spark_query", INGEST),
    "spark-query-refit": _action("spark_query"),
    "spark-query-apply": _action("spark_query"),
    "spark-query-batches": Endpoint({"GET": READ}, {"query_pk": "spark_query"}),
    "agent-list": _list(),
    "agent-enrol": Endpoint({"POST": READ}, other_sign_in=True),
    "agent-detail": _row("agent_pk", "PATCH", "DELETE"),
    "agent-config": Endpoint({"GET": READ}, {"pk": "agent_pk"}, other_sign_in=True),
    "agent-heartbeat": Endpoint({"POST": READ}, {"pk": "agent_pk"}, other_sign_in=True),
    "agent-schedule": _row("agent_pk"),
    "enrolment-token-list": _list(OPERATE),
    "enrolment-token-detail": _row("enrolment"),
    "enrolment-token-revoke": _action("enrolment"),
    "telemetry-source-list": _list(OPERATE),
    "telemetry-source-detail": _row("source_pk", "PATCH", "DELETE"),
    "static-table-list": _list(OPERATE),
    "static-table-detail": _row("table_pk", "PATCH", "DELETE"),
    "live-query-list": _list(OPERATE),
    "live-query-check": Endpoint({"GET": READ}, query="query={live_query_pk}"),
    "live-query-detail": _row("live", "PATCH", "DELETE"),
    "live-query-stop": _action("live"),
    "alert-rule-list": _list(OPERATE),
    "alert-rule-detail": _row("rule", "PATCH", "DELETE"),
    "alert-rule-webhook-secret": Endpoint({"GET": OPERATE}, {"pk": "rule"}),
    "alert-list": _list(),
    "alert-detail": _row("alert"),
    "alert-acknowledge": _action("alert"),
    "configs": _cluster(GET=READ, POST=OPERATE),
    "config-check": _cluster(POST=OPERATE),
    "config": _config(GET=READ),
    "config-start": _config(POST=OPERATE),
    "rollouts": _cluster(GET=READ),
    "rollout": _rollout(GET=READ),
    "rollout-pause": _rollout(POST=OPERATE),
    "rollout-resume": _rollout(POST=OPERATE),
    "rollout-roll-back": _rollout(POST=OPERATE),
    "rollout-canaries": _rollout(POST=OPERATE),
    "rollout-policy": _cluster(GET=READ, PATCH=OPERATE),
    "schedule": _cluster(GET=READ, POST=OPERATE),
    "schedule-replay": _cluster(POST=OPERATE),
    "placement-list": _list(OPERATE),
    "placement-detail": _row("placement", "DELETE"),
    "placement-abort": _action("placement"),
    "placement-apply": _action("placement"),
    "placement-export": Endpoint({"GET": READ}, {"pk": "placement"}, query="format=json"),
    "placement-stop": _action("placement"),
    "placement-undo": _action("placement"),
    "evacuation-list": _list(OPERATE),
    "evacuation-detail": _row("evacuation", "DELETE"),
    "evacuation-commands": _row("evacuation"),
    "evacuation-confirm": _action("evacuation"),
    "evacuation-finish": _action("evacuation"),
    "evacuation-stop": _action("evacuation"),
    "history": _list(OPERATE),
    "backtest-list": _list(OPERATE),
    "backtest-detail": _row("backtest", "DELETE"),
    "plan-comparison-list": _list(),
    "plan-comparison-detail": _row("comparison"),
    "load-history-list": _list(OPERATE),
    "load-history-detail": _row("history", "DELETE"),
    "load-history-extend": _action("history"),
    "load-history-series": _row("history"),
    "forecast-list": _list(OPERATE),
    "forecast-detail": _row("forecast"),
    "forecast-regret": _row("forecast"),
    "forecast-series": _row("forecast"),
    "resource-plan-list": _list(OPERATE),
    "resource-plan-detail": _row("resource_plan", "DELETE"),
    "resource-plan-apply": _action("resource_plan"),
    "what-if-list": _list(OPERATE),
    "what-if-sweep": Endpoint({"POST": READ}),
    "what-if-detail": _row("what_if"),
    "scenario-list": _list(OPERATE),
    "scenario-detail": _row("scenario", "PATCH", "DELETE"),
    "planned-event-list": _list(OPERATE),
    "planned-event-detail": _row("event", "PATCH", "DELETE"),
    "planned-event-checklist": _action("event"),
    "planned-event-outcome": _row("event"),
    "planned-event-nodes": _row("event"),
    "event-run-list": _list(OPERATE),
    "event-run-detail": _row("event_run", "DELETE"),
    "report-list": _list(),
    "report-detail": _row("report", "DELETE"),
    "report-file": Endpoint({"GET": READ}, {"pk": "report", "form": "json"}),
    "report-send": Endpoint({"POST": OPERATE}, {"pk": "report", "number": "delivery"}),
    "report-definition-list": _list(OPERATE),
    "report-definition-detail": _row("definition", "PATCH", "DELETE"),
    "report-definition-run": _action("definition"),
    "report-schedule-list": _list(OPERATE),
    "report-schedule-preview": Endpoint({"POST": OPERATE}),
    "report-schedule-detail": _row("schedule", "PATCH", "DELETE"),
    "webhook-list": Endpoint({"GET": OPERATE, "POST": OPERATE}),
    "webhook-detail": Endpoint({"GET": OPERATE, "PATCH": OPERATE, "DELETE": OPERATE}, {"pk": "webhook"}),
    "webhook-renew-secret": _action("webhook"),
}
