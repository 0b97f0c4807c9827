"""Small deployments for simulation tests, and what comes out of them, event by event."""

from engine.document.deployment import Deployment
from engine.simulation import POLICIES, SimulationSettings, simulate

NODE = {"id": "n", "capacity_cps": 1.0}


def operator(name, *inputs, node="n", **fields):
    """An operator; inputs are (source, selectivity, cycles per event) or just a source: 1 out, 1 cycle."""
    full = [(entry, 1, 1) if isinstance(entry, str) else entry for entry in inputs]
    ports = [{"from": source, "selectivity": out, "cycles_per_event": cost} for source, out, cost in full]
    place = {} if "split" in fields else {"node": node}
    return {"id": name, **place, "inputs": ports, **fields}


def deployment(operators, arrivals, *, nodes=(NODE,), width_s=1.0, **parts):
    """A deployment of operators and arrivals by source."""
    sources = [{"id": name, "arrivals": counts} for name, counts in arrivals.items()]
    return Deployment.parse(
        {"subinterval_s": width_s, "sources": sources, "nodes": list(nodes), "operators": operators, **parts}
    )


def exact(policy="stimulus-time", **changes):
    """Settings under which nothing is random."""
    return SimulationSettings(policy=POLICIES[policy], drawn_arrivals=False, random_outputs=False, **changes)


def story(system, settings=None, times_s=None):
    """Every sink event as (sink, stimulus, egress), in order of egress."""
    run = simulate(system, settings or exact(), times_s=times_s)
    sinks = [system.operators[i].id for i in run.records["operator"]]
    times = zip(run.records["stimulus"].round(9).tolist(), run.records["egress"].round(9).tolist(), strict=True)
    return [(sink, stimulus, egress) for sink, (stimulus, egress) in zip(sinks, times, strict=True)]
