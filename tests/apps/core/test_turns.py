"""Turns: one at a time while Redis answers, and nobody waits for one that is not given back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from apps.core.turns import shared_turn


@pytest.mark.usefixtures("redis_url")
def test_turn_is_waited_for_until_it_is_given_back() -> None:
    had: list[str] = []

    def second() -> None:
        with shared_turn("test", wait_s=30.0, lasts_s=60.0) as is_had:
            had.append(f"second {is_had}")

    waiting = threading.Thread(target=second)
    with shared_turn("test", wait_s=0.0, lasts_s=60.0) as is_had:
        assert is_had
        waiting.start()
        with shared_turn("test", wait_s=0.05, lasts_s=60.0) as again:
            assert not again
        had.append("first")
    waiting.join(30.0)
    assert had == ["first", "second True"]


@pytest.mark.usefixtures("redis_url")
def test_turns_at_other_things_do_not_wait() -> None:
    with (
        shared_turn("one", wait_s=0.0, lasts_s=60.0) as one,
        shared_turn("two", wait_s=0.0, lasts_s=60.0) as two,
    ):
        assert one and two


@pytest.mark.usefixtures("redis_url")
def test_turn_that_is_never_given_back_ends() -> None:
    lost = shared_turn("lost", wait_s=0.0, lasts_s=0.2)
    assert lost.__enter__()
    with shared_turn("lost", wait_s=30.0, lasts_s=60.0) as is_had:
        assert is_had
    lost.__exit__(None, None, None)  # of what is no longer its own


def test_work_goes_on_without_redis(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with shared_turn("alone", wait_s=30.0, lasts_s=60.0) as is_had:
        assert not is_had
    assert "Redis does not answer" in caplog.text
