"""What a person should know about a proposal, in sentences."""

from __future__ import annotations

from typing import Any

from engine.placement.hunt import Hunt
from engine.placement.ranking import Ranked

__all__ = ["messages_of"]

_TIE = 1e-6
_FEW = 5  # moves that need no summary
_MOST_OF_GAIN = 0.95
_WORTH_SAYING = 0.01  # share by which moves must shorten the longest delay to be counted


def messages_of(hunt: Hunt, best: Ranked, moves: list[dict[str, Any]]) -> list[str]:
    """What a person should know about the answer, in sentences."""
    words, spared = [], _spared_words(hunt, best)
    if spared is not None:
        words.append(spared)
    elif hunt.start is not None and not moves:
        words.append("No better placement was found: everything stays where it is.")
    if (words_of_few := _few_words(hunt, moves)) is not None:
        words.append(words_of_few)
    return words + [_alone_words(one, hunt.goal.kind) for one in hunt.alone]


def _spared_words(hunt: Hunt, best: Ranked) -> str | None:
    """What was left out for gaining less than the tolerance; None if nothing was."""
    share, value = hunt.settings.tolerance, best.candidate.measured.value
    if share <= 0.0 or hunt.start is None or not hunt.found:
        return None
    least, moves = min(one.whole for one in hunt.found)
    if least >= value * (1.0 - _TIE):
        return None
    unit = " s" if hunt.goal.kind == "worst" else " of its objective"
    return (
        f"With {moves} moves instead of {best.candidate.moves} the worst would be {least:.4g} instead of "
        f"{value:.4g}{unit}: for less than {100 * share:g} % no more are made."
    )


def _few_words(hunt: Hunt, moves: list[dict[str, Any]]) -> str | None:
    """How many of many moves bring nearly all of the gain; None where they are few or all of them are needed."""
    if hunt.start is None or len(moves) <= _FEW:
        return None
    before, after = hunt.start.measured.mace.worst, moves[-1]["mace_s"]
    if after >= before * (1.0 - _WORTH_SAYING):
        return None
    limit_s = after + (1.0 - _MOST_OF_GAIN) * (before - after)
    n = next(move["n"] for move in moves if move["mace_s"] <= max(limit_s, after))
    if n > len(moves) // 2:
        return None
    there = moves[n - 1]["mace_s"]
    return (
        f"After the first {n} of {len(moves)} moves the longest delay of a core is {there:.3g} s, "
        f"down from {before:.3g} s; max_moves asks for a placement with fewer."
    )


def _alone_words(one: dict[str, Any], kind: str) -> str:
    words = (
        f"Operator {one['operator']} alone on the best core it may use takes {one['own_s']:.3g} s: "
        "no placement of it in one piece is faster."
    )
    if one["load_share"] > 1.0:
        words += f" Its mean load is {one['load_share']:.2f} of that core's capacity, so it never catches up."
    if one["split_value"] is not None:
        unit = " s" if kind == "worst" else " of its objective"
        words += (
            f" Split into {one['parts']} parts it would be {one['split_value']:.3g}{unit}; may_split does not list it."
        )
    elif one["stateless"] is False:
        words += " It has state and cannot be split."
    elif one["stateless"] is None:
        words += " Whether it has state is not known; a stateless operator could be split."
    return words
