from django.apps import AppConfig


class PredictionsConfig(AppConfig):
    name = "apps.predictions"

    def ready(self) -> None:
        from apps.predictions import fine_tunings  # noqa: F401 with it, the kind of run is registered
