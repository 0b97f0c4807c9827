from django.apps import AppConfig


class PoliciesConfig(AppConfig):
    """Policies of clusters: versions, checks, and the one in force."""

    name = "apps.policies"
