"""Attempts to sign in are limited over all addresses and processes, and lock nobody out of a device of theirs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis
from django.core.cache import cache
from django.db import connection
from django.test import Client

from apps.accounts.attempts import ALLOWED, DEVICE_COOKIE, PER_ACCOUNT
from apps.accounts.models import User
from apps.core import counters
from apps.core.counters import CountedWindow, count_up, forget_counts, take_back
from tests.apps.conftest import PASSWORD

pytestmark = pytest.mark.django_db
GONE = "redis://127.0.0.1:1/0"


def sign_in(client: Client, password: str, address: str = "127.0.0.1", username: str = "a-operator") -> int:
    posted = client.post("/login/", {"username": username, "password": password}, REMOTE_ADDR=address)
    return int(posted.status_code)


def attack(attempts: int = PER_ACCOUNT + 1) -> list[int]:
    """A guess from each of many addresses."""
    return [sign_in(Client(), "wrong", f"203.0.113.{number}") for number in range(attempts)]


def test_an_account_is_guessed_at_from_all_addresses_together_a_few_times(user_of: Callable[..., User]) -> None:
    user_of("operator")
    assert attack() == [422] * PER_ACCOUNT + [429]
    assert sign_in(Client(), PASSWORD, "198.51.100.7") == 429  # a right guess is none of use either


def test_an_attack_does_not_lock_the_owner_out_of_a_browser_that_signed_in_before(
    user_of: Callable[..., User],
) -> None:
    user_of("operator")
    owner = Client()
    assert sign_in(owner, PASSWORD) == 302
    owner.post("/logout/")
    attack()
    assert sign_in(owner, PASSWORD) == 302


def test_a_known_browser_has_no_more_guesses_than_another(user_of: Callable[..., User]) -> None:
    user_of("operator")
    thief = Client()
    assert sign_in(thief, PASSWORD) == 302
    thief.post("/logout/")
    assert [sign_in(thief, "wrong") for _ in range(ALLOWED + 1)] == [422] * ALLOWED + [429]


@pytest.mark.parametrize("forge", [lambda value: "nonsense", lambda value: value[:-1] + "x", lambda value: ""])
def test_a_forged_cookie_makes_no_known_browser(user_of: Callable[..., User], forge: Callable[[str], str]) -> None:
    user_of("operator")
    client = Client()
    sign_in(client, PASSWORD)
    client.post("/logout/")
    client.cookies[DEVICE_COOKIE] = forge(client.cookies[DEVICE_COOKIE].value)
    attack()
    assert sign_in(client, PASSWORD) == 429


def test_a_known_browser_of_one_account_is_none_of_another(user_of: Callable[..., User]) -> None:
    user_of("operator"), user_of("admin")
    mine = Client()
    assert sign_in(mine, PASSWORD, username="a-admin") == 302
    mine.post("/logout/")
    attack()
    assert sign_in(mine, PASSWORD) == 429


def test_addresses_of_one_ipv6_network_count_as_one(user_of: Callable[..., User]) -> None:
    user_of("operator")
    tried = [sign_in(Client(), "wrong", f"2001:db8:0:1::{number:x}") for number in range(ALLOWED + 1)]
    assert tried == [422] * ALLOWED + [429]
    assert sign_in(Client(), "wrong", "2001:db8:0:2::1") == 422


def test_many_that_succeed_use_up_no_address(user_of: Callable[..., User]) -> None:
    user_of("operator")
    assert {sign_in(Client(), PASSWORD) for _ in range(60)} == {302}


def test_guesses_at_the_same_moment_are_counted_one_by_one() -> None:
    window = CountedWindow("burst", 5, 60)
    with ThreadPoolExecutor(8) as pool:
        refused = [left_s > 0 for left_s in pool.map(lambda _: count_up([window]), range(40))]
    assert refused.count(False) == 5


def test_processes_count_together() -> None:
    """Another process has another memory and the same Redis."""
    window = CountedWindow("shared", 1, 60)
    assert count_up([window]) == 0
    cache.clear()
    assert 0 < count_up([window]) <= 60


def test_a_process_goes_on_counting_by_itself_while_redis_is_away(settings: Any, caplog: Any) -> None:
    window = CountedWindow("alone", 3, 60)
    count_up([window])
    settings.REDIS_URL = GONE
    assert [count_up([window]) > 0 for _ in range(4)] == [False, False, True, True]
    assert caplog.text.count("Redis does not answer") == 1  # asked once, not by each request
    forget_counts([window])
    assert count_up([window]) == 0


def test_a_counter_always_ends(redis_url: str) -> None:
    window = CountedWindow("ends", 3, 60)
    take_back([window])
    count_up([window])
    count_up([window])
    take_back([window])
    with redis.Redis.from_url(redis_url) as client:
        assert client.get("sluice:count:ends") == b"1"
        assert 0 < client.pttl("sluice:count:ends") <= 60_000
    assert counters.count_up([window]) == 0
    connection.close()
