"""One cluster with a row of every kind, so that every page and every endpoint has something to show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.core.files.base import ContentFile
from django.utils import timezone

from apps.accounts.grants import grant_give, group_create
from apps.accounts.models import User
from apps.accounts.services import token_create, user_create
from apps.accounts.teams import team_create
from apps.admission.groups import GroupQuestion
from apps.admission.models import AdmissionRequest, Promise, Receipt
from apps.admission.previews import ADMISSION
from apps.admission.questions import AdmissionQuestion, MemberQuestion
from apps.connections.models import ImportedJob
from apps.connections.services import connection_create
from apps.core.deliveries import Channel
from apps.core.secrets import seal_secret
from apps.estimates.models import DocumentEstimate, EstimateRun, ObjectiveStatus
from apps.estimates.services import DOCUMENT_ESTIMATE, ESTIMATE
from apps.fleet.models import Cluster
from apps.fleet.services import link_create
from apps.incidents.models import ADDRESS_PURPOSE, Incident, IncidentChannel
from apps.incidents.refresh import incidents_refresh
from apps.incidents.services import silence_create
from apps.jobs.runner import run_job
from apps.kubernetes.models import KubernetesReview
from apps.ledger.models import ObjectChange
from apps.microbatch.progress import progress_ingest
from apps.microbatch.services import spark_query_create
from apps.planning.backtests import BACKTEST
from apps.planning.evacuations import EVACUATION
from apps.planning.event_answers import EVENT
from apps.planning.events import event_create
from apps.planning.forecasts import FORECAST
from apps.planning.load_histories import history_create_from_generator
from apps.planning.models import Forecast
from apps.planning.parallelism import parallelism_request
from apps.planning.placement_search import PLACEMENT
from apps.planning.plans import PLANS
from apps.planning.resource_plans import RESOURCE_PLAN
from apps.planning.scenarios import scenario_create
from apps.planning.what_ifs import WHAT_IF
from apps.predictions.choices import ExecutionOrigin, FineTuningState
from apps.predictions.models import FineTuning, ObservedExecution
from apps.predictions.services import prediction_request
from apps.queries.arrivals.uploads import upload_keep
from apps.queries.imports import IMPORT
from apps.queries.models import Query, QueryVersion
from apps.reports.lifecycle import REPORT
from apps.reports.models import Delivery
from apps.reports.services import definition_create, schedule_set, webhook_create
from apps.results.models import Alert
from apps.results.services import alert_rule_create
from apps.rollouts.rollout_services import rollout_start
from apps.rollouts.services import ConfigRequest, config_create
from apps.saved_views.selectors import ViewCaller
from apps.saved_views.services import saved_view_create
from apps.signin.invitations import invitation_create
from apps.signin.service_accounts import service_account_create
from apps.telemetry.agent_services import enrolment_create
from apps.telemetry.live_services import live_start
from apps.telemetry.sources import source_upsert, table_upsert
from tests.apps import small_cluster
from tests.apps.connections.pictures import FINDINGS, shop_look
from tests.apps.microbatch.spark_progress import progress_of_run
from tests.apps.policies.documents import set_policy
from tests.apps.predictions.samples import make_model
from tests.apps.telemetry import world as telemetry

__all__ = ["PASSWORD", "ROLES", "build_world"]

PASSWORD = "correct horse battery"
ROLES = ("viewer", "operator", "admitter", "admin")
_CSV = b"period,count\n2026-01-01 00:00:00,5\n2026-01-01 00:01:00,7\n"


def build_world(slug: str = "little", do_jobs: Callable[[], object] = small_cluster.run_jobs) -> dict[str, Any]:
    """Build everything and return what stands in addresses, by its name in the catalogues.

    `do_jobs` does the jobs that wait, or waits for the workers that do them.
    """
    people = {role: user_create(username=f"a-{role}", password=PASSWORD, role=role) for role in ROLES}
    user = people["operator"]
    cluster = small_cluster.small_cluster(slug, nodes=("n1", "n2"))
    # a preview that has expired asks more of the database: on a slow machine the tests of a world last longer than it
    cluster.preview_valid_s = 86_400
    cluster.save(update_fields=["preview_valid_s"])
    small_cluster.start_query(cluster, "calm", 0.5, "n1", bound_s=20.0)
    late = small_cluster.start_query(cluster, "late", 1.2, "n2", bound_s=2.0)
    small_cluster.make_query(cluster, "draft", 0.1)
    link = link_create(source=cluster.nodes.get(name="n1"), target=cluster.nodes.get(name="n2"), bandwidth_bytes_s=1e8)
    token, _ = token_create(user=user, name="ci", scopes=["read"])
    view = saved_view_create(
        by=ViewCaller(user, user.scopes),
        list_name="queries",
        name="Late",
        parameters={"state": "breached"},
        is_team=True,
    )
    change = ObjectChange.objects.filter(kind="link").latest("pk")
    group = group_create(name="platform", members=[people["viewer"]])
    world: dict[str, Any] = {
        "group": group.pk,
        "grant": grant_give(group=group, role="viewer", cluster=cluster).pk,
        "team": team_create(name="ads").pk,
        "guide": "user-guide.md",
        "file_format": "json",
        "cluster": cluster.slug,
        "query": late.name,
        "query_pk": late.pk,
        "pool": cluster.pools.get().pk,
        "node": "n1",
        "node_pk": cluster.nodes.get(name="n1").pk,
        "link": link.pk,
        "change": change.pk,
        "change_group": change.group,
        "token": token.pk,
        "saved_view": str(view.pk),
        "session": "0" * 16,
        "service_account": service_account_create(name="ci", team=team_create(name="Release"), by=user).pk,
        "invitation": invitation_create(by=user, note="Ada", role="viewer")[0].pk,
        "person": people["viewer"].pk,
        "series": cluster.arrivals.get(source_id="clicks").pk,
        "upload": upload_keep(ContentFile(_CSV, name="requests.csv")),
    }
    world["policy_number"] = set_policy(cluster, thin_below=0.2).version.number  # type: ignore[union-attr]
    world |= _live(cluster, user) | _planning(cluster, late, user) | _reports(cluster, user) | _predictions(cluster)
    spark_query = spark_query_create(cluster=cluster, name="orders", origin="listener")
    progress_ingest(query=spark_query, documents=progress_of_run(range(30)))
    world["spark_query"] = spark_query.pk
    world |= _connections(cluster, late)
    ESTIMATE.request(cluster=cluster)
    document = {
        "subinterval_s": 1.0,
        "sources": [{"id": "s", "arrivals": [1.0]}],
        "nodes": [{"id": "n", "capacity_cps": 9.0}],
    }
    world["job"] = DOCUMENT_ESTIMATE.request(document=document, user=user)[1].pk
    world["document_estimate"] = DocumentEstimate.objects.get().pk
    world["import"] = IMPORT.request(cluster=cluster, document=document, user=user)[0].pk
    do_jobs()
    world["kubernetes_review"] = _kubernetes_review(cluster, user).pk
    world["estimate"] = EstimateRun.objects.earliest("pk").pk
    incidents_refresh(cluster)
    world["incident"] = Incident.objects.earliest("pk").pk
    address = seal_secret("http://127.0.0.1:9", ADDRESS_PURPOSE)  # that may not be asked: a test of it goes nowhere
    world["incident_channel"] = IncidentChannel.objects.create(
        cluster=cluster, kind="alertmanager", name="alerts", sealed_address=address, shown_address="127.0.0.1"
    ).pk
    ends_at = timezone.now() + timedelta(days=1)
    world["incident_silence"] = silence_create(cluster=cluster, ends_at=ends_at, reason="tests", subject="no-node").pk
    world["objective"] = ObjectiveStatus.objects.earliest("pk").pk
    world["forecast"] = Forecast.objects.get().pk
    world["backtest"] = BACKTEST.create(cluster=cluster, user=user, since=timezone.now() - timedelta(hours=2)).pk
    return world


def _connections(cluster: Cluster, query: Query) -> dict[str, Any]:
    """A connection whose answers are uploaded, with what its engine showed, and jobs that are queries."""
    connection = connection_create(cluster=cluster, name="shop", engine="flink")
    now = timezone.now()
    connection.look, connection.findings = shop_look(now.timestamp()), FINDINGS
    connection.cost = {"requests": 30, "bytes": 2048, "seconds": 0.5}
    connection.checked_at = connection.answered_at = now
    connection.save()
    job = ImportedJob.objects.create(
        connection=connection,
        query=query,
        version=query.running_version,
        engine_id="f" * 32,
        name=query.name,
        state="running",
        shape="0" * 64,
        started_at=now,
        seen_at=now,
    )
    draft = cluster.queries.get(name="draft")
    ImportedJob.objects.create(
        connection=connection,
        query=draft,
        version=draft.versions.get(),
        engine_id="e" * 32,
        name=draft.name,
        state="running",
        shape="1" * 64,
        started_at=now,
        seen_at=now,
    )
    return {"connection": connection.pk, "imported_job": job.pk}


def _kubernetes_review(cluster: Cluster, user: User) -> KubernetesReview:
    """An answer about a job that nobody knows."""
    return KubernetesReview.objects.create(
        cluster=cluster,
        uid="1",
        digest="0" * 64,
        api_version="flink.apache.org/v1beta1",
        kind="FlinkDeployment",
        namespace="streams",
        name="orders",
        operation="CREATE",
        username="argocd",
        asked_by=user,
        allowed=True,
        basis="unknown",
        message="No query of little is FlinkDeployment streams/orders.",
    )


def _predictions(cluster: Cluster) -> dict[str, Any]:
    """A model of the cluster, a prediction by it, an execution beside it, and a fine-tuning."""
    model = make_model(cluster)
    version = QueryVersion.objects.select_related("query__cluster").get(query__name="draft", query__cluster=cluster)
    prediction = prediction_request(version=version)
    execution = ObservedExecution.objects.create(
        cluster=cluster,
        query=version.query,
        version=version,
        prediction=prediction,
        model=model,
        origin=ExecutionOrigin.REPORTED,
        starts_at=timezone.now() - timedelta(minutes=4),
        ends_at=timezone.now(),
        predicted={},
        trace={},
    )
    tuning = FineTuning.objects.create(cluster=cluster, base=model, state=FineTuningState.REFUSED)
    return {
        "prediction": prediction.pk,
        "execution": execution.pk,
        "model_version": model.pk,
        "fine_tuning": tuning.pk,
    }


def _live(cluster: Cluster, user: User) -> dict[str, Any]:
    """A query on live telemetry at one agent, a config on its way to it, and an alert."""
    source_upsert(cluster=cluster, source_id="probes", **telemetry.SOURCE)
    table_upsert(cluster=cluster, name="hosts", columns={"host": "string"}, rows=[["a"]])
    query = telemetry.running(cluster)
    enrolled = telemetry.enrolled(cluster, "a1")
    live = live_start(query=query, agents=[enrolled.agent])
    enrolment, _ = enrolment_create(cluster=cluster, user=user)
    config = config_create(cluster=cluster, wish=ConfigRequest({"margin": 0.96}))
    rollout = rollout_start(config=config, force=True)
    rule = alert_rule_create(query=query, name="slow", column="mean_rtt", comparison="gt", threshold=20.0)
    alert = Alert.objects.create(
        rule=rule,
        group_key="a",
        opened_window_us=0,
        opened_value=30.0,
        last_value=30.0,
        worst_value=30.0,
        last_window_us=0,
    )
    return {
        "live_query": query.name,
        "live_query_pk": query.pk,
        "window_operator": "window",
        "window": 0,
        "observation": 1,
        "unscored": 1,
        "calibration": 1,
        "live": live.pk,
        "agent": enrolled.agent.name,
        "agent_pk": enrolled.agent.pk,
        "source": "probes",
        "source_pk": cluster.telemetry_sources.get(source_id="probes").pk,
        "table": "hosts",
        "table_pk": cluster.static_tables.get(name="hosts").pk,
        "enrolment": enrolment.pk,
        "config": config.number,
        "rollout": rollout.pk,
        "rollout_number": config.number,
        "rule": rule.pk,
        "alert": alert.pk,
        "digest": live.plan,
    }


def _planning(cluster: Cluster, query: Query, user: User) -> dict[str, Any]:
    """One of each kind of run."""

    parallelism_request(query=query, question={}, user=user)
    history = history_create_from_generator(
        cluster=cluster, source_id="clicks", spec={"peak_rate_eps": 100.0, "weeks": 2}
    )
    FORECAST.request(cluster=cluster, horizon_days=1, user=user)
    scenario = scenario_create(cluster=cluster, name="peak", user=user)
    plan, _ = RESOURCE_PLAN.request(
        cluster=cluster, user=user, engine="microbatch", rate=1e5, constraint_s=2.0, profile={"c_in_s": 1e-5}
    )
    event = event_create(
        cluster=cluster,
        name="Friday",
        user=user,
        factors=[{"of": "source", "name": "clicks", "by": 1.5}],
        starts_at=timezone.now() + timedelta(days=2),
        ends_at=timezone.now() + timedelta(days=2, hours=3),
    )
    admission, _ = ADMISSION.request(cluster=cluster, user=user, question=AdmissionQuestion(query="draft"))
    small_cluster.make_query(cluster, "paired", 0.1)
    pair = GroupQuestion(members=(MemberQuestion(query="draft"), MemberQuestion(query="paired")))
    group, _ = ADMISSION.request(cluster=cluster, user=user, question=pair)
    return {
        "event": event.pk,
        "event_run": EVENT.request(event=event, user=user)[0].pk,
        "admission": admission.pk,
        "admission_group": group.group_id,
        "receipt": _receipt(admission).pk,
        "placement": PLACEMENT.request(cluster=cluster, user=user, budget_s=0.1)[0].pk,
        "evacuation": EVACUATION.request(cluster=cluster, user=user, nodes=["n1"])[0].pk,
        "comparison": PLANS.request(query=query, user=user)[0].pk,
        "scenario": scenario.pk,
        "what_if": WHAT_IF.request(cluster=cluster, user=user, scenarios=[scenario.pk])[0].pk,
        "history": history.pk,
        "resource_plan": plan.pk,
    }


def _receipt(admission: AdmissionRequest) -> Receipt:
    """Receipt of an older decision on the same query, which was wrong."""
    hour = timedelta(hours=1)
    promise = Promise.objects.create(
        cluster=admission.cluster,
        query=admission.query,
        query_name=admission.query.name,
        version=1,
        verdict="admit",
        model="flow",
        evidence="assumed",
        statistic="worst",
        bound_s=2.0,
        promised_s=0.3,
        low_s=0.2,
        high_s=0.9,
        state="holds",
        decided_at=timezone.now() - 2 * hour,
    )
    return Receipt.objects.create(
        promise=promise,
        span="hour",
        due_at=promise.decided_at + hour,
        since=promise.decided_at,
        outcome="missed",
        measured_s=2.5,
        results=60,
        interval_held=False,
        is_wrong=True,
        error_lack="not_kept",
        written_at=promise.decided_at + hour,
    )


def _reports(cluster: Cluster, user: User) -> dict[str, Any]:
    """A report that is written, and where it is sent to."""
    webhook = webhook_create(cluster=cluster, name="ops", url="https://hooks.example.org/sluice")
    definition = definition_create(
        cluster=cluster, kind="provisioning", name="Weekly", parameters={"sections": ["objectives", "fleet"]}
    )
    report, job = REPORT.request(definition=definition, user=user)
    run_job(job.pk, REPORT.work)
    delivery = Delivery.objects.create(report=report, channel=Channel.EMAIL, target="ops@example.org")
    schedule = schedule_set(definition=definition, rule={"every": "day", "at": "06:00"}, time_zone="UTC")
    return {
        "webhook": webhook.pk,
        "definition": definition.pk,
        "schedule": schedule.pk,
        "report": report.pk,
        "delivery": delivery.pk,
    }
