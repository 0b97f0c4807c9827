from django.apps import AppConfig


class EstimatesConfig(AppConfig):
    name = "apps.estimates"
    label = "estimates"
    verbose_name = "Estimates"
