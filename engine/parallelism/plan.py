"""Parallelism as a what-if and a plan: numbers of subtasks side by side, as changes of the kept estimate.

Each is another placement of the query's operators (`engine.parallelism.subtasks`): its largest rate is that of
`engine.capacity`, its latencies those of the kept estimate with the change, with nothing waiting before the query.
While a job restarts nothing of it is processed, so that with R seconds of restart, rate x, B events that wait now and
a largest rate mu it is back after::

    R + (B + x R) / (mu - x)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from engine.capacity.answer import KNOWN, QueryCapacity
from engine.capacity.saturation import ClusterSaturation
from engine.capacity.utilisation import UtilisationModel, is_measured
from engine.document.deployment import Deployment
from engine.document.elements import Backlog, Operator, Replica
from engine.document.open_hosts import OpenHosts
from engine.document.unknown_costs import FULL_SPAN_S
from engine.estimation.base import EstimateBase
from engine.estimation.estimate import Estimate
from engine.latency_state import UNKNOWN
from engine.parallelism.answer import (
    NO_HOST,
    NO_SLOTS,
    SKEWS,
    OperatorScaling,
    ParallelismChoice,
    ParallelismPlan,
    RestartOutlook,
)
from engine.parallelism.autoscaler import AutoscalerOptions, ObservedOperator, is_outside, scaled_parallelism
from engine.parallelism.job import FORWARD, KEYED, SOURCE, STATED, JobOperator, RestartTime, ScalableJob
from engine.parallelism.key_groups import busiest_share
from engine.parallelism.question import ParallelismQuestion, own_name
from engine.parallelism.subtasks import SubtaskPlaces
from engine.records import Fact
from engine.solvers import solving

__all__ = ["plan_parallelism", "with_subtasks"]

_LADDER = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_OFFERED = 8
_KEPT = ("holds", "at_risk")
_NEAREST = 2  # of others whose objectives hold by the mean path, those are walked: nearest to break, and surest to mend
_FAR = 0.3  # of a bound: a query below that by the mean path is not looked at with noise
_NOT_KEYED, _MEASURED_KEYS, _EVEN_KEYS = SKEWS


def plan_parallelism(
    base: EstimateBase, job: ScalableJob, question: ParallelismQuestion, *, closed: Collection[str] = ()
) -> ParallelismPlan:
    """Rates, latencies, slots and restarts of a query by its parallelism; nothing is added to `closed` nodes.

    Raises
    ------
    DocumentError
        With every fault of the question: operators that the query does not have, or that cannot be scaled.
    """
    solving()
    places = {node: replace(place, free=0) if node in closed else place for node, place in job.places.items()}
    hosts = OpenHosts(base.estimate.deployment, closed)
    return _Planner(base, question.stated(replace(job, places=places)), question, hosts).plan()


def with_subtasks(deployment: Deployment, placement: Mapping[str, tuple[Replica, ...]]) -> Deployment:
    """The deployment with other subtasks of operators, whose state is by key as far as their job tells."""
    if not placement:
        return deployment
    index, operators = deployment.operator_index, list(deployment.operators)
    whole = [index[name] for name in placement if operators[index[name]].is_divisible is False]
    for j in whole:
        operators[j] = replace(operators[j], keyed=True)
    divisible = replace(deployment, operators=tuple(operators)) if whole else deployment
    return divisible.with_placement(placement)


@dataclass(eq=False)
class _Planner:
    base: EstimateBase
    job: ScalableJob
    question: ParallelismQuestion
    hosts: OpenHosts

    @property
    def deployment(self) -> Deployment:
        return self.base.estimate.deployment

    @cached_property
    def unburdened(self) -> Deployment:
        """The deployment with nothing waiting before the query."""
        return _without_own_backlog(self.deployment, self.job.query)

    @cached_property
    def model(self) -> UtilisationModel:
        return UtilisationModel(self.deployment.without_backlogs(), draws=False)

    @cached_property
    def places(self) -> SubtaskPlaces:
        return SubtaskPlaces(self.hosts, self.job, self.model)

    @cached_property
    def scaled(self) -> tuple[str, ...]:
        """Operators whose parallelism changes."""
        names = self.question.operators
        wanted = None if names is None else {f"{self.job.query}/{name}" for name in names} | set(names)
        return tuple(
            name for name in self.job.operators if (wanted is None or name in wanted) and self.job.grounds(name) is None
        )

    @cached_property
    def now(self) -> int:
        """Parallelism of what is scaled."""
        return max((self.job.operators[name].parallelism for name in self.scaled), default=self.job.now)

    @cached_property
    def present(self) -> QueryCapacity:
        return ClusterSaturation(self.deployment).of_query(self.job.query)

    @cached_property
    def backlog(self) -> float | None:
        """Events that wait before the query's operators; None where something waits and nobody knows how much."""
        own = [found for found in self.deployment.backlogs if found.query == self.job.query and found.waits]
        if any(found.events is None for found in own):
            return None
        return math.fsum(found.events or 0.0 for found in own)

    def plan(self) -> ParallelismPlan:
        observed = dict(self._observed())
        options = AutoscalerOptions()
        ruled = {name: scaled_parallelism(entry, options) for name, entry in observed.items()}
        acts = any(is_outside(entry, options) for entry in observed.values())
        choices = tuple(self._choice(self._counts(count), count) for count in self._parallelisms())
        recommended = self._recommended(choices, if_even=False) or self._recommended(choices, if_even=True)
        return ParallelismPlan(
            query=self.job.query,
            now=self.now,
            now_per_s=self.present.now_per_s,
            scaled=self.scaled,
            operators=tuple(self._scaling(name, observed.get(name), ruled.get(name)) for name in self.job.operators),
            choices=choices,
            slots_there=self.job.slots_there,
            is_engine_known=self.job.is_engine_known,
            backlog=self.backlog,
            recommended=recommended,
            is_if_even=recommended is not None and self._recommended(choices, if_even=False) is None,
            autoscaler=self._autoscaler(ruled) if acts and ruled else None,
            autoscaler_acts=acts,
            options=options,
            notes=tuple(self._notes()),
        )

    def _parallelisms(self) -> list[int]:
        if self.question.parallelism is not None:
            return sorted({self.now, *self.question.parallelism})
        if not self.scaled:
            return [self.now]
        there = max(self.job.slots_there, 2 * self.now)
        most = max(self.job.operators[name].most for name in self.scaled)
        ladder = sorted({*_LADDER, self.now, 2 * self.now})
        beyond = next((count for count in ladder if count > there), there + 1)
        fitting = [count for count in ladder if count <= min(max(there, beyond), max(most, self.now))]
        nearest = sorted(fitting, key=lambda count: abs(math.log2(count / self.now)))[:_OFFERED]
        return sorted({self.now, *nearest})

    def _counts(self, parallelism: int) -> dict[str, int]:
        """Subtasks of every operator of the job at a parallelism of those that are scaled."""
        wanted = {name: row.parallelism for name, row in self.job.operators.items()}
        if parallelism == self.now:
            return wanted
        return wanted | {name: min(parallelism, self.job.operators[name].most) for name in self.scaled}

    def _autoscaler(self, ruled: Mapping[str, int]) -> ParallelismChoice:
        counts = {name: ruled.get(name, row.parallelism) for name, row in self.job.operators.items()}
        return self._choice(counts, max(counts.values()))

    def _choice(self, counts: Mapping[str, int], parallelism: int) -> ParallelismChoice:
        changed = {name: n for name, n in counts.items() if n != self.job.operators[name].parallelism}
        slots = self.job.slots_of(counts)
        short = max(0, slots - self.job.slots_there)
        skew, busiest = self._skew(changed)
        shown = max(
            (share for name in changed if (share := busiest.get(name)) is not None and self._is_keyed(name)),
            default=None,
        )
        made = ParallelismChoice(
            parallelism=parallelism,
            is_now=not changed,
            operators=dict(counts),
            state=NO_SLOTS,
            slots=slots,
            slots_short=short,
            skew=skew,
            busiest_share=shown,
        )
        if short:
            return made
        self.places.full_hosts.clear()
        self.places.homeless.clear()
        placement = self.places.replicas(changed, busiest) if changed else {}
        if homeless := self.places.homeless:
            names = [own_name(name, self.job.query) for name in homeless]
            note = Fact("parallelism.no_host", names=names, count=max(homeless.values()))
            return replace(made, state=NO_HOST, slots_short=max(homeless.values()), notes=(note,))
        full = sorted(self.places.full_hosts)
        after = self._placed(placement)
        capacity = self.present if not changed else ClusterSaturation(after).of_query(self.job.query)
        is_less = any(count < self.job.operators[name].parallelism for name, count in changed.items())
        low = capacity.low_per_s
        if skew == _EVEN_KEYS and capacity.rate_per_s is not None:
            worst = self._one_key(changed, busiest)
            low = worst if low is None or worst is None else min(low, worst)
        capped = [name for name in changed if counts[name] == self.job.operators[name].most < parallelism]
        notes = [Fact("parallelism.host_full", hosts=full)] if full else []
        if capped:
            notes.append(Fact("parallelism.capped", names=[own_name(name, self.job.query) for name in capped]))
        return replace(
            made,
            state=capacity.state,
            rate_per_s=capacity.rate_per_s,
            low_per_s=low,
            high_per_s=capacity.high_per_s,
            at_most_per_s=capacity.at_most_per_s,
            **self._gain(capacity, low),
            limit=capacity.limit,
            **self._latencies(after, skew, is_less=is_less),
            restart=self._restart(capacity, low, parallelism if changed else None) if changed or self.backlog else None,
            placement=placement,
            notes=tuple(notes),
        )

    def _placed(self, placement: Mapping[str, tuple[Replica, ...]]) -> Deployment:
        """The deployment with other subtasks of operators."""
        return with_subtasks(self.unburdened, placement)

    def _index(self, name: str) -> int:
        return self.deployment.operator_index[name]

    def _skew(self, changed: Mapping[str, int]) -> tuple[str, dict[str, float]]:
        """Knowledge of the keys of what changes, and the share of the busiest subtask by operator."""
        busiest, skews = dict[str, float](), set()
        for name, count in changed.items():
            row = self.job.operators[name]
            if self._is_keyed(name):
                busiest[name] = busiest_share(count, row.groups, row.shares)
                is_told = count == 1 or len(row.shares) > 1
                skews.add(_MEASURED_KEYS if is_told else _EVEN_KEYS)
            elif row.partitions is not None:  # ceil(P / p) of P partitions
                busiest[name] = math.ceil(row.partitions / count) / row.partitions
        skew = _EVEN_KEYS if _EVEN_KEYS in skews else _MEASURED_KEYS if skews else _NOT_KEYED
        return skew, busiest

    def _is_keyed(self, name: str) -> bool:
        """Whether events come by key, be it by way of what an operator follows."""
        row = self.job.operators[name]
        if row.feed == FORWARD:
            return any(other in self.job.operators and self._is_keyed(other) for other in self.job.streams[name])
        return row.feed == KEYED

    def _one_key(self, changed: Mapping[str, int], busiest: Mapping[str, float]) -> float | None:
        """Largest rate if one key had all events of the operators whose keys nobody measured."""
        unmeasured = {
            name: 1.0 for name in changed if self._is_keyed(name) and len(self.job.operators[name].shares) < 2
        }
        placement = self.places.replicas(changed, {**busiest, **unmeasured})
        found = ClusterSaturation(self._placed(placement)).of_query(self.job.query)
        return found.rate_per_s if found.low_per_s is None else found.low_per_s

    def _gain(self, capacity: QueryCapacity, low: float | None) -> dict[str, Any]:
        """Rate over that of now. Costs err alike at both, so that the interval is that of the keys."""
        before = self.present.rate_per_s
        if before is None or before <= 0.0 or capacity.rate_per_s is None:
            return {"gain": None, "gain_low": None, "gain_high": None}
        gain = capacity.rate_per_s / before
        is_lower = low is not None and capacity.low_per_s is not None and low < capacity.low_per_s
        if not is_lower or low is None or not self.present.low_per_s:
            return {"gain": gain, "gain_low": gain, "gain_high": gain}
        return {"gain": gain, "gain_low": min(gain, low / self.present.low_per_s), "gain_high": gain}

    def _latencies(self, after: Deployment, skew: str, *, is_less: bool) -> dict[str, Any]:
        """Latency of the query, and whose objectives change. Keys that are assumed to be even may put it at risk.

        One key may have all events. More subtasks are then no worse than those of now, and fewer may be.
        """
        query, now = self.job.query, self.base.estimate.queries
        found = self.base.changed(after, concerned={query})
        looked_at = {query, *self._near(found)}
        walked = replace(found, queries={name: found.queries[name] for name in looked_at}).realised().queries
        report = walked[query]
        broken = {
            name: walked.get(name, there)
            for name, there in found.queries.items()
            if name != query and name in now and there.bound_s is not None
        }
        may_be_worse = skew == _EVEN_KEYS and (is_less or now[query].state != "holds")
        is_known = report.standing.is_known
        return {
            "latency_state": "at_risk" if may_be_worse and report.state == "holds" else report.state,
            "statistic": report.statistic,
            "bound_s": report.bound_s,
            "estimate_s": report.estimate_s if is_known else None,
            "latency_low_s": report.low_s if is_known else None,
            "latency_high_s": report.high_s if is_known else None,
            "breaks": tuple(n for n, row in broken.items() if now[n].state in _KEPT and row.state == "breached"),
            "mends": tuple(n for n in walked if now[n].state == "breached" and walked[n].state in _KEPT and n != query),
            "unknown": tuple(n for n, row in broken.items() if now[n].state != UNKNOWN and row.state == UNKNOWN),
        }

    def _near(self, found: Estimate) -> list[str]:
        """Others of which noise may decide: kept now, and nearest to their bounds; broken now, and farthest from them.

        The mean path is below what noise makes of it, so that nothing is mended by the mean path alone.
        """
        now = self.base.estimate.queries
        rows = {
            name: report.estimate_s / report.bound_s
            for name, report in found.queries.items()
            if report.bound_s is not None and name != self.job.query and name in now and report.standing.is_known
        }
        kept = [name for name in rows if now[name].state in _KEPT and _FAR < rows[name] <= 1.0]
        broken = [name for name in rows if now[name].state == "breached" and rows[name] <= 1.0]
        nearest, farthest = sorted(kept, key=lambda name: -rows[name]), sorted(broken, key=lambda name: rows[name])
        return [*nearest[:_NEAREST], *farthest[:_NEAREST]]

    def _restart(self, capacity: QueryCapacity, low: float | None, parallelism: int | None) -> RestartOutlook:
        """Restart at another parallelism; None: as it is, without one."""
        restart = RestartTime(0.0, 0.0, STATED) if parallelism is None else self.job.restart_at(parallelism)
        rate, waiting = self.present.now_per_s, self.backlog
        events, high = ((waiting or 0.0) + rate * seconds for seconds in (restart.middle_s, restart.high_s))

        def back_s(seconds: float, largest: float | None) -> float | None:
            if waiting is None or largest is None or largest <= rate:
                return None
            return seconds + (waiting + rate * seconds) / (largest - rate)  # R + (B + x R) / (mu - x)

        largest = capacity.rate_per_s if capacity.state == KNOWN else None
        best = largest if capacity.high_per_s is None else capacity.high_per_s
        return RestartOutlook(
            low_s=restart.low_s,
            high_s=restart.high_s,
            basis=restart.basis,
            events=events,
            events_high=high,
            back_s=back_s(restart.middle_s, largest),
            back_low_s=back_s(restart.low_s, best),
            back_high_s=back_s(restart.high_s, largest if low is None else low) if largest is not None else None,
        )

    def _recommended(self, choices: tuple[ParallelismChoice, ...], *, if_even: bool) -> int | None:
        """The least parallelism that is known to do; with `if_even` of those that do if keys are even."""
        return min((choice.parallelism for choice in choices if self._does(choice, if_even)), default=None)

    def _does(self, choice: ParallelismChoice, if_even: bool) -> bool:
        """Whether a choice sustains what comes, keeps the objective and breaks nobody's."""
        is_known = choice.state == KNOWN and self.present.measured_s is None
        if not is_known or choice.rate_per_s is None or choice.breaks or choice.unknown:
            return False
        if if_even and choice.skew == _EVEN_KEYS:
            is_kept = choice.bound_s is None or (choice.latency_high_s or math.inf) <= choice.bound_s
            return is_kept and choice.rate_per_s >= self.present.now_per_s
        least = choice.rate_per_s if choice.low_per_s is None else choice.low_per_s
        return choice.latency_state in ("holds", "none") and least >= self.present.now_per_s

    def _observed(self) -> Iterator[tuple[str, ObservedOperator]]:
        """Operators as the autoscaler sees them: those whose busy time and lag are known, and that get events."""
        graph, base = self.deployment.graph, len(self.deployment.sources)
        for name, row in self.job.operators.items():
            j = self._index(name)
            busy = self._busy(name, row)
            rate = 0.0
            for e in range(graph.in_start[j], graph.in_start[j + 1]):
                above = int(graph.in_stream[e])
                rate += float(self.model.rates[above] if above < base else self.model.whole.output[above - base][0])
            own = (name, own_name(name, self.job.query))
            waits = [found for found in self.deployment.backlogs if found.operator in own and found.waits]
            lags = [found.events for found in waits] if row.feed == SOURCE else []
            if busy is None or rate <= 0.0 or any(lag is None for lag in lags):
                continue
            lag = math.fsum(lag for lag in lags if lag is not None)
            divisor = row.partitions if row.partitions is not None else row.groups if row.feed == KEYED else 0
            most = row.groups if self.job.grounds(name) is None else row.parallelism
            yield name, ObservedOperator(row.parallelism, rate, busy, lag, divisor, most)

    def _busy(self, name: str, row: JobOperator) -> float | None:
        """Threads that an operator keeps busy; None where its cost was not measured."""
        j = self._index(name)
        operator: Operator = self.deployment.operators[j]
        if not is_measured(operator) or not operator.replicas:
            return None
        layout, busy = self.deployment.layout, 0.0
        for r in range(layout.rep_start[j], layout.rep_start[j + 1]):
            work = float(layout.rep_fraction[r] * self.model.whole.by_operator[j][0])
            busy += work / float(self.model.capacity[layout.rep_server[r]])
        return busy

    def _scaling(self, name: str, observed: ObservedOperator | None, ruled: int | None) -> OperatorScaling:
        row = self.job.operators[name]
        share = max(row.shares) if len(row.shares) > 1 else 1.0 if row.parallelism == 1 else None
        return OperatorScaling(
            operator=own_name(name, self.job.query),
            parallelism=row.parallelism,
            feed=row.feed,
            most=row.most,
            max_parallelism=row.max_parallelism,
            busiest_share=share,
            grounds=self.job.grounds(name),
            busy=self._busy(name, row),
            autoscaler=ruled if observed is not None else None,
        )

    def _notes(self) -> Iterator[Fact]:
        if (span_s := self.present.measured_s) is not None:
            yield Fact("latency.still_measuring", span_s=span_s, rest_s=FULL_SPAN_S - span_s)
        unknown = [
            own_name(name, self.job.query)
            for name in self.scaled
            if self.job.operators[name].feed == SOURCE and self.job.operators[name].partitions is None
        ]
        if unknown:
            yield Fact("parallelism.partitions_unknown", names=unknown)
        if any(self._is_keyed(name) and self.job.operators[name].max_parallelism is None for name in self.scaled):
            yield Fact("parallelism.groups_by_default")
        if not self.job.is_engine_known:
            yield Fact("parallelism.by_document")
        if self.backlog is None:
            yield Fact("parallelism.backlog_unknown")


def _without_own_backlog(deployment: Deployment, query: str) -> Deployment:
    """The deployment with nothing waiting before one query; what waits for others stays."""
    if not any(found.query == query and found.waits for found in deployment.backlogs):
        return deployment
    own = set(deployment.operators_of(query))
    nothing = Backlog(events=0.0)
    operators = tuple(
        replace(operator, inputs=tuple(replace(entry, backlog=nothing) for entry in operator.inputs))
        if j in own
        else operator
        for j, operator in enumerate(deployment.operators)
    )
    return replace(deployment, operators=operators)
