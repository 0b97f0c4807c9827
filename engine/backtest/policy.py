"""The policy that a backtest replays recorded requests through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

from engine.admission.answer import AdmissionPolicy
from engine.document.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.kinds import Enumeration, Number
from engine.policies.rules import EvidenceRules
from engine.records import Record, Words

__all__ = ["RECORDED", "ReplayPolicy", "read_policy"]

_VERDICTS = ("admit", "review")


@dataclass(frozen=True)
class ReplayPolicy(Record):
    """Policy of a replay: its decisions about requests, and its placement."""

    TITLE: ClassVar[str] = "a policy"

    admission: Annotated[
        str,
        Enumeration(("recorded", "everything", "mace")),
        Words("recorded (as was really decided), everything (whatever finds a node) or mace (by the engine)"),
    ] = "mace"
    at_risk: Annotated[
        str,
        Enumeration(_VERDICTS),
        Words("With mace: admit or review what may miss an objective; a replay counts review as not admitted"),
    ] = "review"
    assumed: Annotated[str, Enumeration(_VERDICTS), Words("With mace: admit or review assumed statistics")] = "admit"
    headroom: Annotated[float, Number(least=0, most=0.9), Words("Share of every objective that must stay free")] = 0.0
    placement: Annotated[
        str,
        Enumeration(("keep", "greedy", "search")),
        Words("keep, or how what runs is placed anew when an objective is threatened: greedy or search"),
    ] = "keep"
    max_moves: (
        Annotated[int, Number(least=0, most=1000, whole=True), Words("Over the period; null for any number")] | None
    ) = None

    def admission_policy(self, closed_nodes: tuple[str, ...]) -> AdmissionPolicy:
        """The policy given to `engine.admission`, without a search for alternatives: nobody is there to take one."""
        return AdmissionPolicy(
            evidence=EvidenceRules(at_risk=self.at_risk, assumed=self.assumed),
            closed_nodes=closed_nodes,
            choices=False,
            robustness=False,
        )

    def tightened(self, deployment: Deployment) -> Deployment:
        """The deployment with objectives that leave the headroom free."""
        if self.headroom == 0.0:
            return deployment
        objectives = tuple(
            replace(objective, bound_s=objective.bound_s * (1.0 - self.headroom)) for objective in deployment.objectives
        )
        return replace(deployment, objectives=objectives)


RECORDED = ReplayPolicy(admission="recorded")


def read_policy(document: Any) -> ReplayPolicy:
    """Read a policy from its document; `ReplayPolicy` has the defaults.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    policy = ReplayPolicy.read(document, "", "policy", faults)
    if policy is None:
        raise DocumentError(faults, "policy")
    return policy
