"""Every model is tracked, or it is said here why not; no secret gets into the ledger."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.db import models
from django.utils import timezone

from apps.accounts.services import password_set, token_create, token_revoke, user_create, user_update
from apps.connections.services import connection_create, connection_delete, connection_pause, connection_update
from apps.fleet.models import Cluster, Node
from apps.fleet.services import node_delete
from apps.incidents.services import channel_create, channel_update, silence_create
from apps.ledger.models import ObjectChange
from apps.ledger.recorder import Tracked, TrackedPart, canonical, row_image
from apps.ledger.undo import change_undo, undo_obstacle
from apps.planning.event_checklists import check_add
from apps.planning.events import event_create, event_delete, event_update
from apps.reports.services import (
    definition_create,
    definition_delete,
    schedule_set,
    webhook_create,
    webhook_renew_secret,
    webhook_update,
)
from apps.telemetry.models import Agent
from apps.telemetry.sources import table_delete, table_upsert
from tests.apps import small_cluster

OWN = "the ledger's own rows"
RUN = "a run, which is a record of who asked what and of what came of it"
PART = "a part of a run or record, written with it"
MEASURED = "measured or computed, never given by a person"
COURSE = "the course of deliveries, jobs or requests"
HISTORY = "has a history of its own, version by version"
LOOK = "how somebody looks at lists; nothing else depends on it"
OWN_SECRET = "the installation's own, which no person sees or chooses"
DJANGO = "of Django, and not used or not changed by people"

#: Models whose changes the ledger does not have, with the reason.
UNTRACKED = {
    "ledger.ObjectChange": OWN,
    "ledger.KeptRows": OWN,
    "ledger.LedgerMark": OWN,
    "ledger.LedgerWebhook": OWN,
    "jobs.Job": RUN,
    "queries.ImportRun": RUN,
    "estimates.EstimateRun": RUN,
    "predictions.Prediction": RUN,
    "predictions.FineTuning": RUN,
    "admission.AdmissionGroup": RUN,
    "admission.AdmissionRequest": RUN,
    "admission.AdmissionTrial": RUN,
    "planning.PlacementRun": RUN,
    "planning.Evacuation": RUN,
    "planning.PlanComparison": RUN,
    "planning.WhatIf": RUN,
    "planning.ResourcePlan": RUN,
    "planning.Forecast": RUN,
    "planning.BacktestRun": RUN,
    "planning.EventRun": RUN,
    "reports.Report": RUN,
    "kubernetes.KubernetesReview": RUN,
    "admission.Promise": PART,
    "admission.Receipt": PART,
    "planning.PlacementMove": PART,
    "planning.EvacuationStep": PART,
    "queries.Operator": PART,
    "queries.OperatorInput": PART,
    "queries.ClusterParts": MEASURED,
    "queries.RowChange": MEASURED,
    "telemetry.KnownPlan": MEASURED,
    "telemetry.StreamPlan": MEASURED,
    "telemetry.Assignment": MEASURED,
    "telemetry.LiveQuery": MEASURED,
    "results.ResultWindow": MEASURED,
    "results.Alert": MEASURED,
    "microbatch.BatchFit": MEASURED,
    "microbatch.MicroBatch": MEASURED,
    "measurements.StreamStretch": MEASURED,
    "measurements.StatisticsWindow": MEASURED,
    "measurements.StatisticsHour": MEASURED,
    "measurements.OperatorStatistic": MEASURED,
    "estimates.AccuracyObservation": MEASURED,
    "estimates.UnscoredInterval": MEASURED,
    "estimates.IntervalCalibration": MEASURED,
    "estimates.QueryEstimate": MEASURED,
    "estimates.ObjectiveStatus": MEASURED,
    "estimates.NodeEstimate": MEASURED,
    "estimates.DocumentEstimate": MEASURED,
    "connections.ImportedJob": MEASURED,
    "connections.KeptPoll": MEASURED,
    "connections.KeptAnswers": MEASURED,
    "predictions.ModelVersion": MEASURED,
    "predictions.ObservedExecution": MEASURED,
    "planning.LoadHistory": MEASURED,
    "rollouts.Learned": MEASURED,
    "rollouts.LearnedWatermarks": MEASURED,
    "results.AlertNotice": COURSE,
    "results.AlertDelivery": COURSE,
    "reports.Delivery": COURSE,
    "exports.DecisionNotice": COURSE,
    "exports.DecisionDelivery": COURSE,
    "incidents.IncidentNotice": COURSE,
    "incidents.IncidentDelivery": COURSE,
    "signin.ProviderSession": COURSE,
    "signin.RecoveryCode": COURSE,
    "signin.Session": COURSE,
    "core.IdempotencyRecord": COURSE,
    "core.InstallationSecret": OWN_SECRET,
    "incidents.Incident": HISTORY,
    "incidents.IncidentQuery": HISTORY,
    "incidents.IncidentEvent": HISTORY,
    "rollouts.RefinedConfig": HISTORY,
    "rollouts.RefinedPart": HISTORY,
    "rollouts.SchedulePart": HISTORY,
    "rollouts.Rollout": HISTORY,
    "rollouts.RolloutMember": HISTORY,
    "rollouts.RolloutEvent": HISTORY,
    "microbatch.SparkQuery": "its settings say field by field where each is from",
    "saved_views.SavedView": LOOK,
    "saved_views.DefaultView": LOOK,
    "auth.Permission": DJANGO,
    "auth.Group": DJANGO,
    "contenttypes.ContentType": DJANGO,
    "sessions.Session": DJANGO,
    "django_celery_beat.SolarSchedule": DJANGO,
    "django_celery_beat.IntervalSchedule": DJANGO,
    "django_celery_beat.ClockedSchedule": DJANGO,
    "django_celery_beat.CrontabSchedule": DJANGO,
    "django_celery_beat.PeriodicTasks": DJANGO,
    "django_celery_beat.PeriodicTask": DJANGO,
}
RULE = {"every": "week", "days": ["mon"], "at": "07:00"}
_SECRETIVE = re.compile(r"password|secret|sealed|digest|salt")
_NOT_SECRET = {"queries.ArrivalSeries.digest", "telemetry.StaticTable.digest", "telemetry.Agent.config_digest"}


def tracked() -> list[type[models.Model]]:
    return [model for model in apps.get_models() if issubclass(model, (Tracked, TrackedPart))]


def test_every_model_is_tracked_or_it_is_said_why_not() -> None:
    untracked = {model._meta.label for model in apps.get_models()} - {model._meta.label for model in tracked()}
    assert untracked == set(UNTRACKED)


def test_no_kind_is_used_twice_and_no_secret_is_recorded() -> None:
    roots = [model for model in tracked() if issubclass(model, Tracked)]
    assert len({model.ledger_kind for model in roots}) == len(roots)
    open_secrets = [
        label
        for model in roots
        for column in model._meta.concrete_fields
        if _SECRETIVE.search(column.name) and (label := f"{model._meta.label}.{column.name}") not in _NOT_SECRET
        if column.name not in model.ledger_secret | model.ledger_ignored
    ]
    assert open_secrets == []


@pytest.fixture
def cluster(db: None) -> Cluster:
    return small_cluster.small_cluster()


def last(kind: str) -> ObjectChange:
    return ObjectChange.objects.filter(kind=kind, cause=None).latest("pk")


def make_webhook(cluster: Cluster) -> Any:
    return webhook_create(cluster=cluster, name="chat", url="https://example.org/in")


def make_report(cluster: Cluster) -> Any:
    report = definition_create(cluster=cluster, kind="provisioning", name="weekly", webhooks=[make_webhook(cluster)])
    schedule_set(definition=report, rule=RULE, time_zone="UTC")
    return report


def make_event(cluster: Cluster) -> Any:
    now = timezone.now().replace(microsecond=0)
    factors = [{"of": "rest", "name": "", "by": 2.0}]
    return event_create(
        cluster=cluster,
        name="sale",
        user=None,
        factors=factors,
        starts_at=(now + timedelta(days=9)).isoformat(),
        ends_at=(now + timedelta(days=10)).isoformat(),
    )


def make_table(cluster: Cluster) -> Any:
    return table_upsert(cluster=cluster, name="users", columns={"id": "int64"}, rows=[[1]])


@pytest.mark.parametrize(
    ("kind", "make", "change"),
    [
        ("webhook", make_webhook, lambda row: webhook_update(webhook=row, name="pager")),
        ("report", make_report, lambda row: definition_delete(definition=row)),
        ("event", make_event, lambda row: event_update(event=row, name="big sale", lead_time_days=3.0)),
        ("event", make_event, lambda row: check_add(event=row, text="Tell the shop")),
        ("event", make_event, lambda row: event_delete(event=row)),
    ],
)
def test_undo_restores_what_is_tracked(
    cluster: Cluster, kind: str, make: Callable[[Cluster], Any], change: Callable[[Any], object]
) -> None:
    row = make(cluster)
    model, key = type(row), row.pk
    before = row_image(model, key)
    change(row)
    assert row_image(model, key) != before
    change_undo(pk=last(kind).pk)
    assert row_image(model, key) == before


def test_people_and_tokens_are_recorded_without_their_secrets(cluster: Cluster) -> None:
    boss = user_create(username="boss", password="correct-horse-9", role="admin")
    ann = user_create(username="ann", password="correct-horse-7")
    user_update(user=ann, by=boss, role="operator")
    assert (last("grant").before, last("grant").after, last("grant").name) == (
        {"role": "viewer"},
        {"role": "operator"},
        "ann",
    )
    assert last("person").cluster_key is None
    password_set(user=ann, password="battery-staple-8", by=boss)
    change = last("person")
    assert (change.before, change.after) == ({"password": "secret"}, {"password": "another secret"})
    token, secret = token_create(user=ann, name="ci", scopes=["read"])
    token_revoke(token=token)
    assert list(last("token").after or {}) == ["revoked_at"]
    told = canonical(list(ObjectChange.objects.values("before", "after")))
    for hidden in (ann.password, boss.password, secret, token.digest, "battery-staple-8"):
        assert hidden not in told


def test_channels_and_connections_are_recorded_without_their_secrets(cluster: Cluster) -> None:
    channel = channel_create(cluster=cluster, kind="cloudevents", name="ops", address="https://example.org/s3cr3t-path")
    channel_update(channel=channel, address="https://example.org/an0ther-path")
    assert (last("channel").after or {})["sealed_address"] == "another secret"
    assert "not kept" in undo_obstacle(last("channel"))
    engine = connection_create(
        cluster=cluster, name="flink", engine="flink", url="https://flink.example", token="t0ken"
    )
    connection_pause(connection=engine)
    assert (last("connection").before, last("connection").after) == ({"paused": False}, {"paused": True})
    change_undo(pk=last("connection").pk)
    connection_update(connection=engine, poll_interval_s=30.0)
    change_undo(pk=last("connection").pk)
    engine.refresh_from_db()
    assert (engine.state, engine.poll_interval_s) == ("new", 15.0)
    connection_delete(connection=engine)
    assert "Nothing is kept" in undo_obstacle(last("connection"))
    told = canonical(list(ObjectChange.objects.values("before", "after")))
    assert "t0ken" not in told and "s3cr3t" not in told and "an0ther" not in told


def test_renewed_secret_of_a_webhook_is_recorded_and_not_put_back(cluster: Cluster) -> None:
    webhook_renew_secret(webhook=make_webhook(cluster))
    assert last("webhook").after == {"salt": "another secret"} and "not kept" in undo_obstacle(last("webhook"))


def test_tables_and_silences_come_back(cluster: Cluster) -> None:
    ends_at = timezone.now() + timedelta(hours=1)
    silence_create(cluster=cluster, ends_at=ends_at, reason="a new rack", starts_at=ends_at - timedelta(minutes=9))
    change_undo(pk=change_undo(pk=last("silence").pk).pk)
    assert cluster.incident_silences.get().reason == "a new rack"
    table = make_table(cluster)
    before = (table.rows, table.digest)
    table_delete(table=table)
    change_undo(pk=last("table").pk)
    table = cluster.static_tables.get()
    assert (table.rows, table.digest) == before


def test_deleted_node_gets_its_agent_back(cluster: Cluster) -> None:
    node = cluster.nodes.get(name="b")
    agent = Agent.objects.create(cluster=cluster, name="agent-b", node=node)
    node_delete(node=Node.objects.get(pk=node.pk))
    deletion = last("node")
    lost = ObjectChange.objects.get(kind="agent", action="changed")
    assert (lost.cause_id, lost.before, lost.after) == (deletion.pk, {"node": node.pk}, {"node": None})
    undoing = change_undo(pk=deletion.pk)
    agent.refresh_from_db()
    assert agent.node_id == node.pk
    assert ObjectChange.objects.filter(kind="agent", cause=undoing).exists()
