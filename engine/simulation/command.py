"""The command `simulate`: a deployment document and options in, latencies by query and subinterval out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.deployment import Deployment
from engine.errors import Fault, OptionError
from engine.simulation.policies import POLICIES
from engine.simulation.results import summarise
from engine.simulation.run import Settings, simulate

__all__ = ["OPTIONS", "command", "settings_of"]

MAX_REPEATS = 1000
MAX_COST_CV = 10.0
DEFAULTS: dict[str, Any] = {
    "policy": "stimulus-time",
    "seed": 0,
    "repeats": 1,
    "arrivals": "drawn",
    "outputs": "random",
    "cost_cv": 0.0,
}
CHOICES = {"policy": tuple(POLICIES), "arrivals": ("drawn", "even"), "outputs": ("random", "fixed")}
OPTIONS = tuple(DEFAULTS)


def command(document: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate a deployment, `repeats` times with seeds that follow each other.

    Parameters
    ----------
    document : dict
        A deployment document; every operator placed.
    options : mapping
        `policy` (default stimulus-time), `seed` (0), `repeats` (1), `arrivals` (drawn or even), `outputs` (random or
        fixed), `cost_cv` (0): the coefficient of variation of an event's cycles.

    Returns
    -------
    dict
        Per query and over all: events (per run), worst, mean and 0.99 quantile of latency, the same per subinterval of
        the stimulus (null where nothing came out), and the busy share of nodes and links per subinterval.

    Raises
    ------
    DocumentError, OptionError, TooLargeError
    """
    settings, repeats = settings_of(options)
    deployment = Deployment.parse(document)
    seeds = range(settings.seed, settings.seed + repeats)
    runs = [simulate(deployment, replace(settings, seed=seed)) for seed in seeds]
    return {"options": {**DEFAULTS, **options}, **summarise(runs)}


def settings_of(options: Mapping[str, Any]) -> tuple[Settings, int]:
    """Settings and number of repeats from options; all faults of the options at once."""
    given = {**DEFAULTS, **options}
    faults = [_fault(name, given[name], "no option of simulate", OPTIONS) for name in given if name not in DEFAULTS]
    for name, allowed in CHOICES.items():
        if given[name] not in allowed:
            faults.append(_fault(name, given[name], "refused", allowed))
    for name, least, most in (("seed", 0, 2**31 - 1), ("repeats", 1, MAX_REPEATS)):
        value = given[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            faults.append(_fault(name, value, "refused", (f"a whole number from {least} to {most}",)))
    cost_cv = given["cost_cv"]
    if not isinstance(cost_cv, int | float) or isinstance(cost_cv, bool) or not 0 <= cost_cv <= MAX_COST_CV:
        faults.append(_fault("cost_cv", cost_cv, "refused", (f"a number from 0 to {MAX_COST_CV:g}",)))
    if faults:
        raise OptionError("; ".join(str(fault) for fault in faults), faults)
    settings = Settings(
        policy=POLICIES[given["policy"]],
        seed=given["seed"],
        drawn_arrivals=given["arrivals"] == "drawn",
        random_outputs=given["outputs"] == "random",
        cost_cv=float(cost_cv),
    )
    return settings, given["repeats"]


def _fault(name: str, value: Any, what: str, allowed: tuple[str, ...]) -> Fault:
    return Fault(name, f"{value!r} is {what}; allowed: {', '.join(allowed)}")
