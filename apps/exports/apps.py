from django.apps import AppConfig


class ExportsConfig(AppConfig):
    name = "apps.exports"

    def ready(self) -> None:
        from apps.exports.notices import connect

        connect()
