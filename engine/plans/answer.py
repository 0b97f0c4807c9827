"""Answer to a comparison of plans, as it is kept: the ranking, differences, rewritten plans and the finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from pydantic import JsonValue, computed_field

from engine.arrays import FloatArray
from engine.document.elements import Operator, Replica
from engine.document.policies import SchedulingGap
from engine.document.reader import OperatorRecord
from engine.records import Record, Sentence, Unwritten
from engine.words import seconds_words

__all__ = [
    "OneNode",
    "PlanDifference",
    "PlanFinding",
    "PlanPlaces",
    "PlanRanking",
    "RankedPlan",
    "Ranking",
    "RewriteRefusal",
    "RewriteStep",
    "RewritingSummary",
]


@dataclass(frozen=True)
class RewriteStep(Record):
    """One application of a rule; `assumed` is what the new statistics rest on until the plan is sampled."""

    rule: str
    words: Sentence
    assumed: Sentence = ""


@dataclass(frozen=True)
class RewriteRefusal(Record):
    """A rule that was not applied. `over` is what stands in the way; both are empty for a rule that was not tried."""

    rule: str
    operator: str
    over: str
    why: Sentence

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        """filter `rules` is not moved below `parse`: what parse writes is not stated."""
        if not self.operator:
            return f"nothing is {'fused' if self.rule == 'fuse' else 'rewritten'}: {self.why}"
        verb = {"fuse": "is not fused with", "join order": "does not change places with"}.get(self.rule)
        return f"`{self.operator}` {verb or 'is not moved below'} `{self.over}`: {self.why}"


@dataclass(frozen=True)
class PlanDifference(Record):
    """One plan against another by mean costs: `seconds` above 0 means the plan is slower.

    `error_s` is the standard error on common samples, None where neither plan has a sample. `more_events` of the sample
    would tell the two apart, if the difference is what it seems; None where they are told apart, or no sample would.
    """

    seconds: float
    error_s: float | None
    told_apart: bool
    equal: bool
    more_events: int | None


@dataclass(frozen=True)
class OneNode(Record):
    """The paper's setting: everything of the plan on one core of this capacity, and nothing else."""

    capacity_cps: float


@dataclass(frozen=True)
class PlanPlaces(Record):
    """Setting beside everything that runs: operators keep their places, or every one is placed anew."""

    places: str


@dataclass(frozen=True, eq=False)
class RankedPlan(Record):
    """One plan's numbers, in seconds, and where it comes from.

    `estimate_s` is the median of the statistic as realised, with its 90 % interval; `flow_s` the mean path, by which
    plans are ranked and compared; `mace_s` is at the statistic across time, `mace_worst_s` the paper's Mace_WC. `state`
    is against the objective under the policies of the nodes, `scheduling` what the estimate lacks under them.
    `replicates` are mean paths without each group of the sample. A rewritten plan has the key of its `base`.
    """

    key: str
    estimate_s: float
    low_s: float | None
    high_s: float | None
    flow_s: float
    mace_s: float
    mace_worst_s: float
    cost_cps: float
    sample_events: float
    assumed: tuple[Sentence, ...]
    placement: dict[str, tuple[Replica, ...]]
    state: str
    scheduling: SchedulingGap | None
    origin: str = "entered"
    base: str | None = None
    steps: tuple[RewriteStep, ...] = ()
    operators: tuple[Mapping[str, JsonValue], ...] = ()
    replicates: Unwritten[FloatArray] = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def dataflow(self) -> tuple[Operator, ...]:
        """Its operators, read from their documents."""
        return tuple(OperatorRecord.parse(item).operator() for item in self.operators)


@dataclass(frozen=True, eq=False)
class Ranking(Record):
    """Plans by their mean path, the fastest first, and how each stands against the first and against what runs.

    `recommended` is the fastest plan that is told apart from what runs, and faster.
    """

    query: str
    statistic: str
    bound_s: float | None
    resolution_s: float
    running: str | None
    recommended: str | None
    plans: tuple[RankedPlan, ...]
    against_best: dict[str, PlanDifference]
    against_running: dict[str, PlanDifference]


@dataclass(frozen=True)
class PlanFinding(Record):
    """Finding of a comparison.

    `kind` is ``better`` (`key` is faster than what runs), ``best`` (what runs is the fastest, or nothing runs and `key`
    is), ``unclear`` (`key` may be faster; `more_events` of the sample would tell), ``equal`` (differences are below the
    resolution), ``alone`` (one plan, nothing to compare it with). `seconds` is the difference to what runs, or between
    the first two plans.
    """

    kind: str
    key: str
    seconds: float = 0.0
    more_events: int | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def words(self) -> str:
        by = seconds_words(abs(self.seconds))[0]
        return {
            "better": f"{self.key} would be {by} faster than what runs.",
            "best": f"{self.key} is the fastest.",
            "unclear": f"{self.key} may be {by} faster, but cannot be told apart yet: {self.more_events} more events.",
            "equal": f"{self.key} is as good as any other: the differences are below the resolution.",
            "alone": f"There is no plan to compare {self.key} with.",
        }[self.kind]


@dataclass(frozen=True)
class RewritingSummary(Record):
    """Plans that the rules looked at, `capped` where there were more than `cap`, and what they refused."""

    examined: int
    cap: int
    capped: bool
    cost_cps: float
    refused: tuple[RewriteRefusal, ...]


@dataclass(frozen=True, eq=False)
class PlanRanking(Ranking):
    """A ranking of entered and rewritten plans with its finding; `rewriting` is by entered plan."""

    TITLE: ClassVar[str] = "a comparison of plans"

    finding: PlanFinding
    hop_cycles: float
    setting: OneNode | PlanPlaces
    rewriting: dict[str, RewritingSummary]
