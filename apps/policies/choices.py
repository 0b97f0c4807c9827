"""Choices of policies, as the description of REST names them."""

from engine.policies.rules import ADMIT, REJECT, REVIEW

__all__ = ["EVIDENCE_RULES"]

EVIDENCE_RULES = [(rule, rule) for rule in (ADMIT, REVIEW, REJECT)]
