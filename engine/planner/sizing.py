"""Resource plan of a stage: fewest nodes for a rate within a latency constraint, and their settings.

Reference: Li, Diao, Shenoy (VLDB 2015), section 3.1; docs/models/planner.md has the layout of the answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from engine.microbatch.sizing import Infeasibility
from engine.planner.latency import LatencyOptions, evaluate_latency
from engine.planner.plan import (
    BindingLimit,
    StageAtRate,
    StageCurve,
    StageEnds,
    StagePlan,
    StageSettings,
    StageSizing,
)
from engine.planner.profile import MAX_THREADS, MIN_THREADS, NodeHardware, StageProfile, StageQuestion
from engine.planner.search import SearchLimits, StageSearch
from engine.solvers import solving

__all__ = ["size_stage"]

_NEAR_LIMIT = 0.97  # of a ceiling: a resource this full is what keeps the rate from being higher
_MOSTLY = 0.5  # of a thread's demand: overhead beyond it is the limit's name
_CURVE_SHARES = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05)
_STEP = 1.01  # of a nearest constraint
_DIGITS = 3  # of intervals, constraints and rates that people type


def size_stage(
    profile: StageProfile,
    hardware: NodeHardware,
    *,
    rate: float,
    max_nodes: int,
    constraint_s: float,
    limits: SearchLimits | None = None,
    with_curves: bool = True,
    **more: Any,
) -> StageSizing:
    """Fewest nodes that keep the constraint at the rate, with settings; or why there are none and what would do.

    Parameters
    ----------
    profile, hardware
        The stage and one of its nodes.
    rate
        Input of the whole cluster, tuples/s.
    max_nodes
        Nodes at most.
    constraint_s
        Latency constraint, s.
    limits
        Ranges of intervals and threads; by default those of the question.
    with_curves
        Whether the answer has curves, which take most of its time.
    **more
        Further fields of `StageQuestion`: statistic, headroom, utilisation_ceiling, aim and so on. No utilisation
        exceeds the ceiling, or the hardware's `rho_max` if that is lower.

    Raises
    ------
    DocumentError
        With every fault of the question.

    Notes
    -----
    The plan is the paper's: of as many nodes as it takes, the settings that bear the largest rate. Those are also the
    slowest admissible ones, since they use up the constraint; `ends.latency` has the least latency at this rate.

    Examples
    --------
    >>> profile = StageProfile(alpha=8, c_map=1.6e-5, c_red=2e-6, b_in=110, b_out=12, c_part=3e-5, c_hb=5e-3)
    >>> sizing = size_stage(profile, NodeHardware(), rate=1e6, max_nodes=20, constraint_s=1.0)
    >>> sizing.plan.nodes, sizing.plan.limit
    (10, 'cpu')
    """
    solving()
    began_s = time.perf_counter()
    fields = {"rate": rate, "max_nodes": max_nodes, "constraint_s": constraint_s} | more
    question = StageQuestion.parse(fields)
    sizer = _Sizer(profile, hardware, question, limits or _limits(hardware, question))
    nodes = sizer.search.fewest_nodes(question.target_rate, question.max_nodes)
    plan = None if nodes is None else sizer.throughput_plan(nodes)
    plan_s = time.perf_counter() - began_s
    fastest = None if plan is None else sizer.latency_plan(plan)
    infeasibility = sizer.infeasibility() if plan is None else None
    around = [question.max_nodes] if nodes is None else [max(nodes - 1, 1), nodes, nodes + 1]
    curves = sizer.curves(dict.fromkeys(around), plan, fastest) if with_curves else ()
    return StageSizing(
        feasible=plan is not None,
        constraint_s=question.constraint_s,
        aim_s=question.aim_s,
        statistic=question.statistic,
        is_bound=question.is_bound,
        rate=question.rate,
        plan=plan,
        ends=StageEnds(plan, fastest),
        curve=curves,
        infeasible=infeasibility,
        model=f"12-phase {question.variant}",
        plan_s=plan_s,
        duration_s=time.perf_counter() - began_s,
    )


def _limits(hardware: NodeHardware, question: StageQuestion) -> SearchLimits:
    """Threads of a kind up to the number asked for, or of cores."""
    most = min(max(hardware.n, MIN_THREADS), MAX_THREADS)
    return SearchLimits(question.max_m or most, question.max_r or most)


class _Sizer:
    """Parts of one answer."""

    def __init__(
        self, profile: StageProfile, hardware: NodeHardware, question: StageQuestion, limits: SearchLimits
    ) -> None:
        self.profile, self.question, self.limits = profile, question, limits
        self.hardware = replace(hardware, rho_max=min(hardware.rho_max, question.utilisation_ceiling))
        self.options = LatencyOptions.of_statistic(
            question.statistic, variant=question.variant, is_bound=question.is_bound
        )
        self.search = self._search(question.aim_s)

    def _search(self, goal_s: float) -> StageSearch:
        return StageSearch(self.profile, self.hardware, self.options, self.limits, goal_s)

    def throughput_plan(self, nodes: int) -> StagePlan | None:
        """The settings that bear the largest rate, in numbers that people type where these do as well; None where those
        that bear the rate miss the goal at it.
        """
        target = self.question.target_rate
        max_rate, settings = self.search.largest_above(target, nodes)
        assert settings is not None, "the number of nodes was chosen because it reaches the rate"
        typed = _typed(settings)
        typed_rate = self.search.largest_of(typed)
        if typed_rate >= target and self._keeps_goal(typed):
            return self._plan(typed, typed_rate)
        if not self._keeps_goal(settings):  # quantiles may be lower at a higher rate
            _, settings = self.search.least(target, nodes, settings)
            if settings is None:
                return None
            max_rate = max(self.search.largest_of(settings), target)
        return self._plan(settings, max_rate)

    def _keeps_goal(self, settings: StageSettings) -> bool:
        """Whether settings keep the goal at the rate as well as with headroom."""
        rates = self.question.rate, self.question.target_rate
        return max(self.search.metric(rate, settings) for rate in rates) <= self.search.goal_s

    def latency_plan(self, plan: StagePlan) -> StagePlan | None:
        """The settings of least latency at the rate, headroom included, with as many nodes as a plan."""
        _, settings = self.search.least(self.question.target_rate, plan.nodes, plan.settings)
        if settings is None:
            return None
        typed = _typed(settings)
        settings = typed if self._keeps_goal(typed) else settings
        return self._plan(settings, self.search.largest_of(settings))

    def _plan(self, settings: StageSettings, max_rate: float) -> StagePlan:
        latency = evaluate_latency(self.profile, self.hardware, self.question.rate, settings, self.options)
        at_max_rate = evaluate_latency(self.profile, self.hardware, max_rate, settings, self.options)
        headroom = 1.0 - self.question.rate / max_rate if max_rate > 0.0 else 0.0
        return StagePlan(
            **vars(settings),
            max_rate=max_rate,
            headroom=headroom,
            mean_s=latency.mean,
            metric_s=latency.metric,
            util=latency.util,
            phases=latency.phases,
            binding=self._binding(settings, max_rate),
            at_max_rate=StageAtRate(at_max_rate.mean, at_max_rate.metric, at_max_rate.util),
        )

    def _binding(self, settings: StageSettings, rate: float) -> BindingLimit:
        profile, hardware = self.profile, self.hardware
        latency = evaluate_latency(profile, hardware, rate, settings, self.options)
        util, ceiling = latency.util, hardware.rho_max
        used = {
            "cpu": util["cpu"],
            "mapper threads": util["map"],
            "reducer threads": util["red"],
            "network": util["net"],
            "disk": util["disk"],
        }
        limits = [BindingLimit(name, value, ceiling) for name, value in used.items()]
        if hardware.map_buf > 0.0:
            batch_bytes = rate * profile.alpha * settings.b_sh_s / (settings.nodes * settings.mappers) * profile.b_out
            held = batch_bytes * (1.0 + settings.b_ch_s / settings.b_sh_s)
            limits.append(BindingLimit("map output buffer", held, hardware.map_buf))
        fullest = max(limits, key=lambda limit: limit.value / limit.ceiling)
        if fullest.value < _NEAR_LIMIT * fullest.ceiling and latency.metric is not None:
            return BindingLimit("latency constraint", latency.metric, self.search.goal_s)
        return replace(fullest, limit=self._overhead(fullest.limit, settings, rate) or fullest.limit)

    def _overhead(self, limit: str, settings: StageSettings, rate: float) -> str:
        """Name of the overhead that makes up most of the work of what is full; empty where none does."""
        profile, mappers, reducers = self.profile, settings.mappers, settings.reducers
        of_mappers, of_reducers = settings.nodes * mappers, settings.nodes * reducers
        mapper = {
            "": rate / of_mappers * profile.c_map,
            "batch overhead": profile.c_bat / (mappers * settings.b_in_s),
            "partition overhead": profile.c_sh * of_reducers / settings.b_sh_s,
        }
        finalize = profile.keys / of_reducers * profile.s_k / profile.period_s if profile.window > 0.0 else 0.0
        reducer = {
            "": rate * profile.alpha / of_reducers * profile.c_red + finalize,
            "poll overhead": profile.c_hb / settings.b_ch_s,
            "partition overhead": profile.c_part * of_mappers / settings.b_sh_s,
        }
        threads = {"cpu": (mappers, reducers), "mapper threads": (1, 0), "reducer threads": (0, 1)}.get(limit, (0, 0))
        names = {*mapper, *reducer}
        work = {name: threads[0] * mapper.get(name, 0.0) + threads[1] * reducer.get(name, 0.0) for name in names}
        return next((name for name in work if name and work[name] > _MOSTLY * sum(work.values())), "")

    def infeasibility(self) -> Infeasibility:
        """The limit in the way of the rate, the constraint that could be kept, the rate that could be borne."""
        question = self.question
        first = min(self.search.first_nodes(question.target_rate), question.max_nodes)
        nodes = self.search.best_nodes(first, question.max_nodes)
        best_rate, settings = self.search.largest(nodes)
        limit = "latency constraint" if settings is None else self._binding(settings, best_rate).limit
        least_s, fastest = self.search.least_at_best(question.target_rate, question.max_nodes)
        nearest_rate = _rounded(best_rate * (1.0 - question.headroom), math.floor)
        return Infeasibility(
            limit=limit,
            nearest_constraint_s=None if fastest is None else self._nearest_constraint_s(least_s, fastest.nodes),
            nearest_rate=nearest_rate or None,
        )

    def _nearest_constraint_s(self, least_s: float, nodes: int) -> float:
        """The least constraint in round numbers under which a plan is found, to a percent.

        A search for less latency may stop short of what a search within a constraint comes upon.
        """

        def is_reachable(constraint_s: float) -> bool:
            return self._search(self.question.aim * constraint_s).is_reachable(self.question.target_rate, nodes)

        constraint_s = _rounded(least_s / self.question.aim, math.ceil)
        while not is_reachable(constraint_s):
            constraint_s = _rounded(constraint_s * _STEP, math.ceil)
        while is_reachable(tighter_s := _rounded(constraint_s / _STEP, math.floor)):
            constraint_s = tighter_s
        return constraint_s

    def curves(
        self, numbers: Iterable[int], plan: StagePlan | None, fastest: StagePlan | None
    ) -> tuple[StageCurve, ...]:
        """Least latency by rate for some numbers of nodes."""
        return tuple(self._curve(nodes, [p.settings for p in (plan, fastest) if p is not None]) for nodes in numbers)

    def _curve(self, nodes: int, known: list[StageSettings]) -> StageCurve:
        max_rate, settings = self.search.largest(nodes)
        reach = max_rate or nodes * self.search.node_capacity
        rates = sorted({*(share * reach for share in _CURVE_SHARES), self.question.rate})
        ends = [replace(end, nodes=nodes) for end in known] + ([settings] if settings is not None else [])
        metrics = self.search.curve(nodes, rates, ends)
        points = tuple(
            (rate, metric if math.isfinite(metric) else None) for rate, metric in zip(rates, metrics, strict=True)
        )
        return StageCurve(nodes, max_rate, points)


def _typed(settings: StageSettings) -> StageSettings:
    """The same with intervals in round numbers; a whole ratio of B_ch and B_sh stays whole."""
    b_sh_s, b_ch_s = _rounded(settings.b_sh_s), _rounded(settings.b_ch_s)
    ratio = settings.b_ch_s / settings.b_sh_s
    if abs(ratio - round(ratio)) < 1e-3 * ratio:
        b_ch_s = round(ratio) * b_sh_s
    elif abs(1 / ratio - round(1 / ratio)) < 1e-3 / ratio:
        b_sh_s = round(1 / ratio) * b_ch_s
    return replace(settings, b_in_s=_rounded(settings.b_in_s), b_sh_s=b_sh_s, b_ch_s=b_ch_s)


def _rounded(value: float, towards: Any = round) -> float:
    """`value` to three digits."""
    if value <= 0.0:
        return 0.0
    power = _DIGITS - 1 - math.floor(math.log10(value))
    return float(towards(value * 10.0**power) / 10.0**power)
