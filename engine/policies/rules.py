"""Rules of evidence: whether it decides, a person decides, or it speaks against admission."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar

from engine.kinds import Enumeration
from engine.records import Record, Words

__all__ = ["ADMIT", "EVIDENCE_CODES", "REJECT", "REVIEW", "EvidenceRules", "TeamEvidence", "weight_of"]

ADMIT, REVIEW, REJECT = "admit", "review", "reject"
RULE = Enumeration((ADMIT, REVIEW, REJECT))

_AT_RISK = Words("Only the mean path holds an objective: the upper end of its interval is over, or has no margin.")
_ASSUMED = Words("Statistics of the candidate are assumed, or measured on too few events.")
_COARSE = Words("Arrivals are known as counts over more than a subinterval alone, which hide bursts.")
_UNTRUSTED = Words("Intervals of a running query that the candidate can affect hold too seldom lately.")
_PREDICTED = Words("The candidate never ran and is predicted; where no run bears that out, a person decides anyway.")


@dataclass(frozen=True, slots=True)
class EvidenceRules(Record):
    """Meaning of each kind of evidence: admit (it decides), review (a person decides), reject."""

    TITLE: ClassVar[str] = "rules of evidence"

    at_risk: Annotated[str, RULE, _AT_RISK] = REVIEW
    assumed: Annotated[str, RULE, _ASSUMED] = ADMIT
    coarse: Annotated[str, RULE, _COARSE] = REVIEW
    untrusted: Annotated[str, RULE, _UNTRUSTED] = REVIEW
    predicted: Annotated[str, RULE, _PREDICTED] = ADMIT


@dataclass(frozen=True, slots=True)
class TeamEvidence(Record):
    """Rules of evidence that a team has of its own; null: the cluster's."""

    TITLE: ClassVar[str] = "rules of evidence"

    at_risk: Annotated[str, RULE, _AT_RISK] | None = None
    assumed: Annotated[str, RULE, _ASSUMED] | None = None
    coarse: Annotated[str, RULE, _COARSE] | None = None
    untrusted: Annotated[str, RULE, _UNTRUSTED] | None = None
    predicted: Annotated[str, RULE, _PREDICTED] | None = None

    def over(self, rules: EvidenceRules) -> EvidenceRules:
        """The cluster's rules, with the team's own in their place."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(rules, **{name: rule for name, rule in own.items() if rule is not None})


#: Codes of the reasons whose weight a rule of evidence sets.
EVIDENCE_CODES = {
    "at_risk": ("at_risk", "neighbour_at_risk", "under_resolution", "margin_short"),
    "assumed": ("assumed_statistics", "assumed_costs", "few_events", "no_events"),
    "coarse": ("coarse_counts",),
    "untrusted": ("trust_lost",),
    "predicted": ("never_ran",),
}


def weight_of(rule: str, *, admitted: str = "info") -> tuple[str, bool]:
    """Severity of a reason under a rule, and whether a person decides because of it; `admitted` where it decides.

    Examples
    --------
    >>> weight_of("review"), weight_of("reject"), weight_of("admit")
    (('watch', True), ('bad', False), ('info', False))
    """
    return {ADMIT: (admitted, False), REVIEW: ("watch", True), REJECT: ("bad", False)}[rule]
