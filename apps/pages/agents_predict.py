"""What an agent would send and use with other load factors or another budget, reckoned by the engine's models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from apps.pages.agents_flow import OperatorFlow, QueryFlow
from apps.telemetry.models import Assignment
from engine.jarvis.baselines import all_sp, all_src, best_op, filter_src
from engine.jarvis.fairness import max_min
from engine.jarvis.partition import Frontier
from engine.jarvis.refined import OperatorPrior
from engine.jarvis.settings import Settings

__all__ = ["Chain", "Forecast", "Outcome", "PartForecast"]


@dataclass(frozen=True)
class Chain:
    """Operators of a query at an agent: records out per record in, CPU seconds per record, bytes of a record."""

    in_eps: float
    kinds: tuple[str, ...]
    relay: tuple[float, ...]
    cost_s: tuple[float, ...]
    sizes: tuple[float, ...]  #: before the first operator and after each
    is_measured: bool  #: everything of it was; else what did not run lately is known from a refined configuration

    @classmethod
    def of(
        cls, operators: Sequence[Mapping[str, Any]], flow: QueryFlow | None, document: Mapping[str, Any] | None = None
    ) -> Chain | None:
        """From the newest minute, and from a refined document for operators that took no records; None if unknown."""
        if flow is None or not flow.in_eps or not operators:
            return None
        flows = {one.operator: one for one in flow.operators}
        priors = {one["id"]: (k, one) for k, one in enumerate((document or {}).get("operators", ()))}
        record_bytes = (document or {}).get("record_bytes", ())
        relay, cost_s, sizes, came = [], [], [flow.in_bytes_s / flow.in_eps], flow.in_eps
        for one in operators:
            ran = flows.get(one["id"])
            if ran is not None and ran.processed_eps:
                step = _measured(ran, sizes[-1])
            elif priors.get(one["id"], (0, {}))[1].get("cost_s") is not None:
                place, prior = priors[one["id"]]
                step = _known(prior, came, record_bytes[place + 1])
            else:
                return None
            relay.append(step[0])
            cost_s.append(step[1])
            sizes.append(step[2])
            came *= step[0]
        kinds = tuple(str(one["expression"]["op"]) for one in operators)
        measured = all(one["id"] in flows and flows[one["id"]].processed_eps for one in operators)
        return cls(flow.in_eps, kinds, tuple(relay), tuple(cost_s), tuple(sizes), measured)

    def outcome(self, factors: Sequence[float], share_cores: float = math.inf) -> Outcome:
        """What leaves and what is used; where the CPU does not reach, what is left over overflows unprocessed."""
        came, sent, cpu = self.in_eps, 0.0, 0.0
        for factor, relay, cost, size in zip(factors, self.relay, self.cost_s, self.sizes, strict=False):
            sent += came * (1 - factor) * size
            cpu += came * factor * cost
            came *= factor * relay
        sent += came * self.sizes[-1]
        fits = min(1.0, share_cores / cpu) if cpu > 0 else 1.0
        let_in = factors[0] if factors else 0.0
        mixed = fits * sent + (1 - fits) * self.in_bytes_s
        return Outcome(tuple(factors), mixed, self.in_bytes_s, cpu * fits, (1 - fits) * let_in)

    @property
    def in_bytes_s(self) -> float:
        return self.in_eps * self.sizes[0]

    @cached_property
    def whole_cores(self) -> float:
        """What running everything would take."""
        return self.outcome([1.0] * len(self.relay)).cpu_cores

    def plan(self, settings: Settings, share_cores: float) -> list[float]:
        """Load factors that a method comes to with so much CPU, in a second."""
        if settings.method == "fixed":
            return [*settings.load_factors, *([0.0] * len(self.relay))][: len(self.relay)]
        frontier = Frontier.of(self.relay, self.cost_s, self.sizes if settings.objective == "bytes" else None)
        if settings.method == "all-sp":
            return list(all_sp(frontier, self.in_eps).load_factors)
        if settings.method == "all-src":
            return list(all_src(frontier, self.in_eps).load_factors)
        if settings.method == "filter-src":
            return list(filter_src(frontier, self.in_eps, self.kinds).load_factors)
        budget_s = share_cores * settings.margin
        if settings.method == "best-op":
            return list(best_op(frontier, self.in_eps, budget_s).load_factors)
        return list(frontier.at(budget_s, self.in_eps).load_factors)


def _measured(flow: OperatorFlow, before: float) -> tuple[float, float, float]:
    out = flow.out_bytes_s / flow.out_eps if flow.out_eps else before
    return flow.out_eps / flow.processed_eps, flow.cpu_cores / flow.processed_eps, out


def _known(prior: Mapping[str, Any], came: float, out_bytes: float) -> tuple[float, float, float]:
    """At `came` records a second: groups make a record cheaper the more of them come."""
    known = OperatorPrior(**prior)
    return known.relay, known.cost_at(came), float(out_bytes)


@dataclass(frozen=True)
class Outcome:
    """What one query at one agent would do."""

    factors: tuple[float, ...]
    sent_bytes_s: float
    in_bytes_s: float
    cpu_cores: float
    overflow: float  #: share of the records that come

    @property
    def saved(self) -> float | None:
        return 1 - self.sent_bytes_s / self.in_bytes_s if self.in_bytes_s else None


@dataclass(frozen=True)
class PartForecast:
    """One query: now, and then."""

    assignment: Assignment
    chain: Chain
    now: Outcome
    then: Outcome
    share_cores: float

    @property
    def query(self) -> str:
        return self.assignment.live.query.name

    @property
    def names(self) -> list[str]:
        live = self.assignment.live
        return [one["id"] for one in live.pipeline["operators"][: live.source_operators]]

    @property
    def factors(self) -> list[tuple[str, float, float]]:
        """(operator, now, then)."""
        now = [*self.now.factors, *([0.0] * len(self.names))]
        return list(zip(self.names, now, self.then.factors, strict=False))


class Forecast:
    """An agent's queries under another budget or with other settings.

    Parameters
    ----------
    budget_cores : float
        What the agent may use then.
    parts : sequence of (Assignment, QueryFlow or None, refined document or None)
        Its queries with what they did lately.
    used_cores : float, optional
        What the whole agent uses now: what its operators do not account for is its own and stays.
    settings : mapping, optional
        Settings by the assignment's id, where they are to be others.
    """

    def __init__(
        self,
        budget_cores: float,
        parts: Sequence[tuple[Assignment, QueryFlow | None, Mapping[str, Any] | None]],
        *,
        used_cores: float | None = None,
        settings: Mapping[int, Mapping[str, Any]] | None = None,
    ) -> None:
        self.budget_cores, self._parts, self._settings = budget_cores, parts, settings or {}
        self._used = used_cores

    @cached_property
    def parts(self) -> list[PartForecast]:
        known = [(part, Chain.of(_own(part), flow, document)) for part, flow, document in self._parts]
        chains = [(part, chain) for part, chain in known if chain is not None]
        left = max(self.budget_cores - self.overhead_cores, 0.0)
        return [self._part(part, chain, self._share(left, chains, k)) for k, (part, chain) in enumerate(chains)]

    def _share(self, left: float, chains: Sequence[tuple[Assignment, Chain]], own: int) -> float:
        """What a query could have: all that the others leave it, in fairness."""
        demands = [math.inf if k == own else chain.whole_cores for k, (_, chain) in enumerate(chains)]
        return max_min(left, demands, [part.weight for part, _ in chains])[own]

    def _part(self, part: Assignment, chain: Chain, share: float) -> PartForecast:
        settings = Settings.parse(self._settings.get(part.pk, part.settings))
        now = chain.outcome([*part.load_factors, *([0.0] * len(chain.relay))][: len(chain.relay)])
        return PartForecast(part, chain, now, chain.outcome(chain.plan(settings, share), share), share)

    @cached_property
    def overhead_cores(self) -> float:
        """Of the agent itself: collecting, sending."""
        operators = sum(one.cpu_cores for _, flow, _ in self._parts if flow for one in flow.operators)
        return max((self._used or 0.0) - operators, 0.0)

    @property
    def unknown(self) -> list[str]:
        """Queries of which nothing can be said: their costs are not known."""
        known = {one.query for one in self.parts}
        return [part.live.query.name for part, _, _ in self._parts if part.live.query.name not in known]

    def _sum(self, when: str, what: str) -> float:
        return sum(getattr(getattr(one, when), what) for one in self.parts)

    @property
    def sent_now(self) -> float:
        return self._sum("now", "sent_bytes_s")

    @property
    def sent_then(self) -> float:
        return self._sum("then", "sent_bytes_s")

    @property
    def saved_now(self) -> float | None:
        came = self._sum("now", "in_bytes_s")
        return 1 - self.sent_now / came if came else None

    @property
    def saved_then(self) -> float | None:
        came = self._sum("then", "in_bytes_s")
        return 1 - self.sent_then / came if came else None

    @property
    def cpu_now(self) -> float:
        return self._sum("now", "cpu_cores") + self.overhead_cores

    @property
    def cpu_then(self) -> float:
        return self._sum("then", "cpu_cores") + self.overhead_cores

    @property
    def overflow(self) -> float:
        """Of the query that overflows most."""
        return max((one.then.overflow for one in self.parts), default=0.0)


def _own(part: Assignment) -> list[Mapping[str, Any]]:
    """Operators that may run at the source."""
    return list(part.live.pipeline["operators"][: part.live.source_operators])
