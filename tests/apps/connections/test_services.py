"""Connections as they are created, changed, paused and deleted; the token is never shown, and stays with its URL."""

from __future__ import annotations

from typing import Any

import pytest

from apps.connections.models import TOKEN_PURPOSE, Connection
from apps.connections.services import (
    connection_create,
    connection_delete,
    connection_pause,
    connection_refresh,
    connection_resume,
    connection_update,
)
from apps.core.errors import Conflict, Malformed
from apps.core.secrets import SecretLost, unseal_secret
from apps.fleet.models import Cluster
from tests.apps import small_cluster

pytestmark = pytest.mark.django_db


@pytest.fixture
def cluster() -> Cluster:
    return small_cluster.small_cluster()


def paths_of(**fields: Any) -> set[str]:
    with pytest.raises(Malformed) as refused:
        connection_create(**fields)
    return {fault.path for fault in refused.value.faults}


def test_every_fault_is_told_at_once(cluster: Cluster, settings: Any) -> None:
    settings.CONNECT_HOSTS = []
    faults = paths_of(
        cluster=cluster,
        name="Not A Slug",
        engine="storm",
        url="http://10.0.0.1:8081",
        token="with a space",
        ca_pem="nothing",
        lag_query="up",
        latency_metric="latency",
        latency_query="max(x)",
        poll_interval_s=0.1,
    )
    wrong = {"name", "engine", "url", "token", "ca_pem", "prometheus_url", "latency_query", "poll_interval_s"}
    assert faults == wrong


def test_token_is_encrypted_and_lost_with_the_key(cluster: Cluster, settings: Any) -> None:
    connection = connection_create(
        cluster=cluster, name="shop", engine="flink", url="https://flink.example", token="t0ken"
    )
    stored = Connection.objects.get(pk=connection.pk).sealed_token
    assert "t0ken" not in stored and unseal_secret(stored, TOKEN_PURPOSE) == "t0ken"
    with pytest.raises(SecretLost):
        unseal_secret(stored, "another purpose")
    settings.SECRET_KEY = "another key"
    with pytest.raises(SecretLost):
        unseal_secret(stored, TOKEN_PURPOSE)


def test_token_is_not_sent_in_the_clear_unless_the_host_is_listed(cluster: Cluster, settings: Any) -> None:
    settings.CONNECT_HOSTS = []
    fields: dict[str, Any] = {
        "cluster": cluster,
        "name": "shop",
        "engine": "flink",
        "url": "http://flink.example",
        "token": "t0ken",
    }
    assert paths_of(**fields) == {"token"}
    settings.CONNECT_HOSTS = ["flink.example"]
    assert connection_create(**fields).pk


def test_token_stays_with_its_url(cluster: Cluster) -> None:
    connection = connection_create(
        cluster=cluster, name="shop", engine="flink", url="https://flink.example", token="t0ken"
    )
    with pytest.raises(Malformed, match="not sent to another URL"):
        connection_update(connection=connection, url="https://other.example")
    moved = connection_update(connection=connection, url="https://other.example", token="")
    assert moved.sealed_token == "" and moved.url == "https://other.example"


def test_cluster_engine_and_way_of_a_connection_stay(cluster: Cluster) -> None:
    connection = connection_create(cluster=cluster, name="shop", engine="flink")
    with pytest.raises(Malformed) as refused:
        connection_update(connection=connection, engine="spark", url="https://flink.example")
    faults = {fault.path: fault.message for fault in refused.value.faults}
    assert faults.keys() == {"engine", "url"}
    assert faults["engine"] == "engine is 'spark'; allowed: 'flink', which shop keeps, or another connection"
    assert connection_update(connection=connection, engine="flink", poll_interval_s=30.0).poll_interval_s == 30.0


def test_name_is_taken_once_in_a_cluster(cluster: Cluster) -> None:
    connection_create(cluster=cluster, name="shop", engine="flink")
    with pytest.raises(Conflict, match="shop"):
        connection_create(cluster=cluster, name="shop", engine="spark")


def test_paused_connection_is_resumed_once(cluster: Cluster) -> None:
    connection = connection_create(cluster=cluster, name="shop", engine="flink", url="https://flink.example")
    paused = connection_pause(connection=connection)
    assert paused.state == "paused" and connection_pause(connection=paused).state_since == paused.state_since
    with pytest.raises(Conflict, match="paused"):
        connection_refresh(connection=paused)
    assert connection_resume(connection=paused).state == "new"
    with pytest.raises(Conflict, match="only a paused one"):
        connection_resume(connection=paused)
    connection_delete(connection=paused)
    assert not Connection.objects.exists()
