"""Questions of the golden record to every command: examples, small documents of the tests, and damaged ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.engine.admission import stories as admission
from tests.engine.provisioning.stories import bursty, queueing
from tests.engine.samples import chain, deployment, entry, figure3, operator

__all__ = ["EXAMPLES", "QUESTIONS", "Question", "damages"]

_ROOT = Path(__file__).resolve().parents[2]
_WAITS = Path(__file__).with_name("estimation") / "waits" / "data"
EXAMPLES: dict[str, Any] = {
    file.stem: json.loads(file.read_text()) for file in sorted((_ROOT / "docs" / "examples").glob("*.json"))
}


@dataclass(frozen=True)
class Question:
    """A document, and options of the command line as they are typed."""

    name: str
    document: Any
    options: tuple[str, ...] = ()
    is_damaged: bool = False  #: every field of it is damaged in turn, too


def _with(name: str, document: Any, **options: Any) -> Question:
    """A question with options."""
    words = [(f"--{key.replace('_', '-')}", value if isinstance(value, str) else json.dumps(value))
             for key, value in options.items()]  # fmt: skip
    spelled = " ".join(f"{key}={value}" for key, value in options.items())
    return Question(f"{name} {spelled}", document, tuple(word for pair in words for word in pair))


def _each(name: str, document: Any, option: str, *values: Any) -> list[Question]:
    return [_with(name, document, **{option: value}) for value in values]


def _example(name: str) -> Question:
    return Question(name, EXAMPLES[name], is_damaged=True)


def _rich() -> dict[str, Any]:
    """A deployment with most fields that there are."""
    batches = [{"events": 100.0, "outputs": 50.0 + k, "cycles": 900.0 + 10 * k} for k in range(8)]
    window = {"policy": "time", "type": "sliding", "size": 4.0, "slide": 2.0, "watermark_delay_s": 1.0,
              "allowed_lateness_s": 1.0, "emit": "on_close", "measured_from": "window_end"}  # fmt: skip
    return {
        "format": "sluice/deployment",
        "version": 1,
        "subinterval_s": 1.0,
        "sources": [
            {"id": "s", "arrivals": [20, 60, 30, 10, 20, 20, 20, 20], "dispersion": 1.5, "dispersion_step_s": 1.0,
             "backlog": {"events": 30, "origin": "measured", "age_s": 2.0}},
            {"id": "t", "arrivals": [5, 5, 5, 30, 5, 5, 5, 5], "arrivals_step_s": 2.0,
             "event_fields": {"ints": 1, "strings": 2, "doubles": 0}},
        ],
        "nodes": [
            {"id": "A", "capacity_cps": 600.0, "cores": 2, "pool": "standard", "price_per_hour": 0.1,
             "memory_bytes": 1e9, "labels": {"zone": "a"}, "scheduling": "fcfs", "cycle_unit": "nominal"},
            {"id": "B", "capacity_series_cps": [500, 500, 400, 500, 500, 500, 500, 500], "cycles_per_ns": 2.0},
        ],
        "operators": [
            operator("q/filter", "A", entry("s", 0.5, 9.0, batches=batches), query="q", kind="filter", stateless=True,
                     filter={"function": "<=", "literal_type": "int"}, bytes_per_event=40, reads=["x"], writes=[],
                     evidence={"kind": "measured", "events": 800, "age_s": 5.0}, tuple_values_in=3,
                     tuple_values_out=3),
            operator("q/window", "B", entry("q/filter", 0.1, 6.0, cost_cv2=0.5), query="q", kind="window",
                     window=window, state_bytes=1e6, stateless=False, bytes_per_event=30),
            operator("q/sum", "B", entry("q/window", 1.0, 20.0, cost_dispersion=2.0, cost_dispersion_events=10),
                     query="q", kind="aggregate", aggregate={"function": "sum", "argument_type": "int"},
                     evidence={"kind": "assumed"}),
            {"id": "r/parse", "query": "r", "kind": "map", "stateless": True, "bytes_per_event": 20,
             "split": [{"node": "A", "core": 1, "fraction": 0.5}, {"node": "B", "fraction": 0.5}],
             "inputs": [entry("t", model={"output": [0, 1, 0], "cycles": [0, 8, 0.01]})]},
            operator("r/join", "A", entry("r/parse", 0.5, 10.0), entry("s", 0.1, 4.0), query="r", kind="join",
                     join={"key_type": "string"}, core=1, stateless=False, buffer_timeout_s=0.1),
            operator("r/write", "B", entry("r/join", 1.0, 5.0), query="r", kind="sink",
                     trigger={"interval_s": 2.0, "overhead_s": 0.1}),
        ],
        "links": [{"from": "A", "to": "B", "bandwidth_bytes_s": 1e4, "delay_s": 0.01}],
        "combine": {"kind": "interference", "alpha": 0.05},
        "scheduling": "stimulus-time",
        "cycle_unit": "nominal",
        "statistics_of": "sample",
        "objectives": [
            {"query": "q", "statistic": "worst", "bound_s": 9.0},
            {"query": "r", "statistic": "q0.9", "bound_s": 2.0},
        ],
        "priorities": {"q": 1, "r": 2},
        "constraints": {"pin": {"q/window": "B"}, "forbid": {"q/sum": ["A"]}, "apart": [["q/filter", "q/window"]],
                        "max_moves": 3, "may_split": ["r/parse"]},
    }  # fmt: skip


def _running(**more: Any) -> dict[str, Any]:
    """A document of what the tests of admission have running, with a candidate."""
    return {
        "subinterval_s": 1.0,
        "sources": [{"id": "a", "arrivals": admission.ARRIVALS, "dispersion": 0.0, "dispersion_step_s": 1.0}],
        "nodes": [{"id": name, "capacity_cps": 100.0} for name in ("n1", "n2")],
        "operators": [admission.operator("p/op", 5.0, node="n1", query="p")],
        "objectives": [{"query": "p", "statistic": "worst", "bound_s": 2.2}],
        "candidate": admission.candidate(),
    } | more


def _admissions() -> list[Question]:
    closed = admission.candidate(node=None, bound_s=1.0)
    queued = [0.0, 0.0, 400.0, 400.0, 0.0, 0.0, 0.0, 0.0]
    spread = admission.candidate(spread=0.4, may_wait_s=5.0, priority=3)
    documents = {
        "beside": _running(),
        "placed": _running(candidate=closed),
        "late": _running(candidate=admission.candidate(bound_s=0.05)),
        "too much": _running(candidate=admission.candidate(cost=900.0, node=None)),
        "no objective": _running(candidate=admission.candidate(bound_s=None)),
        "waits": _running(candidate=admission.candidate(bound_s=1.0, may_wait_s=4.0), sources=[
            {"id": "a", "arrivals": queued, "dispersion": 0.0, "dispersion_step_s": 1.0}]),
        "uncertain": _running(candidate=spread),
        "assumed": _running(candidate={**admission.candidate(), "operators": [
            admission.operator("c/op", 2.0, node="n1") | {"evidence": {"kind": "assumed"}}]}),
        "breaks": _running(objectives=[{"query": "p", "statistic": "worst", "bound_s": 1.1}]),
        "memory": _running(nodes=[
            {"id": "n1", "capacity_cps": 100.0, "memory_bytes": 1e6}, {"id": "n2", "capacity_cps": 100.0}],
            candidate={**admission.candidate(), "operators": [
                admission.operator("c/op", 2.0, node="n1") | {"state_bytes": 1e9}]}),
    }  # fmt: skip
    rich = _rich()
    rich_candidate = {"query": "c", "objective": {"statistic": "q0.99", "bound_s": 3.0},
                      "operators": [admission.operator("c/op", 2.0, "s")]}  # fmt: skip
    policies: list[dict[str, Any]] = [
        {"evidence": {"assumed": "review", "at_risk": "admit"}, "min_events": 1e6},
        {"may_move_neighbours": False, "max_mean_load": 0.3, "thin_below": 0.5},
        {"closed_nodes": ["n1"], "full_evaluations": 1},
        {"choices": False, "robustness": False},
        {"min_events": "many", "closed_nodes": ["n9"], "speed": 1},
    ]
    return [
        Question("admit", EXAMPLES["admit"]),
        replace(_with("admit", EXAMPLES["admit"], policy={"choices": False, "robustness": False}), is_damaged=True),
        *_each("admit", EXAMPLES["admit"], "mace_every", 2),
        *(Question(name, document) for name, document in documents.items()),
        *(_with(name, documents[name], policy=policy) for policy in policies for name in ("beside", "assumed")),
        Question("rich", rich | {"candidate": rich_candidate}),
    ]


def _what_ifs() -> list[Question]:
    load = bursty(1)
    types = [{"name": "small", "capacity_cps": 10.0, "cores": 1, "price_per_hour": 1.0, "max": 6},
             {"name": "large", "capacity_cps": 30.0, "cores": 2, "price_per_hour": 4.0, "max": 3}]  # fmt: skip
    return [
        _example("what-if"),
        *_each("what-if", EXAMPLES["what-if"], "place", "keep", "search"),
        *_each("what-if", EXAMPLES["what-if"], "flow", False),
        Question("rich", _rich()),
        _with("bursty", load, find="smallest_pool"),
        _with("bursty", load, find="smallest_pool", parameters={"factor": 1.5, "lose": 1, "headroom_share": 0.1}),
        _with("bursty", load, find="cheapest_mix", parameters={"types": types, "most_tried": 20}),
        _with("bursty", load, find="pareto", parameters={"types": types, "most_tried": 20}),
        _with("bursty", load, find="survival"),
        _with("bursty", load, find="survival", parameters={"nodes": ["n0"], "place": "search", "rounds": 2}),
        _with("bursty", load, find="growth"),
        _with("queueing", queueing(2, d=60), find="growth", parameters={"queries": ["q1"], "most": 4}),
        _with("bursty", load, find="smallest_pool", parameters={"like": "n7", "lose": 3, "factor": {"s9": 2}}),
        _with("bursty", load, find="survivl"),
        _with("bursty", load, parameters={}),
    ]


def _waits() -> list[Question]:
    return [Question(file.stem, json.loads(file.read_text())["deployment"]) for file in sorted(_WAITS.glob("*.json"))]


_SMALL = [
    Question("figure 3", figure3()),
    Question("two nodes", deployment()),
    Question("chain", chain(2, 2)),
    Question("rich", _rich()),
]
_DEPLOYMENT = EXAMPLES["deployment"]
_PROGRESS = [
    {"numInputRows": rows, "durationMs": {"triggerExecution": 400.0 + 0.01 * rows}} for rows in (1000, 5000, 20000)
]


def _plan(**changes: Any) -> dict[str, Any]:
    return EXAMPLES["plan"] | {"question": EXAMPLES["plan"]["question"] | changes}


QUESTIONS: dict[str, list[Question]] = {
    "estimate": [
        _example("deployment"),
        *_SMALL,
        *_waits(),
        *_each("deployment", _DEPLOYMENT, "flow_slices", 4, 0.5),
        *_each("deployment", _DEPLOYMENT, "mace_every", 2),
        replace(_with("rich", _rich(), intervals=False), is_damaged=True),
    ],
    "simulate": [
        _example("deployment"),
        *_SMALL[:3],
        *_each("deployment", _DEPLOYMENT, "policy", "fcfs", "round-robin", "guess"),
        *_each("deployment", _DEPLOYMENT, "repeats", 3),
        _with("deployment", _DEPLOYMENT, seed=7, arrivals="even", outputs="fixed", cost_cv=0.5),
    ],
    "place": [
        *(
            _with("deployment", _DEPLOYMENT, rounds=2, seed=1, algorithm=name)
            for name in ("search", "greedy")
        ),
        _with("what-if", {k: v for k, v in EXAMPLES["what-if"].items() if k != "scenarios"}, rounds=2,
              objective="objectives", tolerance=0.1, rank_within=0.05),
        _with("rich", _rich(), rounds=2, seed=3, flow=False, transfer_s=0.01),
    ],
    "admit": _admissions(),
    "what-if": _what_ifs(),
    "plans": [
        Question("deployment", _DEPLOYMENT),
        Question("rich", _rich()),
        _with("deployment", _DEPLOYMENT, places="free", capacity_cps=1e6, hop_cycles=10),
        _with("rich", _rich(), query="q"),
        _with("rich", _rich(), query="nobody"),
    ],
    "partition": [_example("partition"), Question("records", EXAMPLES["partition"] | {"sizes": None, "budget": 0.1})],
    "slack": [_example("slack"), Question("two sigma", EXAMPLES["slack"] | {"z_mode": "two_sigma", "var_mode": "eq6"})],
    "memory": [_example("memory")],
    "pick": [_example("pick"), Question("tie", {"slacks": {"a": 1, "b": 1}})],
    "forwarding": [_example("forwarding")],
    "latency": [
        _example("latency"),
        *(Question(f"variant {name}", EXAMPLES["latency"] | {"variant": name}) for name in ("paper", "improved")),
        *(Question(f"{kind} 0.99", EXAMPLES["latency"] | {"kind": kind, "x": 0.99}) for kind in ("normal", "cantelli")),
        Question("overload", EXAMPLES["latency"] | {"rate": 1e9}),
    ],
    "gg1": [
        Question("exponential", {"ta": 1.0, "ca2": 1.0, "ts": 0.8, "cs2": 1.0, "ds3": -1.0}, is_damaged=True),
        Question("bursty", {"ta": 1.0, "ca2": 9.0, "ts": 0.5, "cs2": 0.25, "ds3": -1.0}),
    ],
    "order": [Question("40", {"n": 40}, is_damaged=True), Question("1", {"n": 1})],
    "bridge": [Question("40", {"N": 40, "rho": 0.9}, is_damaged=True)],
    "plan": [
        Question("plan", EXAMPLES["plan"]),
        Question("three nodes", _plan(max_nodes=3), is_damaged=True),
        Question("never", _plan(rate=1e12)),
    ],
    "split": [_example("split"), Question("mean", {"total": 2.0, "means": [0.2, 0.4]})],
    "spark": [
        _example("spark"),
        Question("fit", {"call": "fit", "args": {"progress": _PROGRESS}}, is_damaged=True),
        Question("latency", {"call": "latency", "args": {"lam": 1e5, "T": 5.0, "F": 0.5, "k": 2e-5}}, is_damaged=True),
        Question("unstable", {"call": "latency", "args": {"lam": 1e5, "T": 1.0, "F": 0.5, "k": 2e-5}}),
        Question("most", {"call": "lam_max", "args": {"L": 5.0, "F": 0.5, "k": 2e-5, "kind": "quantile", "x": 0.9}}),
        Question("nothing", {"call": "guess", "args": {}}),
    ],
    "subset": [_example("subset")],
    "predict": [_example("predict")],
    "candidates": [
        _example("candidates"),
        _with("candidates", EXAMPLES["candidates"], count=20, seed=2, target="Lp"),
        *_each("candidates", EXAMPLES["candidates"], "target", "T", "Le", "X"),
    ],
    "replay": [_example("replay")],
}  # fmt: skip


def damages(document: Any) -> Iterator[tuple[str, Any]]:
    """The document with one field at a time left out, of another kind, or too small, and with all of that at once.

    Of items of a list that have the same field, the first one's is damaged.
    """
    everywhere = copy.deepcopy(document)
    done: set[tuple[Any, ...]] = set()
    for path in _paths(document):
        shape = tuple("*" if isinstance(step, int) else step for step in path)
        if shape in done:
            continue
        done.add(shape)
        where = ".".join(map(str, path))
        for word, value in (("as a text", "x"), ("below", -1), ("null", None), ("as a list", [])):
            yield f"{where} {word}", _changed(document, path, value)
        if isinstance(path[-1], str):
            yield f"{where} left out", _changed(document, path, ...)
            yield f"{where} with a neighbour", _changed(document, (*path[:-1], f"{path[-1]}x"), 1)
        if not isinstance(_at(document, path), dict | list):
            everywhere = _changed(everywhere, path, True)
    yield "everything true", everywhere
    for word, value in (("nothing", None), ("a list", [document]), ("a number", 1), ("empty", {})):
        yield word, value


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in steps:
        yield (*path, step)
        yield from _paths(item, (*path, step))


def _at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def _changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with another value there; without it for an ellipsis."""
    changed = copy.deepcopy(document)
    holder = _at(changed, path[:-1])
    if value is ...:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return changed
