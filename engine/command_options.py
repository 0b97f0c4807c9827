"""Options of the engine's commands, as they are given beside a document or in a case file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from engine.kinds import Anything, Enumeration, Number, String
from engine.records import Flag, Record, Words

__all__ = [
    "AdmitOptions",
    "CandidatesOptions",
    "CommandOptions",
    "EstimateOptions",
    "PlaceOptions",
    "PlansOptions",
    "PredictOptions",
    "SimulateOptions",
    "WhatIfCommandOptions",
]

_Count = Annotated[int, Number(least=1, whole=True)]
_MaceEvery = Annotated[_Count, Words("subintervals of the document that make one of Mace's (1)")]
_Seed = Annotated[int, Number(least=0, whole=True)]
_Share = Annotated[float, Number(least=0)]
_Intervals = Annotated[Flag, Words("false leaves out random costs and arrivals (true)")]
_Weights = Annotated[str | None, String(), Words("an .npz file of weights, its card beside it (those shipped)")]


@dataclass(frozen=True, kw_only=True)
class CommandOptions(Record):
    """Options of a command: none."""

    TITLE: ClassVar[str] = "a command without options"


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(CommandOptions):
    """Options of ``estimate``."""

    TITLE: ClassVar[str] = "the command estimate"

    flow_slices: Annotated[_Count, Words("slices per subinterval for Flow (1)")] = 1
    mace_every: _MaceEvery = 1
    intervals: _Intervals = True


@dataclass(frozen=True, kw_only=True)
class SimulateOptions(CommandOptions):
    """Options of ``simulate``."""

    TITLE: ClassVar[str] = "the command simulate"

    policy: Annotated[str, String(), Words("scheduling policy (stimulus-time)")] = "stimulus-time"
    seed: Annotated[_Seed, Words("seed of the random numbers (0)")] = 0
    repeats: Annotated[_Count, Words("runs, with seeds that follow each other (1)")] = 1
    arrivals: Annotated[str, Enumeration(("drawn", "even")), Words("drawn or even within a subinterval (drawn)")] = (
        "drawn"
    )
    outputs: Annotated[str, Enumeration(("random", "fixed")), Words("random or fixed number of outputs (random)")] = (
        "random"
    )
    cost_cv: Annotated[_Share, Words("coefficient of variation of an event's cycles (0)")] = 0.0


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(CommandOptions):
    """Options of ``place``."""

    TITLE: ClassVar[str] = "the command place"

    algorithm: Annotated[
        str, Enumeration(("search", "greedy")), Words("search, or greedy: without the climb (search)")
    ] = "search"
    budget_s: Annotated[
        float | None, Number(above=0), Words("seconds to search (5; without limit if rounds are given)")
    ] = None
    rounds: Annotated[
        int | None,
        Number(least=1, whole=True),
        Words("rounds to search; with these alone the answer is always the same"),
    ] = None
    seed: Annotated[_Seed, Words("seed of the random numbers (0)")] = 0
    workers: Annotated[int, Number(least=1, most=64, whole=True), Words("processor cores to search on (1)")] = 1
    objective: Annotated[
        str, Enumeration(("worst", "objectives")), Words("worst latency, or latency over objective (worst)")
    ] = "worst"
    mace_every: _MaceEvery = 1
    tolerance: Annotated[_Share, Words("share of the value that fewer moves may cost (0)")] = 0.0
    transfer_s: Annotated[_Share, Words("seconds an event's way to another node costs (0.001)")] = 1e-3
    rank_within: Annotated[_Share, Words("share of the best within which Flow decides (0)")] = 0.0
    flow: Annotated[Flag, Words("false leaves out Flow and the latencies of migration pauses (true)")] = True


@dataclass(frozen=True, kw_only=True)
class AdmitOptions(CommandOptions):
    """Options of ``admit``."""

    TITLE: ClassVar[str] = "the command admit"

    policy: Annotated[Any, Anything(), Words("a JSON object with the policy's settings")] = None
    mace_every: _MaceEvery = 1


@dataclass(frozen=True, kw_only=True)
class WhatIfCommandOptions(CommandOptions):
    """Options of ``what-if``."""

    TITLE: ClassVar[str] = "the command what-if"

    place: Annotated[
        str | None,
        Enumeration(("keep", "fill", "search")),
        Words("how operators without a place get one (fill)"),
    ] = None
    seed: Annotated[_Seed, Words("seed of the search (0)")] = 0
    mace_every: _MaceEvery = 1
    flow: Annotated[Flag, Words("false estimates by Mace alone (true)")] = True
    intervals: _Intervals = True
    rounds: Annotated[int, Number(least=0, whole=True), Words("rounds of the placement search (8)")] = 8
    find: Annotated[str | None, String(), Words("smallest_pool, cheapest_mix, pareto, survival or growth")] = None
    parameters: Annotated[Any, Anything(), Words("a JSON object with the parameters of find")] = None


@dataclass(frozen=True, kw_only=True)
class PlansOptions(CommandOptions):
    """Options of ``plans``."""

    TITLE: ClassVar[str] = "the command plans"

    query: Annotated[str | None, String(), Words("one query only")] = None
    capacity_cps: Annotated[
        float | None, Number(above=0), Words("judge on one node of this capacity, not where it would run")
    ] = None
    hop_cycles: Annotated[_Share, Words("cycles an event spends in a queue between two operators (0)")] = 0.0
    places: Annotated[
        str,
        Enumeration(("keep", "free")),
        Words("operators that run stay, or all are placed anew (keep)"),
    ] = "keep"
    mace_every: _MaceEvery = 1


@dataclass(frozen=True, kw_only=True)
class PredictOptions(CommandOptions):
    """Options of ``predict``."""

    TITLE: ClassVar[str] = "the command predict"

    weights: _Weights = None


@dataclass(frozen=True, kw_only=True)
class CandidatesOptions(CommandOptions):
    """Options of ``candidates``."""

    TITLE: ClassVar[str] = "the command candidates"

    count: Annotated[
        int, Number(least=1, most=20_000, whole=True), Words("candidates, the heuristics included (100)")
    ] = 100
    seed: Annotated[_Seed, Words("seed of the draws (0)")] = 0
    target: Annotated[
        str | None, Enumeration(("T", "Lp", "Le")), Words("choose by throughput or by one of the latencies")
    ] = None
    weights: _Weights = None
