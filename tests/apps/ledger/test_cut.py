"""A row of the ledger that somebody changes by SQL is found, and named."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from apps.estimates.refresh import refresh_paused
from apps.ledger.chain import ledger_seal
from tests.apps.small_cluster import small_cluster


@pytest.mark.postgres
def test_changed_row_is_found_on_postgresql(postgres_db: str) -> None:
    check_changed_row()


@pytest.mark.django_db(transaction=True)
def test_changed_row_is_found_on_sqlite() -> None:
    check_changed_row()


def check_changed_row() -> None:
    with refresh_paused():
        small_cluster()
    assert ledger_seal() > 2
    call_command("ledger", "verify")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ledger_objectchange SET name = 'other' WHERE number = 2")
    with pytest.raises(CommandError, match=r"as it was written:\n2 \(.* other created, key \d+\) is not as") as error:
        call_command("ledger", "verify")
    assert error.value.returncode == 1 and len(str(error.value).splitlines()) == 2
