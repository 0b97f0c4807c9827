from django.apps import AppConfig


class AdmissionConfig(AppConfig):
    name = "apps.admission"

    def ready(self) -> None:
        from apps.admission import previews  # noqa: F401 with it, the kind of run is registered
        from apps.admission.models import AdmissionRequest
        from apps.ledger.entries import DECIDED_MODELS

        DECIDED_MODELS["decision"] = AdmissionRequest
