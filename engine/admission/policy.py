"""Policy of admission, set by an operator of the cluster."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Field, FieldTable, Flag, ListOf, Number, String

__all__ = ["AdmissionPolicy", "read_policy"]


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """Rules of admission.

    Attributes
    ----------
    review_at_risk : bool
        A person decides where an estimate holds but the upper end of its interval does not.
    review_assumed : bool
        A person decides where statistics of the candidate are assumed, or measured on too few events.
    review_coarse : bool
        A person decides where arrivals are known as counts over more than a subinterval alone, which hide bursts.
    review_untrusted : bool
        A person decides where the intervals of a running query that the candidate can affect hold too seldom lately.
    min_events : float
        An operator's statistics count as measured from so many events on.
    may_move_neighbours : bool
        Whether operators of running queries may be moved to make room.
    max_mean_load : float
        Share of its capacity that a server may be given on average over the horizon.
    start_horizon_share : float
        A later start must leave at least this share of the horizon, and of the candidate's mean rate, to be judged on.
    full_evaluations : int
        Runs of Flow that each search may spend.
    closed_nodes : tuple of str
        Nodes that take nothing new (draining).
    choices : bool
        Whether to search for alternatives (``choices`` of a decision) at all.
    robustness : bool
        Whether to tell how much more load and cost a verdict that passes would stand, and which node may be lost.
    thin_below : float
        A verdict that stands less than this share of more load or cost is called thin; 0 calls none so.
    """

    review_at_risk: bool = True
    review_assumed: bool = False
    review_coarse: bool = True
    review_untrusted: bool = True
    min_events: float = 100.0
    may_move_neighbours: bool = True
    max_mean_load: float = 1.0
    start_horizon_share: float = 0.25
    full_evaluations: int = 5
    closed_nodes: tuple[str, ...] = ()
    choices: bool = True
    robustness: bool = True
    thin_below: float = 0.1

    def to_dict(self) -> dict[str, Any]:
        """The policy as JSON."""
        return asdict(self) | {"closed_nodes": list(self.closed_nodes)}


_POLICY = FieldTable(
    "a policy",
    Field("review_at_risk", Flag()),
    Field("review_assumed", Flag()),
    Field("review_coarse", Flag()),
    Field("review_untrusted", Flag()),
    Field("min_events", Number(least=0)),
    Field("may_move_neighbours", Flag()),
    Field("max_mean_load", Number(above=0)),
    Field("start_horizon_share", Number(above=0)),
    Field("full_evaluations", Number(least=1, whole=True)),
    Field("closed_nodes", ListOf(String())),
    Field("choices", Flag()),
    Field("robustness", Flag()),
    Field("thin_below", Number(least=0)),
)


def read_policy(document: Any, *, path: str = "policy") -> AdmissionPolicy:
    """Read a policy from its document; `AdmissionPolicy` has the defaults.

    Raises
    ------
    DocumentError
        With every fault.
    """
    faults: list[Fault] = []
    record = _POLICY.read(document, "", path, faults)
    if record is not BAD and not faults and record.get("start_horizon_share", 0.0) > 1.0:
        message = f"start_horizon_share is {record['start_horizon_share']:g}; allowed: a number above 0 and up to 1"
        faults.append(Fault(f"{path}.start_horizon_share", message))
    if faults:
        raise DocumentError(faults, "policy")
    if "closed_nodes" in record:
        record["closed_nodes"] = tuple(record["closed_nodes"])
    return AdmissionPolicy(**record)
