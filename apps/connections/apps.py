from django.apps import AppConfig


class ConnectionsConfig(AppConfig):
    """Connections to engines that run elsewhere: asked on a schedule, their jobs are queries here."""

    name = "apps.connections"
