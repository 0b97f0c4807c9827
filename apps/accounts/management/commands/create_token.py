"""`./sluice manage create_token`: a token for the REST API, for the operator of the installation."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.accounts.services import token_create
from apps.core.errors import SluiceError


class Command(BaseCommand):
    help = "Create a token of a user and print its secret, which is shown only now and is all of the output."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", default="admin")
        parser.add_argument("--name", default="command line", help="Name in the list of tokens.")
        parser.add_argument(
            "--scopes", default=Scope.READ, help=f"With commas, of {', '.join(Scope.values)} (default: read)."
        )
        parser.add_argument("--days", type=float, default=90.0, help="Validity in days (default: 90).")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"], is_active=True).first()
        if user is None:
            names = ", ".join(User.objects.filter(is_active=True).values_list("username", flat=True)[:10]) or "none"
            raise CommandError(f"There is no active user {options['username']!r}; there are: {names}.")
        scopes = [scope.strip() for scope in options["scopes"].split(",") if scope.strip()]
        try:
            expires_at = timezone.now() + timedelta(days=options["days"])
            _, secret = token_create(user=user, name=options["name"], scopes=scopes, expires_at=expires_at)
        except OverflowError:
            raise CommandError(f"--days {options['days']:g}: allowed is a number of days above 0.") from None
        except SluiceError as error:
            faults = "; ".join(f"{fault.path}: {fault.message}" for fault in error.faults)
            raise CommandError(f"{error.message} {faults}") from None
        self.stdout.write(secret)
