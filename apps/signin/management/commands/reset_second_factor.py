"""`./sluice manage reset_second_factor`: for somebody who lost the app and the recovery codes."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.models import User
from apps.signin.second_factor import second_factor_remove


class Command(BaseCommand):
    help = "Remove the second factor of a person, so that they sign in with the password alone and set up another."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['username']!r}.")
        second_factor_remove(user=user)
        self.stdout.write(f"{user.username} signs in without a second factor.")
