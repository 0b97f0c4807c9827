from django.apps import AppConfig


class PlanningConfig(AppConfig):
    """What-ifs: fleets, loads and objectives that are not there yet."""

    name = "apps.planning"

    def ready(self) -> None:
        from apps.planning.signals import connect

        connect()
