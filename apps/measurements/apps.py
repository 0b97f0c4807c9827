from django.apps import AppConfig


class MeasurementsConfig(AppConfig):
    """Statistics of operators measured by telemetry, and the evidence behind them."""

    name = "apps.measurements"

    def ready(self) -> None:
        from apps.measurements import frames, statistics  # noqa: F401  the receiver registers itself

        statistics.connect()
