from django.apps import AppConfig


class BacktestsConfig(AppConfig):
    """Recorded telemetry replayed through another policy."""

    name = "apps.backtests"

    def ready(self) -> None:
        from apps.backtests.signals import connect

        connect()
