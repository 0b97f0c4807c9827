"""Sentences of remedies: what is done, what it costs and risks, and why a kind of them does not help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.words import (
    counted,
    duration_words,
    listed,
    money_words,
    percent_words,
    seconds_words,
    server_words,
    size_words,
)
from engine.words.capacity import rate_words
from engine.words.templates import Template

__all__ = ["SENTENCES"]


def _answer_words(query: str, state: str, is_unknown: bool, enough: int, count: int, waits_longer: bool) -> str:
    if state in ("holds", "none"):
        why = "its objective holds" if state == "holds" else "it has no objective"
        return f"By its estimate {query} needs no remedy: {why}."
    if state == "unknown":
        return f"What would help {query} cannot be said: its latency is not known."
    first = "As far as is known, " if is_unknown else ""
    waits = " Events wait already for longer than the objective allows: no change makes these any younger."
    late = waits if waits_longer else ""
    if enough:
        each = "one remedy" if enough == 1 else f"each of {enough} remedies"
        text = f"{first}{each} keeps the objective of {query}.{late}"
        return f"{text[0].upper()}{text[1:]}"
    if count:
        return f"{first}Nothing that was tried is enough for {query}; {counted(count, 'change')} would help.{late}"
    return f"{first}Nothing that was tried helps {query}.{late}"


def _move_words(cores: Mapping[str, str]) -> str:
    places = [f"{name} to {server_words(core)}" for name, core in cores.items()]
    return f"Move {listed(places, 4)}"


def _part_move(own: Sequence[str], others: int) -> str:
    moved = [*own, f"operators of {counted(others, 'query', 'queries')} of other teams"]
    return f"Move {listed(moved, 4)}"


def _part_stop(own: Sequence[str], others: int) -> str:
    stopped = [*own, f"{counted(others, 'query', 'queries')} of other teams"]
    return f"Stop {listed(stopped, 4)} for now"


def _node_words(count: int, like: str, share: float) -> str:
    size = f"with {percent_words(share)} of the capacity of {like}" if share < 0.995 else f"like {like}"
    return f"Add a node {size}" if count == 1 else f"Add {count} nodes {size}"


def _moved_cost(state_bytes: float, is_known: bool) -> str:
    if not is_known:
        return "Nothing to buy; how much state moves is not known."
    return f"Nothing to buy; {size_words(state_bytes)} of state moves." if state_bytes else "Nothing to buy."


def _moved_risk(queries: Sequence[str], pause_s: float | None) -> str:
    pausing = f"{listed(queries)} {'pause' if len(queries) > 1 else 'pauses'}"
    if pause_s is None:
        return f"{pausing} while state moves, nobody knows how long."
    return f"{pausing} for {duration_words(pause_s)} while state moves." if pause_s else f"{pausing} for a moment."


def _node_cost(price_per_hour: float | None, count: int, currency: str) -> str:
    if price_per_hour is None:
        return "Its price is not known."
    each = f" ({count} nodes)" if count > 1 else ""
    return f"{money_words(price_per_hour, currency)} per hour at the price of a whole node{each}."


def _restart_risk(low_s: float | None, high_s: float | None, basis: str, is_even: bool) -> str:
    even = " Keys are assumed to be even, which nobody measured." if is_even else ""
    if low_s is None or high_s is None:
        return f"The job restarts.{even}"
    span = duration_words(high_s) if low_s == high_s else f"{duration_words(low_s)} to {duration_words(high_s)}"
    return f"The job restarts for {span} ({basis}).{even}"


def _best_words(estimate_s: float, state: str, broken: Sequence[str]) -> str:
    found = seconds_words(estimate_s)[0]
    if broken:
        return f"the best, {found}, would break the objective of {listed(broken)}."
    if state == "unknown":
        return "what the best of them comes to is not known."
    if state == "never":
        return "even the best of them does not catch up."
    if state == "no_gain":
        return f"the best, {found}, is no less than now."
    if state == "at_risk":
        return f"the best, {found}, may still be over the objective."
    return f"the best comes to {found}."


SENTENCES: dict[str, Template] = {
    "answer": _answer_words,
    "move": _move_words,
    "parallelism": "Give {query} parallelism {count} in place of {now}",
    "add_node": _node_words,
    "scale_rate": "Let {query} read {share:percent} of its events",
    "stop": "Stop {queries:listed} for now",
    "objective": "Promise {bound_s:seconds} in place of {was_s:seconds}",
    "plan": "Run plan {plan} of {query}",
    "plan_cost": "Nothing to buy; the plan is admitted as a new version.",
    "plan_risk": "The query starts again with the new version; how long that takes is not known.",
    "moved_cost": _moved_cost,
    "moved_risk": _moved_risk,
    "slots_cost": "{slots:counted slot} in place of {now}.",
    "restart_risk": _restart_risk,
    "node_cost": _node_cost,
    "node_risk": "When such a node is there nobody here knows; operators move to it then.",
    "rate_cost": lambda lost_per_s, share: (
        f"{rate_words(lost_per_s)}, {percent_words(share)} of its events, are not processed."
    ),
    "rate_risk": "Its sources must hold them back; Sluice does not do that.",
    "stop_cost": "{queries:listed} {queries:either does|do} not run meanwhile, by priority {priorities:listed} below "
    "{own}.",
    "stop_risk": "To run again {queries:either it is|they are} admitted again.",
    "objective_cost": "Nothing gets faster: who reads the results waits as long as now.",
    "objective_risk": "Whoever relies on the promise must agree.",
    # as members of a team are told them, who see queries of others in numbers
    "part_move": _part_move,
    "part_stop": _part_stop,
    "part_stop_cost": "They do not run meanwhile; their priority is lower.",
    "part_stop_risk": "To run again they are admitted again.",
    "part_moved_risk": "Operators of {others:counted query|queries} of other teams pause while state moves.",
    "part_tried": "the best of them would be at the cost of {other}.",
    "request": "Cluster {cluster}: please preview {remedy} of the remedies of {query}. {title}.",
    # why a kind does not help
    "best": _best_words,
    "none_by_means": "none that was looked at does by mean costs, so none was estimated in full.",
    "no_lower": "nothing of lower priority that loads {server:server} can be stopped.",
    "not_scalable": "none of its operators can have more subtasks: {why}",
    "no_slots": "every larger parallelism needs more slots than there are.",
    "pinned": "{names:listed} {names:either is|are} pinned, and moving what is beside {names:either it|them} is not "
    "enough by mean costs.",
    "not_needed": "none is needed: placed again it passes on the nodes that are there.",
    "no_bound": "it never catches up as it is, so no promise would be kept.",
    "not_allowed": "every larger parallelism needs hosts that pins, company or draining keep from it.",
    "plan_not_allowed": "it was compared on hosts that pins, company or draining keep from it by now.",
    "no_objective": "others are in the way as well.",
}
