from django.apps import AppConfig


class EstimatesConfig(AppConfig):
    name = "apps.estimates"
    label = "estimates"
    verbose_name = "Estimates"

    def ready(self) -> None:
        from apps.estimates.refresh import connect

        connect()
