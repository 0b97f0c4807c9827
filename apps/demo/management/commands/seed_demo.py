"""`./sluice manage seed_demo`: a small living demo."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from apps.demo.build import PASSWORD, demo_build

__all__ = ["Command"]


class Command(BaseCommand):
    help = "Fill an empty installation with a demo: two clusters, running queries, and a request for each verdict."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--in-background", action="store_true", help="leave what takes longer to the workers")

    def handle(self, *args: Any, **options: Any) -> None:
        started = time.perf_counter()
        demo_build(self.stdout.write, in_background=options["in_background"])
        self.stdout.write(f"The demo is there ({time.perf_counter() - started:.0f} s).")
        self.stdout.write(
            self.style.SUCCESS(f"Sign in as demo with the password {PASSWORD} (or as viewer, to look only).")
        )
