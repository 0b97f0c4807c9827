from django.apps import AppConfig


class ConnectionsConfig(AppConfig):
    name = "apps.connections"

    def ready(self) -> None:
        from apps.connections.selectors import jobs_unobserved
        from apps.estimates.objectives import observe_with

        observe_with(jobs_unobserved)
