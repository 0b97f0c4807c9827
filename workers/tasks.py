"""Every Celery task, for Celery's discovery."""

from workers import jobs, lifecycle, schedule

__all__ = ["jobs", "lifecycle", "schedule"]
