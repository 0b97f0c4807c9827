"""Separation of operators that exchange events, as answers tell it."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import computed_field

from engine.records import Record
from engine.words import duration_words, server_words

__all__ = ["FULL", "ApartOperator"]

FULL = 0.8  # peak load of a core up to which operators join for company alone


@dataclass(frozen=True, slots=True)
class ApartOperator(Record):
    """A separation by names: `operator` could not join `other` for the reason `why`.

    `server` is the core it would have joined, `peak` its load then as a share of its capacity, `at_s` the seconds from
    the beginning of the horizon to that load; all three are None where no core was open to it.
    """

    operator: str
    other: str
    why: str
    server: str | None = None
    peak: float | None = None
    at_s: float | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def limit(self) -> float | None:
        """Peak load up to which the operators would have joined; None where the core would be over capacity."""
        return FULL if self.why == "load" and self.peak is not None and self.peak <= 1.0 else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sentence(self) -> str:
        """Why, in words."""
        lead = f"{self.operator} is apart from {self.other}"
        if self.server is None:
            return f"{lead}: it may not be on that node."
        if self.why == "company":
            return f"{lead}: it exchanges as many events with operators where it is."
        at = duration_words(self.at_s or 0.0)
        when = f"{server_words(self.server)} would be at {self.peak:.2f} of its capacity {at} into the horizon"
        if self.why == "goal":
            return f"{lead}: the slowest query would get slower; {when}."
        limit = "" if self.limit is None else f"; operators join up to {self.limit:.2f}"
        return f"{lead}, because {when}{limit}."
