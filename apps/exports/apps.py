from django.apps import AppConfig


class ExportsConfig(AppConfig):
    name = "apps.exports"
    label = "exports"
    verbose_name = "Exports"

    def ready(self) -> None:
        from apps.exports.notices import connect

        connect()
