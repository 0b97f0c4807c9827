from django.apps import AppConfig


class RefinementConfig(AppConfig):
    """Refined configurations of agents, and how they are rolled out."""

    name = "apps.refinement"

    def ready(self) -> None:
        from apps.refinement import giving, learning, schedules  # noqa: F401 - they register themselves
        from apps.refinement.signals import connect

        connect()
