"""Separation of operators that exchange events, as answers tell it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from pydantic import computed_field

from engine.records import Fact, Record

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
        return str(Fact("placement.apart", **asdict(self), limit=self.limit))
