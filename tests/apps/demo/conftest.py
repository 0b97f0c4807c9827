"""The seeded demo, once for all its tests: seeding takes longer than everything that is asked of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.core.management import call_command
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from tests.apps.demo.command import seed


@pytest.fixture(scope="package")
def demo(django_db_setup: None, django_db_blocker: DjangoDbBlocker, _redis_server: str) -> Iterator[str]:
    """Output of the seeding. The rows are committed, as the command commits them, and flushed after the last test."""
    hashers = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # those of the tests, who sign in
    try:
        with django_db_blocker.unblock(), override_settings(PASSWORD_HASHERS=hashers):
            said = seed()
        yield said
    finally:  # also of half a demo: other tests would find its rows
        with django_db_blocker.unblock():
            call_command("flush", verbosity=0, interactive=False)
