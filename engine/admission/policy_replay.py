"""Another policy tried on a decision that was made: its policy step alone, on the evidence that is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

from engine.admission.answer import AdmissionDecision, Reason
from engine.admission.policy_reasons import quota_reasons, standing_reasons
from engine.policies.candidate_policy import POLICY_CODES, PolicyStanding
from engine.policies.policy import ClusterPolicy, VerdictRules
from engine.policies.rules import ADMIT, EVIDENCE_CODES, weight_of
from engine.records import Record, Words

__all__ = ["LACKS", "ReplayedVerdict", "replay_policy"]

#: Why a decision cannot be replayed, by code. Whether it was one of a group's, `in_group`, only who asks knows.
LACKS = {
    "in_group": "it was decided with a group, whose verdict no member has by itself",
    "predicted": "a person decided since it was predicted, or since nothing predicts it, and which is not kept",
    "no_events": "sources were without events, and whether it reads others is not kept",
    "later_start": "it waited for a later start, whose evidence is not kept",
    "no_facts": "it was made before teams and times were kept with decisions",
    "not_counted": "what its team used was not counted, since its policy had no quotas",
}
_QUOTA_CODES = frozenset({"quota_exceeded", "quota_unknown", "quota_borrowed", "class_not_allowed"})


@dataclass(frozen=True)
class ReplayedVerdict(Record):
    """Verdict of a decision under another policy; null where it cannot be told, with why."""

    TITLE: ClassVar[str] = "a replay of a policy"

    verdict: Annotated[str | None, Words("admit, admit_with_changes, queue, review or reject; null: not known.")]
    because: Annotated[str, Words("The finding that it rests on, where it differs.")] = ""
    lacking: Annotated[str, Words("Why it is not known, in a word.")] = ""


def replay_policy(decision: AdmissionDecision, policy: ClusterPolicy, may_wait_s: float = 0.0) -> ReplayedVerdict:
    """The verdict that a decision would have had under another policy.

    Reasons keep what they found; what evidence of their kind means, how much margin is asked for, freezes and quotas
    are judged anew. Estimates and placement stay as they were: where another policy would have had others, as with a
    start that was sought for later, nothing is told.
    """
    facts = decision.policy_facts
    if facts is None and (policy.has_quotas or policy.freezes or policy.teams):
        return ReplayedVerdict(None, lacking="no_facts")
    if decision.verdict == "queue" and decision.start_p is not None:
        return ReplayedVerdict(None, lacking="later_start")
    rules = policy.rules_for(facts.team if facts is not None else "")
    if lacking := _lacking(decision, rules):
        return ReplayedVerdict(None, lacking=lacking)
    weighed = [_weighed(reason, rules) for reason in decision.reasons if reason.code not in _JUDGED_ANEW]
    kept = [_Finding(severity, review, reason.words.message) for severity, review, reason in weighed]
    kept += _margins(decision, rules)
    anew = [_Finding("bad", False, row.words.message) for row in decision.reasons if row.code == _PRECEDENCE]
    if facts is not None:
        standing = PolicyStanding(policy, facts.version, facts.team, facts.at, facts.is_version, overdue=facts.overdue)
        quotas = facts.quota_standings(policy)
        if quotas is None and policy.has_quotas and policy.team(facts.team) is not None:
            return ReplayedVerdict(None, lacking="not_counted")
        reasons = [*standing_reasons(standing, decision.query), *quota_reasons(quotas or (), decision.query)]
        anew += [_Finding(reason.severity, reason.review, reason.words.message) for reason in reasons]
    return _verdict(decision, kept, anew, may_wait_s)


class _Finding(NamedTuple):
    """A reason as it weighs under the other policy."""

    severity: str
    review: bool
    words: str


def _verdict(
    decision: AdmissionDecision, kept: Sequence[_Finding], anew: Sequence[_Finding], may_wait_s: float
) -> ReplayedVerdict:
    """The verdict by what was found of the candidate, and by what the policy alone says."""
    bad = [finding.words for finding in (*kept, *anew) if finding.severity == "bad"]
    asked = [finding.words for finding in (*kept, *anew) if finding.review]
    if bad:
        is_by_policy = not asked and not any(finding.severity == "bad" for finding in kept)
        return ReplayedVerdict("queue" if is_by_policy and may_wait_s > 0 else "reject", bad[0])
    if asked:
        return ReplayedVerdict("review", asked[0])
    if decision.verdict in ("admit", "admit_with_changes"):
        return ReplayedVerdict(decision.verdict)
    return ReplayedVerdict("admit_with_changes" if decision.changes else "admit", "Nothing speaks against it")


def _lacking(decision: AdmissionDecision, rules: VerdictRules) -> str:
    """Why evidence that is kept does not tell what some rules would say of it; empty where it does."""
    evidence, codes = rules.evidence, {reason.code: reason for reason in decision.reasons}
    if evidence.predicted == ADMIT and "never_ran" in codes and codes["never_ran"].review:
        return "predicted"
    if evidence.assumed != ADMIT and decision.policy.evidence.assumed == ADMIT:
        if decision.policy_facts is None:
            return "no_facts"
        if "no_events" in codes:
            return "no_events"
    return ""


_PRECEDENCE = "queue_precedence"  # an estimate, which stays as it was
_JUDGED_ANEW = frozenset({*POLICY_CODES, *_QUOTA_CODES, "margin_short"})
_KIND_OF = {code: kind for kind, codes in EVIDENCE_CODES.items() for code in codes}


def _weighed(reason: Reason, rules: VerdictRules) -> tuple[str, bool, Reason]:
    """A reason with the weight that its kind of evidence has under some rules; of no kind, with its own.

    What was told of before (info although its kind was for a person, as of a neighbour at risk already) stays so.
    """
    kind = _KIND_OF.get(reason.code)
    if kind is None or (kind == "at_risk" and reason.severity == "info"):
        return reason.severity, reason.review, reason
    severity, review = weight_of(getattr(rules.evidence, kind))
    return severity, review, reason


def _margins(decision: AdmissionDecision, rules: VerdictRules) -> list[_Finding]:
    """Objectives that hold with less to spare than is asked for, and had more before or are the candidate's own."""
    severity, review = weight_of(rules.evidence.at_risk)
    found = []
    for effect in decision.effects:
        if effect.after_state != "holds" or not effect.bound_s or effect.high_s is None:
            continue
        limit_s = effect.bound_s * (1.0 - rules.margin)
        is_touched = effect.is_candidate or (effect.change_s or 0.0) > 0.0
        if rules.margin > 0.0 and effect.high_s > limit_s and is_touched:
            free = 1.0 - effect.high_s / effect.bound_s
            words = f"{effect.query} would keep its objective with {free:.0%} of it to spare; the policy asks for "
            found.append(_Finding(severity, review, f"{words}{rules.margin:.0%}"))
    return found
