"""`./sluice manage backup FILE`: the console, saved while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.errors import SluiceError
from apps.operation.archives import DATABASE_MEMBER
from apps.operation.backups import backup_write
from engine.words import counted


class Command(BaseCommand):
    help = "Save database and history to a new file while the console runs; it says what is left out."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="A new file, which its owner alone may read.")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"].absolute()
        try:
            manifest = backup_write(path)
        except SluiceError as error:
            raise CommandError(error.message) from None
        rows, files = sum(manifest.rows.values()), len(manifest.members) - 1
        self.stdout.write(
            f"{path}: {path.stat().st_size / 1e6:.1f} MB, {counted(rows, 'row')} in "
            f"{counted(len(manifest.rows), 'table')}, {counted(files, 'file')} of the history, "
            f"digest of the database {manifest.members[DATABASE_MEMBER].sha256[:12]}."
        )
        self.stdout.write("Left out:")
        for name, fate in manifest.left_out.items():
            self.stdout.write(f"  {name}: {fate}")
