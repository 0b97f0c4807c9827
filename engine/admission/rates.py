"""Search: the largest share of its rate with which the candidate passes."""

from __future__ import annotations

from collections.abc import Iterator

from engine.admission.changes import Change
from engine.admission.search import Search, Settled, gallop, largest

__all__ = ["largest_share"]

_PARTS = 100  # shares are reported in hundredths
_LEAST = 10  # below that the query would hardly run: no choice


def largest_share(search: Search) -> Settled | None:
    """Bisect on Mace, refine by Flow, confirm in full and walk down until that holds."""
    search.tell("Searching the largest share of its rate")
    query = search.question.candidate.query
    given = next((change["share"] for change in search.changes if change["kind"] == "scale_rate"), 1.0)
    most = round(given * _PARTS) - 1

    def change(part: int) -> list[Change]:
        return [{"kind": "scale_rate", "query": query, "share": part / _PARTS}]

    if most < _LEAST:
        return None
    guess = largest(_LEAST, most, lambda part: search.mace_passes(change(part))) or (_LEAST + most) // 2
    found = gallop(guess, _LEAST, most, lambda part: search.flow_passes(change(part)), search.budget + 2)
    return None if found is None else search.first_settled(change(part) for part in _down(found))


def _down(part: int) -> Iterator[int]:
    """`part`, and less of it in steps that double."""
    step = 1
    while part >= _LEAST:
        yield part
        part, step = part - step, step * 2
