"""`./sluice manage reseal`: encrypt and sign anew with the installation's key in force."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.core.keys import derived_secrets_forget, secrets_reseal
from apps.signin.sessions import sessions_resign
from engine.words import counted


class Command(BaseCommand):
    help = "Encrypt secrets and sign sessions anew with the secret key in force, while Sluice runs."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--forget-webhooks",
            action="store_true",
            help="give every webhook another secret: the key of theirs is lost",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["forget_webhooks"]:
            derived_secrets_forget()
        lost = []
        for column in secrets_reseal():
            if column.total:
                self.stdout.write(f"{column.label}: {column.resealed} of {column.total} encrypted anew")
            if column.lost:
                lost.append(f"{column.label}: {column.lost}")
        total, resigned = sessions_resign()
        self.stdout.write(f"{counted(total, 'session')}: {resigned} signed anew")
        if lost:
            raise CommandError(
                "Encrypted under keys that are neither in force nor fallbacks: "
                + "; ".join(lost)
                + ". Give the lost key "
                "in SLUICE_SECRET_KEY_FALLBACKS, or give these secrets again."
            )
        fallbacks = len(settings.SECRET_KEY_FALLBACKS)
        if fallbacks:
            self.stdout.write(
                f"The {counted(fallbacks, 'key')} of before may go as soon as every process has the new one."
            )
