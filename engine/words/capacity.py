"""Sentences of capacities: the largest rate, at what, and what is not known of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.words import duration_words, listed, percent_words, seconds_words, server_words, statistic_words
from engine.words.templates import Template

__all__ = ["SENTENCES", "rate_words"]


def rate_words(rate_per_s: float) -> str:
    """A rate with three digits.

    Examples
    --------
    >>> [rate_words(rate).replace("\\u00a0", " ") for rate in (0.01234, 9.8, 123.4, 45678.0)]
    ['0.0123/s', '9.8/s', '123/s', '45,700/s']
    """
    rounded = float(f"{rate_per_s:.3g}")
    return f"{rounded:,.0f}/s" if rounded >= 100.0 else f"{rounded:.3g}/s"


def _known_words(
    subject: str,
    now_per_s: float,
    rate_per_s: float,
    low_per_s: float | None,
    high_per_s: float | None,
    limit: dict[str, Any],
    **_: object,
) -> str:
    between = ""
    if low_per_s is not None and high_per_s is not None:
        between = f" ({rate_words(low_per_s)} to {rate_words(high_per_s)})"
    load = f"{rate_words(now_per_s)} now"
    text = f"Sustains {rate_words(rate_per_s)}{between}, {load}: {_limit_words(limit)}."
    if rate_per_s <= 0.0:
        return f"Sustains nothing beside what others do: {_limit_words(limit)}, {load}."
    return text


def _limit_words(limit: dict[str, Any]) -> str:
    server, operator = server_words(limit["server"]), limit["operator"]
    if operator is None:
        return f"{server} is full then"
    share = percent_words(limit["share"])
    if limit["resource"] == "bandwidth":
        return f"{server} is full then, {share} of it by what {operator} sends"
    return f"{server} is full then, {share} of it by {operator}"


def _unknown_words(
    names: Sequence[str],
    outside: Sequence[str],
    at_most_per_s: float | None,
    assumed_per_s: float | None,
    now_per_s: float,
    **_: object,
) -> str:
    text = "Not known" if at_most_per_s is None else f"Not known, at most {rate_words(at_most_per_s)}"
    grounds = [f"nobody measured the cost of {listed(names)}"] if names else []
    if outside:
        grounds.append(f"events of {listed(outside)} wait for answers from outside, and nothing tells how many at once")
    text += f" ({rate_words(now_per_s)} now): {'; '.join(grounds)}"
    return text + (f"; by the costs assumed it is {rate_words(assumed_per_s)}." if assumed_per_s is not None else ".")


def _objective_words(
    query: str,
    statistic: str,
    bound_s: float,
    factor: float | None,
    low_factor: float | None,
    rate_per_s: float | None,
    low_per_s: float | None,
    server: str | None = None,
) -> str:
    objective = f"{statistic_words(statistic)} of {query} within {seconds_words(bound_s)[0]}"
    if factor is None or rate_per_s is None:
        return f"No rate that was looked at keeps the {objective}."
    where = "" if server is None else f", and waits longest at {server_words(server)} then"
    text = f"Keeps the {objective} up to {rate_words(rate_per_s)}{where}"
    if low_per_s is None or low_factor is None:
        return f"{text}; by the upper end of its interval it may break at any rate."
    return f"{text}." if low_factor >= factor else f"{text}; from {rate_words(low_per_s)} on it may break."


def _objective_unknown_words(query: str, statistic: str, bound_s: float, why: str) -> str:
    objective = f"{statistic_words(statistic)} of {query} within {seconds_words(bound_s)[0]}"
    return f"Up to which rate it keeps the {objective} is not known. {why}"


def _forecast_words(
    at_s: float | None,
    earliest_s: float | None,
    latest_s: float | None,
    end_s: float,
    server: str | None,
    unforecast: Sequence[str],
) -> str:
    if at_s is None and earliest_s is None:
        text = f"Does not saturate within {duration_words(end_s)} by the forecast, nor by its upper end"
    elif at_s is None:
        text = f"Does not saturate within {duration_words(end_s)} by the forecast"
        text += f"; by its upper end in {duration_words(earliest_s or 0.0)}"
    else:
        latest = f"more than {duration_words(end_s)}" if latest_s is None else duration_words(latest_s)
        where = "" if server is None else f", on {server_words(server)}"
        between = f"{duration_words(earliest_s or 0.0)} to {latest}"
        text = f"Saturates in {duration_words(at_s)} ({between}){where}, by the forecast of its load"
    return f"{text}; without one of {listed(unforecast)}." if unforecast else f"{text}."


SENTENCES: dict[str, Template] = {
    "known": _known_words,
    "unknown": _unknown_words,
    "nothing_arrives": lambda **_: "Not known: nothing arrives at its sources, so that there is no rate to grow.",
    "no_source": lambda **_: "It reads what other queries put out alone: its rate is theirs.",
    "objective": _objective_words,
    "objective_unknown": _objective_unknown_words,
    "forecast": _forecast_words,
    "no_forecast_kept": lambda **_: (
        "Nobody knows when it saturates: there is no forecast of the load that is still to come."
    ),
    "no_forecast_capacity": lambda **_: "Nobody knows when it saturates: what it sustains is not known.",
    "no_forecast_load": lambda **_: (
        "Nobody knows when it saturates: the newest forecast says nothing of it. Costs were not known then, loads are "
        "no sums of rates, or it is older than the query."
    ),
    "no_load": lambda **_: "Not limited: no server does any work for what arrives.",
}
