from django.apps import AppConfig


class QueriesConfig(AppConfig):
    name = "apps.queries"

    def ready(self) -> None:
        from apps.queries import imports  # noqa: F401 with it, the kind of run is registered
