"""Policy of admission, set by an operator of the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from engine.fields import Number, String
from engine.records import Flag, Record

__all__ = ["AdmissionPolicy"]


@dataclass(frozen=True, slots=True)
class AdmissionPolicy(Record):
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

    TITLE: ClassVar[str] = "a policy"

    review_at_risk: Flag = True
    review_assumed: Flag = False
    review_coarse: Flag = True
    review_untrusted: Flag = True
    min_events: Annotated[float, Number(least=0)] = 100.0
    may_move_neighbours: Flag = True
    max_mean_load: Annotated[float, Number(above=0)] = 1.0
    start_horizon_share: Annotated[float, Number(above=0, most=1)] = 0.25
    full_evaluations: Annotated[int, Number(least=1, whole=True)] = 5
    closed_nodes: tuple[Annotated[str, String()], ...] = ()
    choices: Flag = True
    robustness: Flag = True
    thin_below: Annotated[float, Number(least=0)] = 0.1
