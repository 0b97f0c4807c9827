from django.apps import AppConfig


class AdmissionConfig(AppConfig):
    name = "apps.admission"
    label = "admission"
    verbose_name = "Admission"

    def ready(self) -> None:
        from apps.admission.signals import connect

        connect()
