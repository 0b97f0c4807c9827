"""`./sluice manage write_lock on|off`: everybody reads, and changes are refused."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.operation.write_lock import read_only_begin, read_only_end


class Command(BaseCommand):
    help = "Refuse changes of everybody (on), or take them again (off); it holds at once and over restarts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("state", choices=["on", "off"])
        parser.add_argument("--reason", default="", help="What people read above each page.")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["state"] == "on":
            read_only_begin(options["reason"])
            self.stdout.write("Changes are refused with 503 until `./sluice manage write_lock off`.")
        elif options["reason"]:
            raise CommandError("--reason is for `on`.")
        else:
            self.stdout.write("Changes are taken again." if read_only_end() else "Changes were not refused.")
