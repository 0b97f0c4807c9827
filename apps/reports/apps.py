from django.apps import AppConfig


class ReportsConfig(AppConfig):
    """Reports: defined once, written by schedule, kept and sent."""

    name = "apps.reports"

    def ready(self) -> None:
        from apps.reports import lifecycle  # noqa: F401 with it, the kind of run is registered
