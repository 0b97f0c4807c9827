from django.apps import AppConfig


class PlansConfig(AppConfig):
    """Alternative plans of a query, compared by estimate."""

    name = "apps.plans"

    def ready(self) -> None:
        from apps.plans.signals import connect

        connect()
