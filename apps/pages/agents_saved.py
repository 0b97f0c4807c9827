"""Bytes that were sent, beside what other ways of splitting the work would have sent of the same records."""

from __future__ import annotations

from dataclasses import dataclass

from apps.refinement.showing import SavedBytes
from apps.ui.numbers import bytes_size, count, percent, seconds, significant

__all__ = ["Comparison", "Way"]


@dataclass(frozen=True)
class Way:
    """One way of splitting the work between source and cluster."""

    name: str
    words: str
    sent: float | None
    share: float  #: of the most that any sends, for its bar
    saved: str  #: `65% less`: what is sent now, against it
    evidence: str
    is_now: bool = False

    @property
    def rate(self) -> str:
        return (
            str(bytes_size(self.sent, "/s"))
            if self.sent is not None
            else "not known yet: the cost of an operator is missing"
        )


class Comparison:
    """Ways from the most that is sent to the least."""

    def __init__(self, found: SavedBytes) -> None:
        self.found = found

    @property
    def ways(self) -> list[Way]:
        found = self.found
        rows = [
            ("All-SP", "everything is drained", found.all_sp, "measured"),
            ("Filter-Src", "filters alone run here", found.filter_src, "predicted"),
            ("Best-OP", "whole operators, as many as fit", found.best_op, "predicted"),
            ("All-Src", "everything runs here", found.all_src, "predicted"),
        ]
        most = max([found.sent, *(one[2] or 0.0 for one in rows)]) or 1.0
        known = [self._way(name, words, sent, most, evidence) for name, words, sent, evidence in rows]
        now = self._way("Now", "load factors as they were", found.sent, most, "measured", is_now=True)
        return [*sorted((one for one in known if one.sent is not None), key=lambda one: -(one.sent or 0)), now,
                *(one for one in known if one.sent is None)]  # fmt: skip

    def _way(
        self, name: str, words: str, sent: float | None, most: float, evidence: str, *, is_now: bool = False
    ) -> Way:
        span_s = self.found.span_s or 1.0
        saved = "" if is_now or sent is None else _against(self.found.saved(sent) or 0.0).removesuffix(" as")
        rate = sent / span_s if sent is not None else None
        return Way(name, words, rate, (sent or 0.0) / most, saved, evidence, is_now)

    @property
    def sentence(self) -> str:
        """`71% less than All-SP, 12% less than Best-OP`."""
        ways = {"All-SP": self.found.all_sp, "Filter-Src": self.found.filter_src, "Best-OP": self.found.best_op}
        shares = [(name, self.found.saved(sent)) for name, sent in ways.items()]
        said = [_than(name, share) for name, share in shares if share is not None]
        return f"It sent {', '.join(said)}." if said else ""

    @property
    def basis(self) -> str:
        return f"Of {count(self.found.records)} records over the last {seconds(self.found.span_s)}."


def _than(name: str, share: float) -> str:
    words = _against(share)
    return f"{words} {name}" if words.endswith("as") else f"{words} than {name}"


def _against(share: float) -> str:
    """`65% less`, `12% more`, `7.8 times as much as`."""
    if abs(share) < 0.005:
        return "as much as"
    if share < -1:
        return f"{significant(1 - share)} times as much as"
    return f"{percent(abs(share))} {'less' if share > 0 else 'more'}"
