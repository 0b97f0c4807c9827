"""`./sluice manage migrate`: Django's, after a database of the former layout has been carried over."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.commands import migrate
from django.db import connections

from apps.core.upgrade import carry_over, is_former

__all__ = ["Command"]


class Command(migrate.Command):
    def handle(self, *args: Any, **options: Any) -> None:
        connection = connections[options["database"]]
        if is_former(connection):
            if options["check_unapplied"] or options["plan"]:
                self.stderr.write("the tables are of the layout before the squash; migrate carries them over")
                sys.exit(1)
            kept = carry_over(connection)
            if options["verbosity"]:
                self.stdout.write(f"Every row was carried over to the present tables; the former ones are in {kept}.")
        super().handle(*args, **options)
