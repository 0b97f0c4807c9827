"""Best-OP: the best cut between operators for what is known of them, without shares (as Sonata plans)."""

from __future__ import annotations

from engine.jarvis.baselines import best_op
from engine.jarvis.partition import Frontier
from engine.jarvis.planning import Plan
from engine.jarvis.scalar import Scalar
from engine.jarvis.stepping import Epoch

__all__ = ["BestOp"]


class BestOp(Scalar):
    """The method ``best-op``: learns and watches as `Scalar` does, but an operator gets all of its input or nothing."""

    def _plan(self, epoch: Epoch, usable: int, budget_s: float) -> Plan:
        volume, objective = self._volume.planned, epoch.settings.objective
        relay, cost, sizes = epoch.model.inputs(volume)
        counted = sizes[: usable + 1] if objective == "bytes" else None
        cut = best_op(Frontier.of(relay[:usable], cost[:usable], counted), volume, budget_s)
        factors = cut.load_factors + (0.0,) * (len(epoch.load_factors) - usable)
        forecast = epoch.model.forecast(volume, factors, objective)
        return Plan(factors, forecast.cpu_s, forecast.sent, (cut.lo, cut.hi))
