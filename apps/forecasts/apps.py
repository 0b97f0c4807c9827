from django.apps import AppConfig


class ForecastsConfig(AppConfig):
    """Load over weeks, and what it will be."""

    name = "apps.forecasts"
