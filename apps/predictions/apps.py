from django.apps import AppConfig


class PredictionsConfig(AppConfig):
    name = "apps.predictions"
    label = "predictions"
    verbose_name = "Predictions"

    def ready(self) -> None:
        from apps.predictions.fine_tunings import connect

        connect()
