from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class QueriesConfig(AppConfig):
    name = "apps.queries"

    def ready(self) -> None:
        from apps.queries import imports  # noqa: F401 with it, the kind of run is registered

        pre_migrate.connect(_drop_triggers, sender=self, dispatch_uid="queries.triggers_drop")
        post_migrate.connect(_create_triggers, sender=self, dispatch_uid="queries.triggers")


def _drop_triggers(**_: Any) -> None:
    from apps.queries.snapshots.row_changes import triggers_drop

    triggers_drop()


def _create_triggers(**_: Any) -> None:
    from apps.queries.snapshots.row_changes import triggers_create

    triggers_create()
