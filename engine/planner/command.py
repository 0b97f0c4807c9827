"""``latency``, ``gg1``, ``order``, ``bridge``, ``plan`` and ``split`` of the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.errors import DocumentError, Fault
from engine.fields import BAD, Anything, Enumeration, Field, FieldTable, ListOf, Number, String
from engine.order_statistics import gumbel_maximum, normal_maximum
from engine.planner.kernel import bridge_wait, queue_wait
from engine.planner.latency import (
    KINDS,
    MEANS,
    VARIANCES,
    VARIANTS,
    LatencyOptions,
    StageSettings,
    evaluate_latency,
)
from engine.planner.profile import MAX_NODES, MAX_THREADS, NodeHardware, StageProfile, StageQuestion
from engine.planner.rounds import StageRound, size_rounds, split_constraint
from engine.planner.search import SearchLimits, StageSearch
from engine.planner.sizing import size_stage

__all__ = [
    "bridge_command",
    "gg1_command",
    "latency_command",
    "order_command",
    "plan_command",
    "split_command",
]

_POSITIVE, _AMOUNT, _COUNT = Number(above=0), Number(least=0), Number(least=1, whole=True)
_STAGE = (
    Field("profile", Anything(), required=True, help="statistics of the stage"),
    Field("hardware", Anything(), help="one node; all defaults"),
)
_MODEL = (
    Field("variant", Enumeration(VARIANTS), help="form of the model"),
    Field("mean", Enumeration(MEANS), help="mean wait of a G/G/1 queue; klb"),
    Field("var", Enumeration(VARIANCES), help="its variance; qna"),
    Field("kind", Enumeration(KINDS), help="statistic: mean, quantile (normal) or its bound (cantelli); mean"),
    Field("x", Anything(), help="level of the quantile; 0.99"),
)

_LATENCY = FieldTable(
    "latency question",
    *_STAGE,
    Field("rate", _POSITIVE, required=True, help="input rate of the whole cluster, tuples/s"),
    Field("S", _COUNT, required=True, help="nodes"),
    Field("M", Number(least=1, most=1000, whole=True), required=True, help="mapper threads per node"),
    Field("R", Number(least=1, most=1000, whole=True), required=True, help="reducer threads per node"),
    Field("B_in", _POSITIVE, required=True, help="interval of input batches, s"),
    Field("B_sh", _POSITIVE, required=True, help="interval of shuffle batches, s"),
    Field("B_ch", _POSITIVE, required=True, help="interval of polls, s"),
    *_MODEL,
    Field("order", Enumeration(("exact", "asymptotic")), help="largest of several normal draws; exact"),
)


def latency_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Latency of a stage under given settings: metric, mean, variance, phases and utilisations; the paper's form."""
    faults: list[Fault] = []
    read = _LATENCY.read(document, "", "", faults)
    profile, hardware = _stage(read, faults)
    choices = _choices(read, "", faults)
    if faults or profile is None or hardware is None:
        raise DocumentError(faults, _LATENCY.name)
    intervals = (read[name] for name in ("B_in", "B_sh", "B_ch"))
    settings = StageSettings(read["S"], read["M"], read["R"], *intervals)
    order = read.get("order", "exact")
    model = LatencyOptions(**{"variant": "paper"} | choices, order=order)
    latency = evaluate_latency(profile, hardware, read["rate"], settings, model)
    return {
        "stable": latency.stable,
        "reason": latency.reason,
        "metric": latency.metric,
        "mean": latency.mean,
        "var": latency.var,
        "phase_mean": None if latency.phase_mean is None else list(latency.phase_mean),
        "phase_var": None if latency.phase_var is None else list(latency.phase_var),
        "util": {name: _finite(value) for name, value in latency.util.items()},
        "a": latency.largest[0],
        "a_sd": latency.largest[1],
    }


def _stage(read: Any, faults: list[Fault]) -> tuple[StageProfile | None, NodeHardware | None]:
    """Profile and hardware of a document whose table was read; faults of both are added."""
    if read is BAD:
        return None, None
    profile = None if read["profile"] is BAD else StageProfile.read(read["profile"], "", "profile", faults)
    hardware = NodeHardware.read(read.get("hardware", {}), "", "hardware", faults)
    return profile, hardware


def _choices(read: Any, path: str, faults: list[Fault]) -> dict[str, Any]:
    """The given ones of the model's options; the level counts for a quantile only."""
    if read is BAD:
        return {}
    given = {field.name: read[field.name] for field in _MODEL if field.name in read}
    if given.get("kind", "mean") == "mean":
        given.pop("x", None)
    elif "x" in given and not (_POSITIVE.fits(given["x"]) and given["x"] < 1.0):
        where = f"{path}.x" if path else "x"
        faults.append(Fault(where, f"x is {given['x']!r}; allowed: a finite number above 0 and below 1"))
    return given


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_GG1 = FieldTable(
    "queue",
    Field("ta", _POSITIVE, required=True, help="mean time between two arrivals"),
    Field("ca2", _AMOUNT, required=True, help="its squared coefficient of variation"),
    Field("ts", _AMOUNT, required=True, help="mean service time"),
    Field("cs2", _AMOUNT, required=True, help="its squared coefficient of variation"),
    Field("ds3", Number(), help="E[S^3] / E[S]^3; not above 0: that of a gamma law; -1"),
)


def gg1_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and variance of the wait in a G/G/1 queue by every pair of approximations; null where it is infinite."""
    read = _read(_GG1, document)
    ta, ca2, ts, cs2 = (float(read[name]) for name in ("ta", "ca2", "ts", "cs2"))
    ds3 = float(read.get("ds3", -1.0))
    waits = {
        f"{MEANS[mean]}/{VARIANCES[var]}": queue_wait(ta, ca2, ts, cs2, ds3, mean, var)
        for mean in range(len(MEANS))
        for var in range(len(VARIANCES))
    }
    return {pair: [_finite(value) for value in wait] for pair, wait in waits.items()}


_ORDER = FieldTable("order statistic", Field("n", _COUNT, required=True, help="draws"))


def order_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Mean and deviation of the largest of n standard normal draws, exact and by Gumbel's limit."""
    draws = _read(_ORDER, document)["n"]
    gumbel = gumbel_maximum(draws)
    return {"exact": list(normal_maximum(draws)), "asymptotic": None if gumbel is None else list(gumbel)}


_BRIDGE = FieldTable(
    "bridge",
    Field("N", Number(least=1), required=True, help="periodic sources with random phases"),
    Field("rho", _AMOUNT, required=True, help="utilisation of their server"),
)


def bridge_command(document: Any, options: Mapping[str, Any]) -> list[float | None]:
    """First and second moment of the wait behind periodic sources, in service times."""
    read = _read(_BRIDGE, document)
    return [_finite(value) for value in bridge_wait(float(read["N"]), float(read["rho"]))]


_INTERVALS = ListOf(_POSITIVE, least=3, most=3)
_SPEC = FieldTable(
    "spec",
    Field("L", _POSITIVE, required=True, help="latency constraint, s"),
    *_MODEL,
    Field("max_m", Number(least=1, most=MAX_THREADS, whole=True), help="mapper threads per node at most; 6"),
    Field("max_r", Number(least=1, most=MAX_THREADS, whole=True), help="reducer threads per node at most; 6"),
    Field("b_lo", _INTERVALS, help="lower bounds of B_in, B_sh, B_ch, s; 0.001, 0.005, 0.005"),
    Field("b_hi", _INTERVALS, help="upper bounds, s; 0.1, 2, 2"),
)
_PLAN = FieldTable(
    "plan question",
    *_STAGE,
    Field("rate", _POSITIVE, required=True, help="input rate of the whole cluster, tuples/s"),
    Field("s_max", Number(least=1, most=MAX_NODES, whole=True), required=True, help="nodes at most"),
    Field("headroom", _AMOUNT, help="share of the largest rate to keep free, below 1; 0"),
    Field("spec", _SPEC, required=True, help="constraint, model and ranges of the search"),
)
_ROUND = FieldTable(
    "a round",
    Field("name", String(), required=True),
    Field("profile", Anything(), required=True, help="statistics of the stage"),
    Field("emitted", _POSITIVE, help="outputs of its reducers per map output; 1"),
    Field("after", ListOf(String()), help="rounds it reads from; none: the source"),
)
_STAGE_SIZING = FieldTable(
    "sizing", *_STAGE, Field("question", Anything(), required=True, help="rate, constraint, nodes at most")
)
_ROUNDS_SIZING = FieldTable(
    "sizing of rounds",
    Field("rounds", ListOf(_ROUND, least=1, most=100), required=True, help="rounds, each after those it reads from"),
    *_STAGE[1:],
    Field("question", Anything(), required=True, help="rate, constraint, nodes of all rounds at most"),
)


def plan_command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Fewest nodes, the largest rate they bear and the settings that bear it.

    With ``question`` in the place of ``rate``, ``s_max`` and ``spec`` the whole answer of `size_stage`; with ``rounds``
    as well, a plan for each of several rounds.
    """
    if isinstance(document, Mapping) and "rounds" in document:
        return _size_rounds(document)
    if isinstance(document, Mapping) and "question" in document:
        return _size_stage(document)
    faults: list[Fault] = []
    read = _PLAN.read(document, "", "", faults)
    profile, hardware = _stage(read, faults)
    spec = {} if read is BAD or read["spec"] is BAD else read["spec"]
    choices = _choices(spec, "spec", faults)
    headroom = 0.0 if read is BAD else read.get("headroom", 0.0)
    if headroom is not BAD and headroom >= 1.0:
        faults.append(Fault("headroom", f"headroom is {headroom:g}; allowed: a number from 0 to below 1"))
    limits = SearchLimits(**{name: spec[name] for name in ("max_m", "max_r", "b_lo", "b_hi") if name in spec})
    if BAD not in (limits.b_lo, limits.b_hi):
        for place, (low, high) in enumerate(zip(limits.b_lo, limits.b_hi, strict=True)):
            if BAD not in (low, high) and high < low:
                message = f"item {place} is {high:g}; allowed: at least {low:g} (b_lo)"
                faults.append(Fault(f"spec.b_hi[{place}]", message))
    if faults or profile is None or hardware is None:
        raise DocumentError(faults, _PLAN.name)
    search = StageSearch(profile, hardware, LatencyOptions(**choices), limits, spec["L"])
    target = read["rate"] / (1.0 - headroom)
    nodes = search.fewest_nodes(target, read["s_max"])
    if nodes is None:
        return {"feasible": False}
    max_rate, settings = search.largest_above(target, nodes)
    assert settings is not None, "the number of nodes was chosen because it reaches the rate"
    return {
        "feasible": True,
        "S": nodes,
        "Lambda": max_rate,
        "M": settings.mappers,
        "R": settings.reducers,
        "B_in": settings.b_in_s,
        "B_sh": settings.b_sh_s,
        "B_ch": settings.b_ch_s,
    }


def _size_stage(document: Mapping[str, Any]) -> dict[str, Any]:
    faults: list[Fault] = []
    read = _STAGE_SIZING.read(document, "", "", faults)
    profile, hardware = _stage(read, faults)
    question = StageQuestion.read(read["question"], "", "question", faults)
    if faults or profile is None or hardware is None or question is None:
        raise DocumentError(faults, _STAGE_SIZING.name)
    return size_stage(profile, hardware, **question.to_dict()).to_dict()


def _size_rounds(document: Mapping[str, Any]) -> dict[str, Any]:
    faults: list[Fault] = []
    read = _ROUNDS_SIZING.read(document, "", "", faults)
    hardware = NodeHardware.read(read.get("hardware", {}), "", "hardware", faults)
    question = None if read["question"] is BAD else StageQuestion.read(read["question"], "", "question", faults)
    numbers: dict[str, int] = {}
    rounds: list[StageRound] = []
    for number, item in enumerate([] if read["rounds"] is BAD else read["rounds"]):
        if item is BAD or item["name"] is BAD or item["profile"] is BAD:
            continue
        path = f"rounds[{number}]"
        profile = StageProfile.read(item["profile"], path, "profile", faults) or StageProfile()
        names = [] if item.get("after") is BAD else item.get("after", [])
        for place, name in enumerate(names):
            if name is not BAD and name not in numbers:
                message = f"item {place} is {name!r}; allowed: a round that stands before"
                faults.append(Fault(f"{path}.after[{place}]", message))
        if item["name"] in numbers:
            faults.append(Fault(f"{path}.name", f"name is {item['name']!r}; allowed: names that differ"))
        after = tuple(dict.fromkeys(numbers[name] for name in names if name in numbers))
        numbers[item["name"]] = number
        rounds.append(StageRound(item["name"], profile, item.get("emitted", 1.0), after))
    if faults or hardware is None or question is None:
        raise DocumentError(faults, _ROUNDS_SIZING.name)
    return size_rounds(rounds, hardware, **question.to_dict()).to_dict()


_SPLIT = FieldTable(
    "split",
    Field("total", _POSITIVE, required=True, help="constraint of all rounds, s"),
    Field("weights", ListOf(_AMOUNT, least=1), help="what each round needs, for a constraint on the mean"),
    Field("means", ListOf(_AMOUNT, least=1), help="mean of each round, for a constraint on a quantile"),
    Field("variances", ListOf(_AMOUNT, least=1), help="variance of each round"),
    Field("z", Number(), help="deviations between mean and quantile"),
    Field("edges", ListOf(ListOf(Number(least=0, whole=True), least=2, most=2)), help="pairs of rounds; a chain"),
)


def split_command(document: Any, options: Mapping[str, Any]) -> list[float]:
    """Each round's part of a latency constraint."""
    faults: list[Fault] = []
    read = _SPLIT.read(document, "", "", faults)
    needed = {"weights"} if isinstance(document, Mapping) and "weights" in document else {"means", "variances", "z"}
    if read is not BAD:
        for name in ("weights", "means", "variances", "z"):
            if name in read and name not in needed:
                faults.append(Fault(name, f"{name} does not stand beside weights; allowed: one way of splitting"))
            elif name in needed and name not in read:
                faults.append(Fault(name, f"{name} is missing; a split needs weights, or means, variances and z"))
        if read.get("weights", BAD) is not BAD and sum(w for w in read["weights"] if w is not BAD) <= 0.0:
            faults.append(Fault("weights", "weights add up to 0; allowed: a sum above 0"))
    if faults:
        raise DocumentError(faults, _SPLIT.name)
    edges = [(begin, end) for begin, end in read["edges"]] if "edges" in read else None
    if "weights" in read:
        return split_constraint(read["total"], read["weights"], edges=edges)
    return split_constraint(read["total"], read["means"], read["variances"], read["z"], edges)


def _read(table: FieldTable, document: Any) -> dict[str, Any]:
    """A document of one table; raises `DocumentError` with every fault."""
    faults: list[Fault] = []
    read = table.read(document, "", "", faults)
    if faults:
        raise DocumentError(faults, table.name)
    fields: dict[str, Any] = read
    return fields
