from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    """Refined configurations of agents, and their rollouts."""

    name = "apps.rollouts"

    def ready(self) -> None:
        from apps.rollouts.rollout import proposals  # noqa: F401 - they register themselves
        from apps.rollouts.signals import connect

        connect()
