from django.apps import AppConfig


class SavedViewsConfig(AppConfig):
    """Filters, search and order of lists, kept under a name."""

    name = "apps.saved_views"
    label = "saved_views"
    verbose_name = "Saved views"
