"""Load of a node from its cores: one rule for every page, report and answer.

Load is work per second as a share of what a core can do. Its mean is over the horizon, its peak the largest of Mace's
subintervals. Work that arrives does not move from core to core, so a node is as busy as its busiest core: its load is
the mean of that one, its peak the highest of any core, its excess at each time the largest of its cores.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

__all__ = ["CoreLoad", "combine_cores"]


@dataclass(frozen=True, slots=True)
class CoreLoad:
    """Load of a core, or of a node by the rule.

    Attributes
    ----------
    mean, peak : float
        Shares of capacity.
    excess_s : tuple of float
        Seconds to work off what waits, over time; empty where it is not known.
    """

    mean: float
    peak: float
    excess_s: tuple[float, ...] = ()


def combine_cores(cores: Iterable[CoreLoad]) -> CoreLoad:
    """Load of the node that has these cores; 0 without any.

    Examples
    --------
    >>> combine_cores([CoreLoad(0.64, 0.7, (0.0, 2.0)), CoreLoad(0.42, 1.2, (1.0, 0.0))])
    CoreLoad(mean=0.64, peak=1.2, excess_s=(1.0, 2.0))
    """
    known = list(cores)
    return CoreLoad(
        mean=max((core.mean for core in known), default=0.0),
        peak=max((core.peak for core in known), default=0.0),
        excess_s=tuple(max(values) for values in zip_longest(*(core.excess_s for core in known), fillvalue=0.0)),
    )
