from django.apps import AppConfig


class AdmissionConfig(AppConfig):
    name = "apps.admission"

    def ready(self) -> None:
        from apps.admission.signals import connect

        connect()
