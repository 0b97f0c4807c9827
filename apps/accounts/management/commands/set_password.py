"""`./sluice manage set_password`: another password for a person, for the operator of the installation."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.models import User
from apps.accounts.services import password_set
from apps.core.errors import SluiceError


class Command(BaseCommand):
    help = (
        "Give a person another password and end their sessions. Without --password-from-env a random password is made "
        "and printed once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", default="admin")
        parser.add_argument("--password-from-env", metavar="VARIABLE", help="Name of the variable that holds it.")

    def handle(self, *args: Any, **options: Any) -> None:
        variable = options["password_from_env"]
        password = os.environ.get(variable, "") if variable else secrets.token_urlsafe(15)
        if variable and not password:
            raise CommandError(f"The variable {variable} is empty; put the password into it.")
        user = User.objects.filter(username=options["username"]).first()
        if user is None:
            names = ", ".join(User.objects.values_list("username", flat=True)[:10]) or "none"
            raise CommandError(f"There is no user {options['username']!r}; there are: {names}.")
        try:
            password_set(user=user, password=password, by=None)
        except SluiceError as error:
            faults = "; ".join(f"{fault.path}: {fault.message}" for fault in error.faults)
            raise CommandError(f"{error.message} {faults}") from None
        self.stdout.write(f"{user.username} has another password; every session of theirs has ended.")
        if not variable:
            self.stdout.write(f"Password (shown only now): {password}")
