"""Event-level simulation of a deployment: every event queues, is served and travels on its own."""

from engine.simulation.queues import POLICIES, SimulationPolicy
from engine.simulation.results import QuerySeries, Simulation
from engine.simulation.run import SimulationSettings, TooLargeError, simulate

__all__ = [
    "POLICIES",
    "QuerySeries",
    "Simulation",
    "SimulationPolicy",
    "SimulationSettings",
    "TooLargeError",
    "simulate",
]
