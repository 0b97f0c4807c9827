from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Agents, their sources, live queries, and ingest."""

    name = "apps.telemetry"

    def ready(self) -> None:
        from apps.telemetry import selectors  # noqa: F401 - registers itself with snapshots of clusters
        from apps.telemetry.agents import directory  # noqa: F401 - registers itself with the description of the API
        from apps.telemetry.live.services import connect

        connect()
