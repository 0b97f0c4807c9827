"""The Django project: settings, urls, ASGI, Celery."""

from console.celery import app as celery_app

__all__ = ["celery_app"]
