from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    """Refined configurations of agents, and their rollouts."""

    name = "apps.rollouts"

    def ready(self) -> None:
        from apps.rollouts import proposals  # noqa: F401 - with its receivers, and those of what it leads on
