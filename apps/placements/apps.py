from django.apps import AppConfig


class PlacementsConfig(AppConfig):
    """Placement searches, the moves they propose, and applying them."""

    name = "apps.placements"

    def ready(self) -> None:
        from apps.placements.signals import connect

        connect()
