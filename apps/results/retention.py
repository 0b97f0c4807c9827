"""Retention of results and alerts."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

from django.db.models import Count, Q, Sum
from django.db.models.functions import Length
from django.utils import timezone

from apps.results.choices import AlertState
from apps.results.models import Alert, AlertNotice, ResultWindow

__all__ = ["ALERTS_KEPT", "MAX_BYTES", "MAX_WINDOWS", "RESULTS_KEPT", "results_purge"]

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
