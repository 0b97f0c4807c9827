"""`./sluice manage restore FILE`: a backup in the place of a console that is stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.errors import SluiceError
from apps.operation.backups import backup_restore
from engine.words import counted


class Command(BaseCommand):
    help = "Verify a backup, bring it up to date, and put it in the place of a console that is stopped."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="What `backup` wrote.")
        parser.add_argument(
            "--replace", action="store_true", help="Also where the console has data, which are kept under another name."
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            manifest, kept = backup_restore(options["file"].absolute(), replace=options["replace"])
        except SluiceError as error:
            lines = [error.message, *(f"  {fault.path}: {fault.message}" for fault in error.faults)]
            raise CommandError("\n".join(lines)) from None
        self.stdout.write(
            f"Restored {counted(sum(manifest.rows.values()), 'row')} of {manifest.made_at:%Y-%m-%d %H:%M:%S} UTC, "
            f"made by version {manifest.version}. Start Sluice again."
        )
        for name in kept:
            self.stdout.write(f"Kept what was there: {name}. Remove it once it is not wanted any more.")
