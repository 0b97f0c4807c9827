"""However many requests come at once, a process keeps no more connections to PostgreSQL than it may."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.postgres, pytest.mark.process]
_ROOT = Path(__file__).resolve().parents[2]
_MANY_AT_ONCE = """
import threading
import django
django.setup()
from django.db import connection

def request():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.1)")
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        seen.append(cursor.fetchone()[0])
    connection.close()

seen = []
threads = [threading.Thread(target=request) for _ in range(30)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(seen), max(seen))
"""


def test_connections_are_bounded_and_waited_for(postgres_url: str, tmp_path: Path) -> None:
    env = os.environ | {
        "DATABASE_URL": postgres_url,
        "SLUICE_VAR_DIR": str(tmp_path),
        "SLUICE_DATABASE_CONNECTIONS": "3",
        "DJANGO_SETTINGS_MODULE": "console.settings",
    }
    command = [sys.executable, "-c", _MANY_AT_ONCE]
    done = subprocess.run(command, cwd=_ROOT, env=env, capture_output=True, text=True, check=True)
    answered, most = map(int, done.stdout.split())
    assert answered == 30
    assert most <= 3
    assert not done.stderr, "a process ends without a word about its pool"
