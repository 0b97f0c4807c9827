"""The Celery application. Tasks live in `workers`; apps send them by name."""

import os
from typing import Any

from celery import Celery
from celery.signals import heartbeat_sent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("sluice")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["workers"])


@heartbeat_sent.connect
def note_life(**kwargs: Any) -> None:
    """Record a heartbeat for each queue the worker takes from, every two seconds; `/healthz` reads it."""
    from apps.core.health import worker_beat  # the apps are loaded only after this module

    worker_beat(app.amqp.queues.consume_from)
