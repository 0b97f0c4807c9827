from django.apps import AppConfig


class ResultsConfig(AppConfig):
    """Results of live queries, and alerts on them."""

    name = "apps.results"
