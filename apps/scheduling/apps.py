from django.apps import AppConfig


class SchedulingConfig(AppConfig):
    """How agents share their cores between queries, and what another policy would change."""

    name = "apps.scheduling"
