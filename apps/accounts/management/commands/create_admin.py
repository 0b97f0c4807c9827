"""`./sluice manage create_admin`: the first administrator of an installation."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from apps.accounts.choices import Role
from apps.accounts.services import user_create
from apps.core.errors import Conflict, SluiceError


class Command(BaseCommand):
    help = "Create an administrator. Without --password-from-env a random password is made and printed once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", default="admin")
        parser.add_argument("--role", default=Role.ADMIN, choices=Role.values)
        parser.add_argument("--password-from-env", metavar="VARIABLE", help="Name of the variable that holds it.")
        parser.add_argument(
            "--password-to",
            metavar="FILE",
            type=Path,
            help="Write the random password there, readable for you alone, instead of printing it.",
        )
        parser.add_argument("--if-missing", action="store_true", help="Succeed quietly if the user exists.")

    def handle(self, *args: Any, **options: Any) -> None:
        variable = options["password_from_env"]
        password = os.environ.get(variable, "") if variable else secrets.token_urlsafe(15)
        if variable and not password:
            raise CommandError(f"The variable {variable} is empty; put the password into it.")
        try:
            user = user_create(username=options["username"], password=password, role=options["role"])
        except Conflict as error:
            if not options["if_missing"]:
                raise CommandError(error.message) from None
            self.stdout.write(f"There is a user {options['username']} already; nothing was changed.")
            return
        except SluiceError as error:
            faults = "; ".join(f"{fault.path}: {fault.message}" for fault in error.faults)
            raise CommandError(f"{error.message} {faults}") from None
        self.stdout.write(f"Created {Role(options['role']).label.lower()} {user.username}.")
        if variable:
            return
        if options["password_to"] is None:
            self.stdout.write(f"Password (shown only now): {password}")
            return
        with os.fdopen(os.open(options["password_to"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(password)
