"""The temporary PostgreSQL server of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.places import port_answers
from launcher.servers import PostgresError, PostgresServer, find_postgres
from tests.databases import scratch_database


@pytest.mark.postgres
def test_it_starts_serves_and_leaves_nothing() -> None:
    tools = find_postgres()
    if tools is None:
        pytest.skip("the tests use a server from elsewhere; its programs are not installed here")
    server = PostgresServer(tools)
    server.start()
    try:
        server.wait()
        with scratch_database(server.url) as url:
            assert url.startswith(f"postgres://sluice@127.0.0.1:{server.port}/scratch_")
    finally:
        server.stop()
    assert not port_answers(server.port)


def test_failed_start_has_the_message_of_postgresql(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("launcher.servers._as_other_user", list)
    for name in ("initdb", "postgres"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'initdb: no space left on device' >&2\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    server = PostgresServer(tmp_path)
    server.start()
    with pytest.raises(PostgresError, match="no space left on device"):
        server.wait()
    server.stop()
