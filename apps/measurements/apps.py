from django.apps import AppConfig


class MeasurementsConfig(AppConfig):
    """Statistics of operators measured by telemetry, and the evidence behind them."""

    name = "apps.measurements"
