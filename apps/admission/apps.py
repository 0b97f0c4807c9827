from django.apps import AppConfig


class AdmissionConfig(AppConfig):
    name = "apps.admission"

    def ready(self) -> None:
        from apps.admission.services import connect

        connect()
