"""The report of the stream processor continues when one of its duties fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from agent.wire.broker import stream_state
from spark_jobs import report
from spark_jobs.report import StatusReport
from spark_jobs.session import Options
from tests.servers import RedisServer, wait_until


def test_failed_duty_is_reported_and_tried_again(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_PERIOD_S", 0.02)
    disk = {"full": True}

    def also() -> None:
        if disk["full"]:
            raise OSError("no space left")

    with redis.Redis.from_url(redis_server.url) as client:
        made = StatusReport(client, Options("http://127.0.0.1:1", "a-token", redis_server.url, tmp_path), also)

        def faults() -> list[str]:
            return (stream_state(client) or {}).get("faults", [])

        made.start()
        try:
            wait_until(lambda: faults() == ["OSError: no space left"], what="the fault")
            disk["full"] = False
            wait_until(lambda: stream_state(client) is not None and not faults(), what="no fault")
        finally:
            made.stop()
