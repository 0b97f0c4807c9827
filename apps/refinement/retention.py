"""How long configurations are kept that no agent has any more."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from apps.refinement.choices import ConfigState
from apps.refinement.models import RefinedConfig

__all__ = ["CONFIGS_KEPT", "configs_purge"]

CONFIGS_KEPT = timedelta(days=30)
_OVER = (ConfigState.REFUSED, ConfigState.SUPERSEDED, ConfigState.STOPPED, ConfigState.ROLLED_BACK)


@transaction.atomic
def configs_purge(now: datetime | None = None) -> int:
    """Forget configurations that ended long ago; returns how many.

    A cluster's newest one stays, so that no number is ever given twice.
    """
    newest = RefinedConfig.objects.values("cluster").annotate(number=Max("number"))
    old = RefinedConfig.objects.filter(state__in=_OVER, updated_at__lt=(now or timezone.now()) - CONFIGS_KEPT)
    for row in newest:
        old = old.exclude(cluster=row["cluster"], number=row["number"])
    gone = old.count()
    old.delete()
    return gone
