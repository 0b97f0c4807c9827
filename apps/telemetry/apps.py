from django.apps import AppConfig


class TelemetryConfig(AppConfig):
    """Agents, the sources they watch, live queries, and what agents send."""

    name = "apps.telemetry"
