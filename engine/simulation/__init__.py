"""Event-level simulation of a deployment: every event queues, is served and travels on its own."""

from engine.simulation.policies import POLICIES, Policy
from engine.simulation.results import QuerySeries, Simulation
from engine.simulation.run import Settings, TooLargeError, simulate

__all__ = ["POLICIES", "Policy", "QuerySeries", "Settings", "Simulation", "TooLargeError", "simulate"]
