"""A lease has one holder, and outlives neither it nor its Redis."""

from __future__ import annotations

from typing import Any

import pytest

from apps.core.leases import Lease
from tests.servers import RedisServer, wait_until


def test_one_of_two_holds_it_and_renews_it(redis_url: str) -> None:
    first, second = Lease("test", lasts_s=60.0), Lease("test", lasts_s=60.0)
    assert [first.hold(), second.hold(), first.hold(), second.hold()] == [True, False, True, False]


def test_leases_of_other_names_are_others(redis_url: str) -> None:
    assert Lease("one", lasts_s=60.0).hold()
    assert Lease("two", lasts_s=60.0).hold()


def test_given_back_it_is_free_at_once(redis_url: str) -> None:
    first, second = Lease("test", lasts_s=60.0), Lease("test", lasts_s=60.0)
    first.hold()
    second.release()  # not its own
    assert not second.hold()
    first.release()
    assert second.hold()
    assert not first.hold()


def test_what_is_not_renewed_runs_out_and_its_holder_finds_out(
    redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    frozen, standby = Lease("test", lasts_s=0.2), Lease("test", lasts_s=60.0)
    assert frozen.hold()
    wait_until(standby.hold, what="the end of the first lease")
    assert not frozen.hold()
    assert "standing by" in caplog.messages[-1]


def test_without_redis_nobody_holds_it(redis_server: RedisServer, settings: Any) -> None:
    settings.REDIS_URL = redis_server.url
    lease = Lease("test", lasts_s=60.0)
    assert lease.hold()
    redis_server.kill()
    assert not lease.hold()
    lease.release()
