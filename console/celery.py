"""The Celery application. Tasks live in `workers`; apps send them by name."""

import logging
import os
from typing import Any

from celery import Celery
from celery.signals import (
    after_setup_logger,
    after_setup_task_logger,
    before_task_publish,
    heartbeat_sent,
    task_postrun,
    task_prerun,
    worker_process_shutdown,
)

from apps.core.logs import BoundFormatter, begin_task, end_task, line_formatter, pass_request_on
from apps.core.traces import TracedTask, flush_spans, pass_parent_on
from console.env import ENV
from engine.redaction import RedactingFormatter

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

app = Celery("sluice", task_cls=TracedTask if ENV.otlp_endpoint else None)
before_task_publish.connect(pass_request_on)
task_prerun.connect(begin_task)
task_postrun.connect(end_task)
if ENV.otlp_endpoint:
    before_task_publish.connect(pass_parent_on)
    worker_process_shutdown.connect(flush_spans)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["workers"])


@after_setup_logger.connect
@after_setup_task_logger.connect
def format_lines(logger: Any, **kwargs: Any) -> None:
    """Celery brings handlers of its own: their lines name request, job and trace, and show no secrets either."""
    for handler in logger.handlers:
        if ENV.log_format == "json":
            handler.setFormatter(line_formatter(is_json=True))
        elif not isinstance(handler.formatter, RedactingFormatter | BoundFormatter):
            handler.setFormatter(BoundFormatter(handler.formatter or logging.Formatter()))


@heartbeat_sent.connect
def note_life(**kwargs: Any) -> None:
    """Record a heartbeat for each queue the worker takes from, every two seconds; `/healthz` reads it."""
    from apps.core.health import worker_beat  # the apps are loaded only after this module

    worker_beat(app.amqp.queues.consume_from)
