from django.apps import AppConfig


class AdmissionConfig(AppConfig):
    name = "apps.admission"

    def ready(self) -> None:
        from apps.admission import previews  # noqa: F401 with it, the kind of run is registered
