from django.apps import AppConfig


class DemoConfig(AppConfig):
    """The living demo that `./sluice up` seeds."""

    name = "apps.demo"
