"""Sentences of placements: remarks on a proposal, what its moves do, and why operators are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.words import duration_words, listed, server_words, size_words
from engine.words.templates import fill

if TYPE_CHECKING:
    from engine.placement.migration import MigrationStep
    from engine.placement.separation import ApartOperator

__all__ = ["NOTHING_BETTER", "apart_sentence", "move_words", "remark"]

NOTHING_BETTER = "No better placement was found: everything stays where it is."


def remark(kind: str, /, **values: object) -> str:
    """A remark on a proposal."""
    return fill(_REMARKS[kind], **values)


_REMARKS = {
    "nothing_to_place": "There is no operator to place.",
    "overloaded": "No placement was found that catches up: {server:server} gets {load:load} times its capacity.",
    "overloaded+": "No placement was found that catches up: {server:server} gets {load:load} times its capacity, and "
    "{more:counted other server} more than theirs.",
    "catches_up": "Where everything is now, {servers:servers} never {count:either catches|catch} up; as proposed, all "
    "does.",
    "policy": "Of {query} {lacking}.",
    # where nothing moves
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
    "spared": "With {moves} moves instead of {made} the worst would be {least:.4g} instead of {value:.4g} "
    "{is_seconds:either s|of its objective}: for less than {percent:g} % no more are made.",
    "first_moves": "After the first {n} of {of} moves the longest delay of a core is {after_s:.3g} s, down from "
    "{before_s:.3g} s; max_moves asks for a placement with fewer.",
    "memory_before": "Before: {memory}.",
    "memory_while_moving": "While {operator} moves, {node} holds {bytes:size} more than its memory: stop the operator "
    "first.",
    # operators that alone cost as much as the whole placement
    "alone": "Operator {operator} alone on the best core it may use takes {own_s:.3g} s: no placement of it in one "
    "piece is faster.",
    "alone_overloaded": "Its mean load is {load_share:.2f} of that core's capacity, so it never catches up.",
    "alone_split": "Split into {parts} parts it would be {split_value:.3g} {is_seconds:either s|of its objective}; "
    "may_split does not list it.",
    "alone_with_state": "It has state and cannot be split.",
    "alone_unknown": "Whether it has state is not known; a stateless operator could be split.",
}


def move_words(step: MigrationStep) -> str:
    """Clauses on the load a move takes away, the delay of the core relieved most, and the load of the core joined."""
    effects, clauses = step.effects, []
    name, before_s, after_s = effects.fallen or ("", 0.0, 0.0)
    falls = f"falls from {before_s:.3g} s to {after_s:.3g} s"
    if effects.relieved is not None:
        core, share = effects.relieved
        delay = f", whose longest delay {falls}" if core == name else ""
        clauses.append(f"takes {share:.2f} of the load of {server_words(core)} away{delay}")
    if name and (effects.relieved is None or effects.relieved[0] != name):
        clauses.append(f"the longest delay of {server_words(name)} {falls}")
    if effects.joined is not None:
        core, peak = effects.joined
        clauses.append(f"{server_words(core)} goes to {peak:.2f} of its capacity at peak")
    over = listed([f"{node} by {size_words(size)}" for node, size in step.over]) if step.over else ""
    stop = f"while it moves, its state takes {over} over its memory: stop it first; " if over else ""
    return f"{stop}{'; '.join(clauses)}"


def apart_sentence(entry: ApartOperator) -> str:
    """Why an operator is on another node than one it exchanges events with."""
    lead = f"{entry.operator} is apart from {entry.other}"
    if entry.server is None:
        return f"{lead}: it may not be on that node."
    if entry.why == "company":
        return f"{lead}: it exchanges as many events with operators where it is."
    at = duration_words(entry.at_s or 0.0)
    when = f"{server_words(entry.server)} would be at {(entry.peak or 0.0):.2f} of its capacity {at} into the horizon"
    if entry.why == "goal":
        return f"{lead}: the slowest query would get slower; {when}."
    limit = "" if entry.limit is None else f"; operators join up to {entry.limit:.2f}"
    return f"{lead}, because {when}{limit}."
