from django.apps import AppConfig


class MicrobatchConfig(AppConfig):
    """Spark queries that are watched: their micro-batches, measured and predicted."""

    name = "apps.microbatch"
