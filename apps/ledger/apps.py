"""The ledger as an app of Django."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules

__all__ = ["LedgerConfig"]


class LedgerConfig(AppConfig):
    """Loads what apps say of undoing their changes: their modules `undo`."""

    name = "apps.ledger"

    def ready(self) -> None:
        autodiscover_modules("undo")
