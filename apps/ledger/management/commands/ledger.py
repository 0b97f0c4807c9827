"""`./sluice manage ledger verify`: whether the history is as it was written."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.ledger.chain import chain_faults
from apps.ledger.models import ObjectChange
from engine.words import counted


class Command(BaseCommand):
    help = "Verify the chain of the ledger: changes that were altered or cut out."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["verify"])

    def handle(self, *args: Any, **options: Any) -> None:
        faults = list(chain_faults())
        if faults:
            raise CommandError("The ledger is not as it was written:\n" + "\n".join(faults))
        chained = ObjectChange.objects.exclude(number=None)
        waiting = ObjectChange.objects.filter(number=None).count()
        self.stdout.write(f"{counted(chained.count(), 'change')} follow each other; {waiting} are not chained yet.")
