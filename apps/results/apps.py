from django.apps import AppConfig


class ResultsConfig(AppConfig):
    """Results of live queries, and alerts on them."""

    name = "apps.results"

    def ready(self) -> None:
        from apps.results import windows  # noqa: F401 - registers itself for RESULT frames
        from apps.results.services import connect

        connect()
