"""Admission: may a query join what runs? Verdict, reasons, effect on every neighbour, and what would admit it."""

from engine.admission.candidate import Candidate, read_candidate
from engine.admission.choices import Choice
from engine.admission.decision import Decision, decide
from engine.admission.policy import Policy, read_policy
from engine.admission.reasons import Reason

__all__ = ["Candidate", "Choice", "Decision", "Policy", "Reason", "decide", "read_candidate", "read_policy"]
