from django.apps import AppConfig


class EstimatesConfig(AppConfig):
    name = "apps.estimates"

    def ready(self) -> None:
        from apps.estimates.refresh import connect

        connect()
