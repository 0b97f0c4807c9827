"""Changes to connections: create, change, pause, delete; checks, imports and refreshes are asked for as jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from apps.accounts.models import User
from apps.connections.broker_addresses import broker_faults, is_broker_url
from apps.connections.choices import ConnectionEngine, ConnectionOrigin, ConnectionState
from apps.connections.models import TOKEN_PURPOSE, Connection
from apps.connections.transport import ca_faults, is_listed, url_faults
from apps.core.clock import shared_now
from apps.core.errors import Conflict, Fault
from apps.core.events import announce
from apps.core.secrets import seal_secret
from apps.fleet.models import Cluster
from apps.fleet.services import cluster_announce
from apps.fleet.validation import check_free, check_row
from apps.jobs.models import Job, JobKind
from apps.jobs.services import job_submit
from apps.ledger.recorder import recorded
from engine.connectors.mapped_operators import MappedOperator
from engine.errors import Fault as EngineFault
from engine.errors import value_words

__all__ = [
    "connection_announce",
    "connection_check",
    "connection_create",
    "connection_delete",
    "connection_import",
    "connection_pause",
    "connection_refresh",
    "connection_resume",
    "connection_update",
    "state_change",
]

_QUERIES = ("latency_query", "lag_query")


def connection_announce(connection: Connection) -> None:
    """Tell open pages that a connection changed."""
    announce(f"connections:{connection.cluster.slug}")
    announce(f"connection:{connection.pk}")


@recorded()
def connection_create(
    *,
    cluster: Cluster,
    name: str,
    engine: str,
    url: str = "",
    token: str = "",
    user: User | None = None,
    **fields: Any,
) -> Connection:
    """Create a connection; nothing is asked yet. Without a URL its answers come by upload.

    Raises
    ------
    Malformed
        With every fault: a URL that cannot be used, certificates that are none, PromQL without a Prometheus.
    Conflict
        The name is taken.
    """
    origin = ConnectionOrigin.URL if url else ConnectionOrigin.UPLOAD
    connection = Connection(
        cluster=cluster, name=name, engine=engine, origin=origin, url=url, created_by=user, **fields
    )
    _check(connection, token)
    check_free(cluster.connections.all(), connection, name=name)
    connection.sealed_token = seal_secret(token, TOKEN_PURPOSE)
    connection.save()
    cluster_announce(cluster)
    connection_announce(connection)
    return connection


@recorded()
def connection_update(*, connection: Connection, token: str | None = None, **fields: Any) -> Connection:
    """Change a connection. The token stays unless another is given; empty: none. Its cluster and engine stay.

    Raises
    ------
    Malformed, Conflict
        As when it is created; another cluster or engine; a URL for one whose answers are uploaded.
    """
    row = _locked(connection)
    fixed = {name: fields.pop(name) for name in ("cluster", "engine") if name in fields}
    faults = [
        Fault(name, f"{name} is {str(value)!r}; allowed: {str(stays)!r}, which {row.name} keeps, or another connection")
        for name, value in fixed.items()
        if value != (stays := getattr(row, name))
    ]
    if "url" in fields and bool(fields["url"]) != bool(row.url):
        faults.append(Fault("url", "a connection is by URL or by upload for good; make another one instead"))
    if "name" in fields and fields["name"] != row.name and row.imported_at is not None:
        faults.append(Fault("name", "the pool of its nodes is named after it; allowed: to rename it before an import"))
    moved = fields.get("url", row.url) != row.url
    if moved and token is None and row.sealed_token:
        faults.append(
            Fault("token", "token is missing; the old one is not sent to another URL, give it again or empty")
        )
    for name, value in fields.items():
        setattr(row, name, value)
    _check(row, token or "", faults)
    check_free(row.cluster.connections.all(), row, name=row.name)
    if token is not None:
        row.sealed_token = seal_secret(token, TOKEN_PURPOSE)
    if row.state in {ConnectionState.AWAY, ConnectionState.REFUSED}:
        row.state, row.state_since, row.state_words = ConnectionState.NEW, shared_now(), ""
    row.save()
    connection_announce(row)
    return row


@recorded()
def connection_delete(*, connection: Connection) -> None:
    """Delete a connection with what it polled. Queries, nodes and statistics that it brought stay as they are."""
    connection_announce(connection)
    cluster_announce(connection.cluster)
    connection.delete()


@recorded()
def connection_pause(*, connection: Connection) -> Connection:
    """Ask nothing more until it is resumed. Pausing twice changes nothing."""
    return state_change(_locked(connection), ConnectionState.PAUSED, "")


@recorded()
def connection_resume(*, connection: Connection) -> Connection:
    """Ask again from now on.

    Raises
    ------
    Conflict
        It is not paused.
    """
    row = _locked(connection)
    if row.state != ConnectionState.PAUSED:
        raise Conflict(f"The connection {row.name!r} is {row.get_state_display().lower()}; only a paused one resumes.")
    row.asked_at = None
    row.save(update_fields=["asked_at"])
    return state_change(row, ConnectionState.NEW, "")


def state_change(connection: Connection, state: str, words: str) -> Connection:
    """Store a connection's state with its reason; the time since when stays while the state does."""
    if connection.state != state:
        connection.state, connection.state_since = state, shared_now()
        cluster_announce(connection.cluster)
    connection.state_words = words[:500]
    connection.save(update_fields=["state", "state_since", "state_words", "updated_at"])
    connection_announce(connection)
    return connection


def connection_check(*, connection: Connection, user: User | None = None) -> Job:
    """Have a worker look at what the engine answers; findings and costs stand in the connection afterwards.

    No pools, nodes, queries or statistics are stored by a check.
    """
    return _submit(JobKind.CONNECTION_CHECK, f"Check the connection {connection.name}", connection, user)


def connection_import(
    *,
    connection: Connection,
    user: User | None = None,
    objectives: Mapping[str, object] | None = None,
    jobs: Sequence[str] | None = None,
) -> Job:
    """Have a worker turn the engine's jobs into running queries with measured statistics.

    `objectives`: by a job's name, `{"statistic": "worst", "bound_s": 5.0}`; `*` is for every job. None by default.
    `jobs`: names or ids of jobs in place of the connection's own choice.
    """
    params = {"objectives": dict(objectives or {}), "jobs": list(jobs) if jobs is not None else None}
    return _submit(JobKind.CONNECTION_IMPORT, f"Import the jobs of {connection.name}", connection, user, params)


def connection_refresh(*, connection: Connection, user: User | None = None) -> Job:
    """Have a worker ask once more now, outside the schedule.

    Raises
    ------
    Conflict
        It is paused, was never imported, or its answers are uploaded.
    """
    if connection.state == ConnectionState.PAUSED:
        raise Conflict(f"The connection {connection.name!r} is paused. Resume it first.")
    if connection.origin == ConnectionOrigin.UPLOAD:
        raise Conflict(f"The answers of {connection.name!r} are uploaded. Upload newer ones instead.")
    if connection.imported_at is None:
        raise Conflict(f"Nothing of {connection.name!r} was imported yet. Import its jobs first.")
    return _submit(JobKind.CONNECTION_REFRESH, f"Refresh {connection.name}", connection, user)


def _submit(
    kind: JobKind, title: str, connection: Connection, user: User | None, params: Mapping[str, object] | None = None
) -> Job:
    return job_submit(
        kind=kind,
        title=title,
        params={"connection": connection.pk, **(params or {})},
        cluster=connection.cluster,
        user=user,
    )


def _locked(connection: Connection) -> Connection:
    rows = Connection.objects.select_for_update(of=("self",)).select_related("cluster")
    Connection.ledger_touch(connection.pk)
    return rows.get(pk=connection.pk)


def _check(connection: Connection, token: str, faults: Sequence[Fault] = ()) -> None:
    """Refuse a connection with every fault of it."""
    all_faults = list(faults)
    is_broker = connection.engine == ConnectionEngine.KAFKA and is_broker_url(connection.url)
    for name in ("url", "prometheus_url"):
        if getattr(connection, name) and not (is_broker and name == "url"):
            all_faults += url_faults(getattr(connection, name), name)
    if is_broker:
        all_faults += broker_faults(connection.url, token=token, has_token=bool(token or connection.sealed_token))
    all_faults += ca_faults(connection.ca_pem)
    if token and (not token.isascii() or not token.isprintable() or " " in token or len(token) > 4096):
        all_faults.append(
            Fault("token", "token holds other than up to 4,096 printable ASCII characters without spaces")
        )
    is_https = connection.url.lower().startswith("https:")
    if token and connection.url and not is_broker and not is_https and not is_listed(connection.url):
        message = "a token is not sent in the clear; allowed: with https, or to a host in SLUICE_CONNECT_HOSTS"
        all_faults.append(Fault("token", message))
    names = connection.job_names
    if not isinstance(names, list) or not all(isinstance(name, str) and 0 < len(name) <= 200 for name in names):
        all_faults.append(Fault("job_names", "allowed: a list of names or ids of jobs, up to 200 characters each"))
    asks_prometheus = connection.engine == ConnectionEngine.PROMETHEUS or connection.prometheus_url
    for name in _QUERIES:
        if getattr(connection, name) and not asks_prometheus and connection.origin == ConnectionOrigin.URL:
            all_faults.append(Fault("prometheus_url", f"prometheus_url is missing; {name} needs it"))
            break
    all_faults += _operator_faults(connection)
    if connection.latency_metric and connection.latency_query:
        all_faults.append(Fault("latency_query", "latency_metric is given as well; allowed: one of them"))
    elif connection.latency_metric and connection.engine != ConnectionEngine.FLINK:
        message = f"{connection.engine} has no operator metrics that are asked for; allowed: latency_query"
        all_faults.append(Fault("latency_metric", message))
    check_row(connection, all_faults)


def _operator_faults(connection: Connection) -> list[Fault]:
    """Faults of the operators that a Prometheus is asked for."""
    if not connection.operators:
        return []
    if connection.engine != ConnectionEngine.PROMETHEUS:
        return [Fault("operators", f"{connection.engine} tells its operators itself; allowed: none")]
    faults: list[EngineFault] = []
    if not isinstance(connection.operators, list):
        return [Fault("operators", f"operators is {value_words(connection.operators)}; allowed: a list")]
    for i, operator in enumerate(connection.operators):
        MappedOperator.read(operator, "operators", i, faults)
    return [Fault(fault.path, fault.message) for fault in faults]
