"""Changes to alert rules and alerts, and retention of results and alerts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Q, QuerySet, Sum
from django.db.models.functions import Length
from django.db.models.signals import post_save
from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Fault, Malformed
from apps.core.events import announce
from apps.ledger.recorder import recorded
from apps.queries.models import Query
from apps.results.evaluation import alerts_announce, condition_check
from apps.results.models import (
    MAX_WINDOWS_IN_A_ROW,
    Alert,
    AlertEvent,
    AlertNotice,
    AlertRule,
    AlertState,
    Comparison,
    ResolvedBy,
    ResultWindow,
    Severity,
)
from apps.results.notices import alerts_notify, recipient_faults
from apps.results.rows import is_number
from apps.results.selectors import result_schema
from apps.telemetry.models import LiveQuery, LiveState

__all__ = [
    "ALERTS_KEPT",
    "MAX_BYTES",
    "MAX_WINDOWS",
    "RESULTS_KEPT",
    "alert_acknowledge",
    "alert_rule_create",
    "alert_rule_delete",
    "alert_rule_update",
    "alerts_settle",
    "connect",
    "results_purge",
]

#: A change of these makes what fires now an alert of another rule.
_MEANING = ("column", "comparison", "threshold", "for_windows", "where")
_FIELDS = (*_MEANING, "name", "severity", "enabled", "emails", "webhooks")


@recorded()
def alert_rule_create(*, query: Query, user: User | None = None, **values: Any) -> AlertRule:
    """Watch a column of a query's results.

    Raises
    ------
    Malformed
        With every fault of the values.
    Conflict
        The query has a rule of that name.
    """
    row = AlertRule(query=query, created_by=user, **values)
    _check(row)
    _save(row)
    return row


@recorded()
def alert_rule_update(*, rule: AlertRule, **values: Any) -> AlertRule:
    """Change a rule. What it fires now is resolved where the rule means something else afterwards."""
    row = AlertRule.objects.select_for_update().get(pk=rule.pk)
    before = {name: getattr(row, name) for name in _MEANING}
    for name, value in values.items():
        if name in _FIELDS:
            setattr(row, name, value)
    _check(row)
    row.fault, row.unlisted = "", 0
    _save(row)
    if not row.enabled or any(getattr(row, name) != value for name, value in before.items()):
        _settle(row.query, ResolvedBy.CHANGED, [row])
    return row


@recorded()
def alert_rule_delete(*, rule: AlertRule) -> None:
    """Delete a rule with its alerts."""
    query = rule.query
    _locked(AlertRule.objects.filter(pk=rule.pk))
    rule.delete()
    alerts_announce(query)
    announce(f"results:{query.pk}")


@transaction.atomic
def alert_acknowledge(*, alert: Alert, user: User | None = None, note: str = "") -> Alert:
    """Somebody has seen it. The first who says so is remembered; it goes on firing until its value is back."""
    row = Alert.objects.select_for_update(of=("self",)).select_related("rule__query__cluster").get(pk=alert.pk)
    if len(note) > 200:
        raise Malformed("note: it is too long.", [Fault("note", f"it has {len(note)} characters; allowed: 200")])
    if row.acknowledged_at is None:
        row.acknowledged_at, row.acknowledged_by, row.note = timezone.now(), user, note
        row.save(update_fields=["acknowledged_at", "acknowledged_by", "note"])
        alerts_announce(row.rule.query)
        announce(f"results:{row.rule.query_id}")
    return row


@transaction.atomic
def alerts_settle(*, query: Query) -> None:
    """Resolve what fires of a query that runs no more: nothing would ever say that its values are back."""
    _settle(query, ResolvedBy.STOPPED, _locked(AlertRule.objects.filter(query=query)))


def _settle(query: Query, why: str, rules: Sequence[AlertRule]) -> None:
    """Resolve what fires of rules that the caller has locked."""
    firing = Alert.objects.filter(rule__in=rules, state=AlertState.FIRING)
    by_rule: dict[int, list[Alert]] = {}
    for alert in firing.select_for_update():
        by_rule.setdefault(alert.rule_id, []).append(alert)
    for rule in (rule for rule in rules if rule.pk in by_rule):
        alerts = by_rule[rule.pk]
        rows = Alert.objects.filter(pk__in=[alert.pk for alert in alerts])
        rows.update(state=AlertState.RESOLVED, resolved_at=timezone.now(), resolved_by=why)
        alerts_notify(rule, AlertEvent.RESOLVED, alerts)
    if by_rule:
        alerts_announce(query)
        announce(f"results:{query.pk}")


def _locked(rules: QuerySet[AlertRule]) -> list[AlertRule]:
    """The rules, locked before their alerts as evaluation does: in another order both would wait for each other."""
    return list(rules.select_for_update())


def _save(row: AlertRule) -> None:
    try:
        with transaction.atomic():
            row.save()
    except IntegrityError:
        message = f"name is {row.name!r}; {row.query.name} has a rule of that name"
        raise Conflict(f"{row.query.name} has a rule {row.name!r}.", [Fault("name", message)]) from None
    announce(f"results:{row.query_id}")


def _check(row: AlertRule) -> None:
    """Every fault at once."""
    faults = []
    if not row.name.strip() or len(row.name) > 80:
        faults.append(Fault("name", f"name is {row.name[:90]!r}; allowed: 1 to 80 characters"))
    for name, kind in (("comparison", Comparison), ("severity", Severity)):
        if getattr(row, name) not in kind.values:
            faults.append(Fault(name, f"{name} is {getattr(row, name)!r}; allowed: {', '.join(kind.values)}"))
    if not math.isfinite(row.threshold):
        faults.append(Fault("threshold", f"threshold is {row.threshold}; allowed: a number"))
    if not 1 <= row.for_windows <= MAX_WINDOWS_IN_A_ROW:
        allowed = f"a whole number from 1 to {MAX_WINDOWS_IN_A_ROW}"
        faults.append(Fault("for_windows", f"for_windows is {row.for_windows}; allowed: {allowed}"))
    faults += _column_faults(row) + recipient_faults(row.emails, row.webhooks)
    if faults:
        raise Malformed(f"{faults[0].path}: {faults[0].message}.", faults)


def _column_faults(row: AlertRule) -> list[Fault]:
    """Check of its column and condition against the results, as far as their columns are known."""
    schema = result_schema(row.query)
    if schema is None:
        return [] if row.column.strip() else [Fault("column", "column is missing")]
    faults = []
    numbers = [field.name for field in schema if is_number(field.type)]
    if row.column not in numbers:
        allowed = ", ".join(numbers) or "the results have no number"
        faults.append(Fault("column", f"column is {row.column!r}; allowed: {allowed}"))
    try:
        condition_check(schema, row.where)
    except Malformed as error:
        faults += error.faults
    return faults


def connect() -> None:
    """Called once, when Django is ready."""
    post_save.connect(_live_saved, sender=LiveQuery, dispatch_uid="results.live_saved")


def _live_saved(sender: type, instance: LiveQuery, **_: Any) -> None:
    if instance.state == LiveState.STOPPED:
        alerts_settle(query=instance.query)


RESULTS_KEPT = timedelta(days=7)
MAX_WINDOWS = 60_480  # of a query: a week of ten-second windows
MAX_BYTES = 256 * 2**20  # of a query's rows, as they are stored
ALERTS_KEPT = timedelta(days=90)
_AT_ONCE = 500


def results_purge() -> int:
    """Purge old windows and alerts resolved long ago; returns how many rows."""
    now = timezone.now()
    old = ResultWindow.objects.filter(received_at__lt=now - RESULTS_KEPT)
    gone = _delete(list(old.values_list("pk", flat=True)))
    held = ResultWindow.objects.values("query").order_by().annotate(n=Count("pk"), held=Sum(Length("body")))
    for query_id in held.filter(Q(n__gt=MAX_WINDOWS) | Q(held__gt=MAX_BYTES)).values_list("query", flat=True):
        gone += _delete(_beyond(query_id))
    resolved = Alert.objects.filter(state=AlertState.RESOLVED, resolved_at__lt=now - ALERTS_KEPT)
    notices = AlertNotice.objects.filter(created_at__lt=now - ALERTS_KEPT)
    return gone + resolved.delete()[0] + notices.delete()[0]


def _beyond(query_id: int) -> list[int]:
    """The windows of a query for which there is no room, the oldest; the newest always has."""
    rows = ResultWindow.objects.filter(query_id=query_id).order_by("-window_us", "-pk")
    sizes = list(rows.annotate(size=Length("body")).values_list("pk", "size"))
    sums = accumulate(size for _, size in sizes)
    fits = sum(total <= MAX_BYTES for total in sums)
    return [pk for pk, _ in sizes[max(1, min(fits, MAX_WINDOWS)) :]]


def _delete(keys: list[int]) -> int:
    """Delete in short transactions, so that results can be stored in between."""
    for first in range(0, len(keys), _AT_ONCE):
        ResultWindow.objects.filter(pk__in=keys[first : first + _AT_ONCE]).delete()
    return len(keys)
