"""Sentences of placements: remarks on a proposal, what its moves do, and why operators are apart."""

from __future__ import annotations

from collections.abc import Sequence

from engine.words import counted, duration_words, listed, number_words, seconds_words, server_words, size_words
from engine.words.templates import Template

__all__ = ["NOTHING_BETTER", "SENTENCES"]

NOTHING_BETTER = "No better placement was found: everything stays where it is."


def _spared_words(moves: int, made: int, least: float, value: float, is_seconds: int, percent: float) -> str:
    """Sentence on moves that are not made since they win next to nothing."""
    fewest, most = (seconds_words if is_seconds else number_words)(least, value)
    of_it = "" if is_seconds else " of its objective"
    return (
        f"With {counted(moves, 'move')} instead of {made} the worst would be {fewest} instead of {most}{of_it}: for "
        f"less than {percent:g}% no more are made."
    )


def _move_words(
    relieved: tuple[str, float] | None,
    fallen: tuple[str, float, float] | None,
    joined: tuple[str, float] | None,
    over: Sequence[tuple[str, float]],
) -> str:
    """Clauses on the load a move takes away, the delay of the core relieved most, and the load of the core joined."""
    clauses = []
    name, before_s, after_s = fallen or ("", 0.0, 0.0)
    before, after = seconds_words(before_s, after_s)
    falls = f"falls from {before} to {after}"
    if relieved is not None:
        core, share = relieved
        delay = f", whose longest delay {falls}" if core == name else ""
        clauses.append(f"takes {share:.2f} of the load of {server_words(core)} away{delay}")
    if name and (relieved is None or relieved[0] != name):
        clauses.append(f"the longest delay of {server_words(name)} {falls}")
    if joined is not None:
        core, peak = joined
        clauses.append(f"{server_words(core)} goes to {peak:.2f} of its capacity at peak")
    nodes = listed([f"{node} by {size_words(size)}" for node, size in over]) if over else ""
    stop = f"while it moves, its state takes {nodes} over its memory: stop it first; " if over else ""
    return f"{stop}{'; '.join(clauses)}"


def _apart_sentence(
    operator: str,
    other: str,
    why: str,
    server: str | None,
    peak: float | None,
    at_s: float | None,
    limit: float | None,
) -> str:
    """Why an operator is on another node than one it exchanges events with."""
    lead = f"{operator} is apart from {other}"
    if server is None:
        return f"{lead}: it may not be on that node."
    if why == "company":
        return f"{lead}: it exchanges as many events with operators where it is."
    at = duration_words(at_s or 0.0)
    when = f"{server_words(server)} would be at {(peak or 0.0):.2f} of its capacity {at} into the horizon"
    if why == "goal":
        return f"{lead}: the slowest query would get slower; {when}."
    joins = "" if limit is None else f"; operators join up to {limit:.2f}"
    return f"{lead}, because {when}{joins}."


SENTENCES: dict[str, Template] = {
    # why a node may not take an operator
    "pinned": "it is pinned to {node}",
    "forbidden": "{node} is forbidden to it",
    "closed": "{node} takes nothing new",
    # others
    "move": _move_words,
    "apart": _apart_sentence,
    "nothing_to_place": "There is no operator to place.",
    "overloaded": "No placement was found that catches up: {server:server} gets {load:load} times its capacity.",
    "overloaded+": "No placement was found that catches up: {server:server} gets {load:load} times its capacity, and "
    "{more:counted other server} more than theirs.",
    "catches_up": "Where everything is now, {servers:servers} never {servers:either catches|catch} up; as proposed, "
    "all does.",
    "policy": "Of {query} {lacking}.",
    # where nothing moves
    "nothing_better": NOTHING_BETTER,
    "tried": "Tried: {rounds:counted round} of search in {elapsed_s:duration}.",
    "tried_all": "Every placement was tried.",
    "no_work_waits": "No work waits at Mace's width, so no placement can be better by it.",
    "bound_unknown": "How far the best possible is below it is not known.",
    "optimal": "No placement can be better.",
    "near_bound": "No placement can be better by more than {percent}%.",
    "slowest": "Work waits longest at {server:server}, which is at {peak:.2f} of its capacity at its peak: fewer "
    "events, a faster or one more node would help.",
    "more_moves": "So may more than {most:counted move}.",
    # moves
    "spared": _spared_words,
    "first_moves": "After the first {n} of {of} moves the longest delay of a core is {after_s:seconds}, down from "
    "{before_s:seconds}; max_moves asks for a placement with fewer.",
    "memory_before": "Before: {memory}.",
    "memory_while_moving": "While {operator} moves, {node} holds {bytes:size} more than its memory: stop the operator "
    "first.",
    # operators that alone cost as much as the whole placement
    "alone": "Operator {operator} alone on the best core it may use takes {own_s:seconds}: no placement of it in one "
    "piece is faster.",
    "alone_overloaded": "Its mean load is {load_share:.2f} of that core's capacity, so it never catches up.",
    "alone_split": "Split into {parts} parts it would be {split_value:.3g} {is_seconds:either s|of its objective}; "
    "it is not among those that may be split.",
    "alone_with_state": "It has state that is not by key, so it cannot be split.",
    "alone_unknown": "Whether it has state is not known; without state, or with state by key, it could be split.",
}
