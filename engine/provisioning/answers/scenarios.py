"""Records of answers about scenarios: side by side, each node lost, and growing loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from engine.document.elements import Replica
from engine.latency_state import LatencyStanding
from engine.provisioning.answers.objectives import ObjectiveAnswer, ObjectiveMiss, RealisedObjective
from engine.provisioning.answers.pools import NodeLoss
from engine.records import Record, Sentence

__all__ = [
    "ComparedScenario",
    "Growth",
    "Headroom",
    "LossAnswer",
    "Refusal",
    "ScenarioAnswer",
    "ScenarioComparison",
    "ScenarioMove",
    "ScenarioNode",
    "ScenarioQuery",
    "SurvivalAnswer",
]


@dataclass(frozen=True)
class Refusal(Record):
    """Reason why a scenario cannot be."""

    TITLE: ClassVar[str] = "a refusal"

    code: str
    message: str
    faults: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True)
class ScenarioQuery(Record):
    """Figures of a query in a scenario, of the many that its report has."""

    TITLE: ClassVar[str] = "a query of a scenario"
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    statistic: str
    bound_s: float | None
    estimate_s: float
    low_s: float | None
    high_s: float | None
    worst_s: float
    state: str
    standing: LatencyStanding | None = None
    scheduling: dict[str, Any] | None = None
    probability: Annotated[dict[str, float] | None, Field(exclude=True)] = None

    @property
    def chance(self) -> float | None:
        """Share of realisations that keep the objective."""
        return None if self.probability is None else self.probability["share"]


@dataclass(frozen=True)
class ScenarioMove(Record):
    """An operator that a scenario places otherwise."""

    TITLE: ClassVar[str] = "a move of a scenario"

    operator: str
    query: str | None
    before: Annotated[tuple[Replica, ...], Field(alias="from")]
    after: Annotated[tuple[Replica, ...], Field(alias="to")]


@dataclass(frozen=True)
class ScenarioNode(Record):
    """Load of a node by its busiest core, and the state that it holds."""

    TITLE: ClassVar[str] = "a node of a scenario"

    node: str
    pool: str | None
    price_per_hour: float | None
    load_mean: float
    load_peak: float
    mace_s: float
    operators: int
    memory_bytes: float | None
    state_bytes: float
    memory_state: str


@dataclass(frozen=True, kw_only=True)
class ScenarioAnswer(Record):
    """A scenario: its changes, what it costs and its estimate, or why it cannot be."""

    TITLE: ClassVar[str] = "a scenario's answer"

    name: str
    place: str
    changes: tuple[Mapping[str, object], ...] = ()
    words: tuple[Sentence, ...] = ()
    infeasible: Refusal | None = None
    node_count: int
    cost_per_hour: float | None
    unpriced_nodes: tuple[str, ...] = ()
    by: str = ""  #: flow or mace; empty without an estimate, as are the fields after it
    mace_s: float | None = None
    flow_s: float | None = None
    worst_s: float | None = None  #: largest worst case of a query; `mace_s` at Mace's width, `flow_s` of the mean path
    alarm: Sentence = ""
    kept: tuple[str, ...] = ()  #: queries by the state of their objectives
    at_risk: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    #: reports of the queries without their series; `figures_of` reads one
    queries: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: tuple[ScenarioNode, ...] = ()
    moves: tuple[ScenarioMove, ...] = ()
    memory: tuple[Sentence, ...] = ()

    def figures_of(self, query: str) -> ScenarioQuery | None:
        return ScenarioQuery.parse(self.queries[query]) if query in self.queries else None

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        return _without_estimate(handler(self))


_FIELDS = [entry.name for entry in fields(ScenarioAnswer)]
_ESTIMATED = frozenset(_FIELDS[_FIELDS.index("by") :])


def _without_estimate(plain: dict[str, object]) -> dict[str, object]:
    """The JSON of a scenario, without the fields of an estimate where there is none."""
    return plain if plain["by"] else {name: value for name, value in plain.items() if name not in _ESTIMATED}


@dataclass(frozen=True, kw_only=True)
class ComparedScenario(ScenarioAnswer):
    """A scenario with its worst loss of a node, None where that was not asked for or takes too long."""

    lost: NodeLoss | None = None


@dataclass(frozen=True)
class ScenarioComparison(Record):
    """Scenarios side by side."""

    TITLE: ClassVar[str] = "a comparison"

    scenarios: tuple[ComparedScenario, ...]


@dataclass(frozen=True, kw_only=True)
class LossAnswer(ScenarioAnswer):
    """The loss of a node: the queries whose objectives it breaks or puts at risk, and the scenario.

    Of a failure domain, `node` is its name, as ``rack=r7``, and `lost` are its nodes.
    """

    TITLE: ClassVar[str] = "the loss of a node"

    node: str
    lost: tuple[str, ...] = ()
    breaks: tuple[str, ...]
    risks: tuple[str, ...] = ()

    @model_serializer(mode="wrap")
    def _written(self, handler: SerializerFunctionWrapHandler) -> dict[str, object]:
        own = {"node": self.node, "breaks": list(self.breaks), "risks": list(self.risks)}
        own |= {"lost": list(self.lost)} if self.lost else {}
        return own | {name: value for name, value in _without_estimate(handler(self)).items() if name not in own}


@dataclass(frozen=True, kw_only=True)
class SurvivalAnswer(ObjectiveAnswer):
    """Outcome of the loss of each node; `by_mace` losses are estimates by Mace alone."""

    TITLE: ClassVar[str] = "a survival"

    survives: bool
    now: ScenarioAnswer
    losses: tuple[LossAnswer, ...]
    by_mace: int = 0
    message: str


@dataclass(frozen=True, eq=False)
class Headroom(Record):
    """Headroom of one load with every operator staying in its place."""

    TITLE: ClassVar[str] = "a headroom"

    query: str | None  #: whose load; None for everything together
    #: largest factor with which every objective is kept; None if one is broken as it is (see `miss`). `most` where
    #: nothing broke up to the limit of the search.
    factor: float | None
    unlimited: bool  #: whether the limit of the search was reached
    confirmed: bool  #: whether realised latencies agree, up to the upper ends of their intervals
    miss: ObjectiveMiss | None  #: what breaks first just above
    #: the objective that is nearest to its bound with that factor, where it is confirmed
    nearest: RealisedObjective | None = None
    note: str = ""

    def with_note(self, note: str) -> Headroom:
        """The same with a further note."""
        return replace(self, note=f"{self.note}; {note}" if self.note else note)


@dataclass(frozen=True, eq=False, kw_only=True)
class Growth(ObjectiveAnswer):
    """Headroom of everything together, and of every query alone; `figures` are those of the load as it is.

    Objectives at risk as it is are judged by their medians: `figures` names them.
    """

    TITLE: ClassVar[str] = "a growth"

    together: Headroom
    queries: dict[str, Headroom]
    flows: int
