from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Agents, their sources, live queries, and ingest."""

    name = "apps.telemetry"

    def ready(self) -> None:
        # they register themselves: with snapshots of clusters, and with the description of the API
        from apps.telemetry import directory, selectors  # noqa: F401
        from apps.telemetry.live_services import connect

        connect()
