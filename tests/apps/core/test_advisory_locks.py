"""Advisory locks: one at a time while Redis answers, and nobody waits for one that is not given back."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from apps.core.advisory_locks import advisory_lock


@pytest.mark.usefixtures("redis_url")
def test_lock_is_waited_for_until_it_is_given_back() -> None:
    had: list[str] = []

    def second() -> None:
        with advisory_lock("test", wait_s=30.0, lasts_s=60.0) as is_held:
            had.append(f"second {is_held}")

    waiting = threading.Thread(target=second)
    with advisory_lock("test", wait_s=0.0, lasts_s=60.0) as is_held:
        assert is_held
        waiting.start()
        with advisory_lock("test", wait_s=0.05, lasts_s=60.0) as again:
            assert not again
        had.append("first")
    waiting.join(30.0)
    assert had == ["first", "second True"]


@pytest.mark.usefixtures("redis_url")
def test_locks_of_other_names_do_not_wait() -> None:
    with (
        advisory_lock("one", wait_s=0.0, lasts_s=60.0) as one,
        advisory_lock("two", wait_s=0.0, lasts_s=60.0) as two,
    ):
        assert one and two


@pytest.mark.usefixtures("redis_url")
def test_lock_that_is_never_given_back_ends() -> None:
    lost = advisory_lock("lost", wait_s=0.0, lasts_s=0.2)
    assert lost.__enter__()
    with advisory_lock("lost", wait_s=30.0, lasts_s=60.0) as is_held:
        assert is_held
    lost.__exit__(None, None, None)  # of what is no longer its own


def test_work_goes_on_without_redis(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    with advisory_lock("alone", wait_s=30.0, lasts_s=60.0) as is_held:
        assert not is_held
    assert "Redis does not answer" in caplog.text
