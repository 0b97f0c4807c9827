from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "apps.incidents"
    label = "incidents"
    verbose_name = "Incidents"

    def ready(self) -> None:
        from apps.incidents.refresh import connect

        connect()
