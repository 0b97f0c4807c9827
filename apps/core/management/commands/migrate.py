"""`./sluice manage migrate`: Django's, for databases that a release up to this one made."""

from __future__ import annotations

from typing import Any

from django.core.management.commands import migrate
from django.db import connections

from apps.core.layout import TableAutodetector, check_layout

__all__ = ["Command"]


class Command(migrate.Command):
    autodetector = TableAutodetector

    def handle(self, *args: Any, **options: Any) -> None:
        check_layout(connections[options["database"]])
        super().handle(*args, **options)
