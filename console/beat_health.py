"""`python -m console.beat_health`: exit code 0 while the scheduler does its work; for health checks."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

__all__ = ["main"]

# some schedules run every few seconds, and the scheduler writes their times down every three minutes
_SILENCE = timedelta(minutes=5)


def main() -> int:
    """Print when the scheduler last sent something; 1 when that is too long ago or never was."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    import django

    django.setup()
    from django.db.models import Max
    from django.utils.timezone import now
    from django_celery_beat.models import PeriodicTask

    last = PeriodicTask.objects.aggregate(last=Max("last_run_at"))["last"]
    print(f"last schedule sent: {last or 'never'}")
    return 0 if last is not None and now() - last < _SILENCE else 1


if __name__ == "__main__":
    sys.exit(main())
