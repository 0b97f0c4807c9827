from django.apps import AppConfig


class RefinementConfig(AppConfig):
    """Refined configurations of agents, and how they are rolled out."""

    name = "apps.refinement"
