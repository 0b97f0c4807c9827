from django.apps import AppConfig


class MeasurementsConfig(AppConfig):
    """Statistics of operators measured by telemetry, and the evidence behind them."""

    name = "apps.measurements"

    def ready(self) -> None:
        from apps.measurements import inheriting, receiving  # noqa: F401  the receiver registers itself

        inheriting.connect()
