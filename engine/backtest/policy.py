"""The policy that a backtest replays recorded requests through."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from engine.admission.policy import AdmissionPolicy
from engine.document.deployment import Deployment
from engine.errors import DocumentError, Fault
from engine.fields import Enumeration, Field, FieldTable, Number

__all__ = ["RECORDED", "ReplayPolicy", "policy_schema", "read_policy"]

_ADMISSION = ("recorded", "everything", "mace")
_VERDICTS = ("admit", "review")
_PLACEMENT = ("keep", "greedy", "search")
_MAX_MOVES = 1000
_MAX_HEADROOM = 0.9


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """Policy of a replay: its decisions about requests, and its placement.

    Attributes
    ----------
    admission : str
        ``recorded`` (as was really decided), ``everything`` (whatever finds a node), ``mace`` (by `engine.admission`).
    at_risk, assumed : str
        With ``mace``: whether a request whose interval reaches beyond an objective, or that rests on assumed
        statistics, is admitted, or left to a person (``review``), which a replay counts as not admitted.
    headroom : float
        Share of every objective that must stay free, 0 to 0.9.
    placement : str
        ``keep``, or how what runs is placed anew when an objective is threatened: ``greedy`` or ``search``.
    max_moves : int or None
        Moves allowed over the whole period; None for any number.
    """

    admission: str = "mace"
    at_risk: str = "review"
    assumed: str = "admit"
    headroom: float = 0.0
    placement: str = "keep"
    max_moves: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """The policy as JSON."""
        return asdict(self)

    def admission_policy(self, closed_nodes: tuple[str, ...]) -> AdmissionPolicy:
        """The policy given to `engine.admission`, without a search for alternatives: nobody is there to take one."""
        return AdmissionPolicy(
            review_at_risk=self.at_risk == "review",
            review_assumed=self.assumed == "review",
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

_RULES = FieldTable(
    "a policy",
    Field("admission", Enumeration(_ADMISSION), help="recorded, everything or mace; default mace"),
    Field(
        "at_risk", Enumeration(_VERDICTS), help="With mace: admit or review what may miss an objective; default review"
    ),
    Field("assumed", Enumeration(_VERDICTS), help="With mace: admit or review assumed statistics; default admit"),
    Field(
        "headroom", Number(least=0, most=_MAX_HEADROOM), help="Share of every objective that must stay free; default 0"
    ),
    Field("placement", Enumeration(_PLACEMENT), help="keep, greedy or search; default keep"),
    Field(
        "max_moves",
        Number(least=0, most=_MAX_MOVES, whole=True),
        nullable=True,
        help="Over the period; null for any number",
    ),
)


def policy_schema() -> dict[str, Any]:
    """JSON Schema of a policy's document."""
    return _RULES.schema()


def read_policy(document: Any, *, path: str = "policy") -> ReplayPolicy:
    """Read a policy from its document; `ReplayPolicy` has the defaults.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    record = _RULES.read(document, "", path, faults)
    if faults:
        raise DocumentError(faults, "policy")
    return ReplayPolicy(**record)
