from django.apps import AppConfig


class QueriesConfig(AppConfig):
    name = "apps.queries"
    label = "queries"
    verbose_name = "Queries"
