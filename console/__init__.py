"""The Django project: settings, urls, ASGI, Celery."""

import gc

# A console is half a million objects that stay: at Python's own 700 new ones for a round of the collector, rounds are a
# tenth of its start, and one comes in each request.
gc.set_threshold(50_000)

from console.celery import app as celery_app  # noqa: E402

__all__ = ["celery_app"]
