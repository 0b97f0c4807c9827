"""A window that arrives at the moment at which its query stops, or a rule of it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from django.db import connection, connections, transaction

from apps.results.models import Alert, AlertRule
from apps.results.services import alert_rule_create, alert_rule_delete
from apps.telemetry.frames import frames_receive
from apps.telemetry.live_services import live_stop
from apps.telemetry.models import LiveQuery
from tests.apps.results.rows import live_query, result
from tests.apps.small_cluster import small_cluster
from tests.servers import wait_until

Ending = Callable[[LiveQuery, AlertRule], object]


@pytest.mark.postgres
@pytest.mark.parametrize(
    ("end", "left"),
    [(lambda live, rule: live_stop(live=live), ["stopped"]), (lambda live, rule: alert_rule_delete(rule=rule), [])],
    ids=["query", "rule"],
)
def test_evaluation_and_end_of_a_query_do_not_deadlock(postgres_db: str, end: Ending, left: list[str]) -> None:
    live = live_query(small_cluster())
    rule = alert_rule_create(
        query=live.query, name="slow", column="rtt", comparison="gt", threshold=20.0, emails=["ops@example.org"]
    )
    frames_receive([result(live.query, {("a", "b"): 30.0}, 0)])
    outcomes: list[str] = []

    def other() -> None:
        try:
            end(live, rule)
            outcomes.append("done")
        except Exception as error:
            outcomes.append(repr(error))
        finally:
            connections.close_all()

    thread = threading.Thread(target=other)
    with transaction.atomic():  # locks in the order in which a window's evaluation takes them
        list(AlertRule.objects.select_for_update().filter(query=live.query))
        thread.start()
        wait_until(_somebody_waits, what="the other one to wait")
        assert len(rule.alerts.select_for_update()) == 1
    thread.join()
    assert outcomes == ["done"]
    assert list(Alert.objects.values_list("resolved_by", flat=True)) == left


def _somebody_waits() -> bool:
    """For what this connection has locked."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))")
        return cursor.fetchone() is not None
