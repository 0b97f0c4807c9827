"""The world of the contracts, built once for all their tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command

from tests.apps.contracts.world import build_world


@pytest.fixture(scope="package")
def world(django_db_setup: None, django_db_blocker: Any, _redis_server: str) -> Iterator[dict[str, Any]]:
    """Parts of addresses by name. The rows are committed, and flushed after the last test."""
    with django_db_blocker.unblock():
        built = build_world()
    yield built
    with django_db_blocker.unblock():
        call_command("flush", interactive=False, verbosity=0)
