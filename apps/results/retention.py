"""How long results and alerts are kept."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Count
from django.utils import timezone

from apps.results.choices import AlertState
from apps.results.models import Alert, ResultWindow

__all__ = ["ALERTS_KEPT", "MOST_WINDOWS", "RESULTS_KEPT", "results_purge"]

RESULTS_KEPT = timedelta(days=7)
MOST_WINDOWS = 50_000  # of a query: a week of ten-second windows is 60,480
ALERTS_KEPT = timedelta(days=90)
_AT_ONCE = 500


def results_purge() -> int:
    """Forget old windows and alerts resolved long ago; returns how many rows."""
    now = timezone.now()
    old = ResultWindow.objects.filter(received_at__lt=now - RESULTS_KEPT)
    gone = _delete(list(old.values_list("pk", flat=True)))
    full = ResultWindow.objects.values("query").annotate(n=Count("pk")).filter(n__gt=MOST_WINDOWS).order_by()
    for query_id in full.values_list("query", flat=True):
        rows = ResultWindow.objects.filter(query_id=query_id).order_by("-window_us", "-pk")
        gone += _delete(list(rows.values_list("pk", flat=True)[MOST_WINDOWS:]))
    resolved = Alert.objects.filter(state=AlertState.RESOLVED, resolved_at__lt=now - ALERTS_KEPT)
    return gone + resolved.delete()[0]


def _delete(keys: list[int]) -> int:
    """In short transactions, so that results can be stored in between."""
    for first in range(0, len(keys), _AT_ONCE):
        ResultWindow.objects.filter(pk__in=keys[first : first + _AT_ONCE]).delete()
    return len(keys)
