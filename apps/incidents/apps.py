from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "apps.incidents"

    def ready(self) -> None:
        from apps.incidents.refresh import connect

        connect()
