"""Sentences of placements: remarks on a proposal, what its moves do, and why operators are apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from engine.words import counted, duration_words, listed, load_words, server_words, size_words

if TYPE_CHECKING:
    from engine.document.memory import NodeMemory
    from engine.document.policies import PolicyGap
    from engine.estimation.overload import LastingOverload
    from engine.placement.answer import AloneOperator, MoveAnswer
    from engine.placement.migration import MigrationStep
    from engine.placement.proposal import FirstMoves, SparedGain, UnimprovedPlacement
    from engine.placement.separation import ApartOperator

__all__ = [
    "NOTHING_BETTER",
    "NOTHING_TO_PLACE",
    "alone_words",
    "apart_sentence",
    "first_moves_words",
    "lacking_words",
    "lasting_words",
    "memory_words",
    "move_words",
    "spared_words",
    "unimproved_words",
]

NOTHING_TO_PLACE = "There is no operator to place."
NOTHING_BETTER = "No better placement was found: everything stays where it is."


def lasting_words(now: Sequence[LastingOverload], then: Sequence[LastingOverload]) -> str:
    """What never catches up as proposed, the worst first, or only as everything is now; empty where all does."""
    if then:
        server, times = server_words(then[0].server), load_words(then[0].load, 1.0)[0]
        more = "" if len(then) == 1 else f", and {counted(len(then) - 1, 'other server')} more than theirs"
        return f"No placement was found that catches up: {server} gets {times} times its capacity{more}."
    if not now:
        return ""
    verb = "catches" if len(now) == 1 else "catch"
    names = listed([server_words(overload.server) for overload in now])
    return f"Where everything is now, {names} never {verb} up; as proposed, all does."


def lacking_words(query: str, gap: PolicyGap, high_s: float | None) -> str:
    """What an estimate after the moves lacks where servers run other policies than stimulus time."""
    return f"Of {query} {gap.words(high_s)}."


def unimproved_words(found: UnimprovedPlacement) -> str:
    """Where nothing moves: what was tried, what no placement can be below, and what would help."""
    tried = f"Tried: {counted(found.rounds, 'round')} of search in {duration_words(found.elapsed_s)}."
    if found.is_exhaustive:
        tried = "Every placement was tried."
    if not found.waits:
        return f"{tried} No work waits at Mace's width, so no placement can be better by it."
    if found.gap is None:
        limit = "How far the best possible is below it is not known."
    elif found.gap == 0.0:
        limit = "No placement can be better."
    else:
        limit = f"No placement can be better by more than {math.ceil(100 * found.gap / (1.0 + found.gap))}%."
    help_words = (
        f"Work waits longest at {server_words(found.server)}, which is at {found.peak:.2f} of its capacity at its "
        "peak: fewer events, a faster or one more node would help."
    )
    if found.max_moves is not None:
        help_words += f" So may more than {counted(found.max_moves, 'move')}."
    return f"{tried} {limit} {help_words}"


def spared_words(found: SparedGain) -> str:
    """Moves left out for gaining less than the tolerance."""
    unit = "s" if found.is_seconds else "of its objective"
    return (
        f"With {found.moves} moves instead of {found.made} the worst would be {found.least:.4g} instead of "
        f"{found.value:.4g} {unit}: for less than {100 * found.tolerance:g} % no more are made."
    )


def first_moves_words(found: FirstMoves) -> str:
    """The first moves, which bring nearly all of the gain."""
    return (
        f"After the first {found.n} of {found.of} moves the longest delay of a core is {found.after_s:.3g} s, "
        f"down from {found.before_s:.3g} s; max_moves asks for a placement with fewer."
    )


def memory_words(before: Sequence[NodeMemory], moves: Sequence[MoveAnswer]) -> Iterator[str]:
    """Nodes with more state than memory before the moves, and while they are made."""
    yield from (f"Before: {entry.words}." for entry in before if entry.over_bytes)
    for move in moves:
        for over in move.over_memory:
            more = f"{over.node} holds {size_words(over.bytes)} more than its memory"
            yield f"While {move.operator} moves, {more}: stop the operator first."


def alone_words(alone: AloneOperator, *, is_seconds: bool) -> str:
    """An operator that even alone costs as much as the whole placement, and what splitting it would gain."""
    sentences = [
        f"Operator {alone.operator} alone on the best core it may use takes {alone.own_s:.3g} s: "
        "no placement of it in one piece is faster."
    ]
    if alone.load_share > 1.0:
        share = f"{alone.load_share:.2f}"
        sentences.append(f"Its mean load is {share} of that core's capacity, so it never catches up.")
    if alone.split_value is not None:
        value = f"{alone.split_value:.3g} {'s' if is_seconds else 'of its objective'}"
        sentences.append(f"Split into {alone.parts} parts it would be {value}; may_split does not list it.")
    elif alone.stateless is False:
        sentences.append("It has state and cannot be split.")
    elif alone.stateless is None:
        sentences.append("Whether it has state is not known; a stateless operator could be split.")
    return " ".join(sentences)


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
