"""`./sluice manage stream_token`: the token of the stream processor for the console."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone

from apps.accounts.choices import Role, Scope
from apps.accounts.grants import grant_give
from apps.accounts.models import Token, User
from apps.accounts.services import token_create, token_digest

USERNAME = "stream-processor"


class Command(BaseCommand):
    help = (
        "Make a token of the scope ingest for the stream processor and print its secret, which is shown only now. It "
        f"belongs to the user {USERNAME}, who cannot sign in."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--file", type=Path, help="Write it there, readable for you alone; a file whose token works is kept."
        )
        parser.add_argument("--name", default="stream processor", help="What the list of tokens calls it.")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path | None = options["file"]
        if path is None:
            self.stdout.write(_new(options["name"]))
            return
        try:
            if not (path.exists() and _works(path.read_text().strip())):
                _write(path, _new(options["name"]))
        except OSError as error:
            raise CommandError(f"--file {path}: {error.strerror}.") from None
        self.stdout.write(f"the stream processor's token is in {path}")


def _new(name: str) -> str:
    user, created = User.objects.get_or_create(username=USERNAME)
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
        grant_give(user=user, role=Role.OPERATOR)
    if not user.is_active or Scope.INGEST not in user.scopes:
        raise CommandError(f"The user {USERNAME!r} may not send statistics. Give it the role Operator, and let it in.")
    return token_create(user=user, name=name, scopes=[Scope.INGEST])[1]


def _works(secret: str) -> bool:
    token = Token.objects.filter(digest=token_digest(secret), revoked_at=None, user__is_active=True).first()
    expired = token is not None and token.expires_at is not None and token.expires_at <= timezone.now()
    return token is not None and not expired and Scope.INGEST in token.scopes


def _write(path: Path, secret: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(secret + "\n")
    beside.replace(path)
