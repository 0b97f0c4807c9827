"""Search for remedies: the question of admission the other way round, about a query that runs already.

The query is taken as a candidate that `runs` (`engine.admission.scenario`), so that moves, nodes, a rate share and an
objective are those that `engine.admission.alternatives` finds; parallelisms are those of `engine.parallelism`, and what
could be stopped are queries of lower priority on the server that makes it late. Each is estimated in full from the kept
estimate of all that runs, which tells its effect on everybody else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from engine.admission.alternatives import find_alternatives
from engine.admission.answer import AdmissionPolicy, Reason
from engine.admission.changes import Change, NewNode, ObjectiveChange, RateChange, nodes_in, rate_share_in
from engine.admission.evaluation import Evaluation, Evaluator, QueryOutcome, servers_of_query
from engine.admission.places import judge_unpinned
from engine.admission.prediction import judge_scenario
from engine.admission.reasons import tolerance_s
from engine.admission.scenario import AdmissionScenario, CandidateQuestion, node_capacity_cps, scenario_of
from engine.admission.screen import Screen
from engine.admission.search import AdmissionSearch, Settled
from engine.costream.accuracy import PredictionRecord
from engine.document.candidate import Candidate
from engine.document.deployment import Deployment, Operator
from engine.document.elements import Replica
from engine.document.open_hosts import OpenHosts
from engine.errors import DocumentError
from engine.estimation.base import EstimateBase
from engine.estimation.loads import loads_of
from engine.latency_state import WITHIN
from engine.measurement.trust import QueryCalibration
from engine.parallelism.answer import NO_HOST, NO_SLOTS, ParallelismChoice, ParallelismPlan
from engine.parallelism.job import ScalableJob
from engine.parallelism.plan import plan_parallelism, with_subtasks
from engine.parallelism.question import ParallelismQuestion
from engine.placement.migration import MigrationStep, changes_of, duration_s
from engine.policies.policy import ClusterPolicy
from engine.policies.rules import ADMIT, REVIEW
from engine.records import Fact
from engine.remedies.answer import KINDS, QueryRemedies, Remedy, RemedyEffect, TriedRemedy
from engine.solvers import solving

__all__ = ["find_remedies"]

Progress = Callable[[float, str], None]

_LATE = ("breached", "at_risk")
_RANKS = {"holds": 0, "none": 0, "at_risk": 1, "unknown": 2, "breached": 3}
_MAX_STOPPED = 3  # queries of lower priority that are tried, those that load the server most
_SEEN_S, _SEEN = 1e-3, 0.01  # by which another's latency must differ, and the share of it, to be told
_HELPS = 0.05  # share by which a change that is not enough must make the latency less to be offered
_UNKNOWN = frozenset({"latency_unknown", "cost_unknown", "plan_unread", "still_measuring", "backlog_unknown"})


def find_remedies(
    base: EstimateBase,
    query: str,
    *,
    mace_every: int = 1,
    policy: AdmissionPolicy | None = None,
    cluster_policy: ClusterPolicy | None = None,
    calibrations: Mapping[str, QueryCalibration] | None = None,
    record: PredictionRecord | None = None,
    currency: str = "",
    job: ScalableJob | None = None,
    plans: Mapping[str, Deployment] | None = None,
    progress: Progress | None = None,
) -> QueryRemedies:
    """Remedies of a query that is late or at risk, the best first; none of one that holds.

    They are ordered by: how many objectives break, whether its own holds then, what a kind costs (`KINDS`), of those
    with which it holds the operators that move, the seconds won, and when it helps. Another promise is always the last:
    it helps nobody who waits.

    Parameters
    ----------
    base : EstimateBase
        Of all that runs.
    query : str
        One of its queries.
    policy : AdmissionPolicy, optional
        Rules of the cluster; its `closed_nodes` take nothing new.
    cluster_policy : ClusterPolicy, optional
        Its priority classes say what may be proposed to be stopped; without any that is whatever has a lower priority.
    calibrations, record
        As of `engine.admission.decision.open_decision`.
    job : ScalableJob, optional
        The query as its engine runs it; without one its parallelism stays.
    plans : mapping, optional
        Other plans of it, each as the deployment in which it runs in place of the present one.
    progress : callable, optional
        Told the share done (0 to 1) and the step; what it raises ends the search.
    """
    solving()
    rules = policy or AdmissionPolicy()
    if rules.evidence.at_risk == ADMIT:
        rules = replace(rules, evidence=replace(rules.evidence, at_risk=REVIEW))
    running = base.estimate.deployment
    operators = tuple(running.operators[j] for j in running.operators_of(query))
    objective, priority = running.objective_of(query), running.priorities.get(query, 0)
    candidate = Candidate(query, operators, objective=objective, priority=priority)
    question = CandidateQuestion(
        running,
        candidate,
        rules,
        mace_every,
        record=record or PredictionRecord(),
        calibrations=calibrations or {},
        currency=currency,
        runs=True,
    )
    may_stop = (cluster_policy or ClusterPolicy()).may_stop
    finder = _Finder(question, Evaluator(question, base), base, job, plans or {}, progress or _tell_nobody, may_stop)
    return finder.answer()


def _tell_nobody(share: float, step: str) -> None:
    pass


@dataclass(frozen=True, eq=False)
class _RemedySearch(AdmissionSearch):
    """A search that remembers all that it estimated."""

    judged: list[Settled] = field(default_factory=list)

    def judge(self, more: Sequence[Change]) -> Settled | None:
        settled = super().judge(more)
        if settled is not None:
            self.judged.append(settled)
        return settled


@dataclass(eq=False)
class _Finder:
    question: CandidateQuestion
    evaluator: Evaluator
    base: EstimateBase
    job: ScalableJob | None
    plans: Mapping[str, Deployment]
    tell: Progress
    may_stop: Callable[[int, int], bool]  #: whether one of a priority may be stopped for another
    why: dict[str, TriedRemedy] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def query(self) -> str:
        return self.question.candidate.query

    @property
    def running(self) -> Deployment:
        return self.question.running

    @cached_property
    def before(self) -> Mapping[str, QueryOutcome]:
        return self.evaluator.before.outcomes

    @property
    def now(self) -> QueryOutcome:
        return self.before[self.query]

    @cached_property
    def hosts(self) -> OpenHosts:
        return OpenHosts(self.running, self.question.policy.closed_nodes)

    def answer(self) -> QueryRemedies:
        self.tell(0.0, "Estimating what runs")
        scenario, now = scenario_of(self.question), self.now
        reasons = self._reasons(scenario)
        made = QueryRemedies(
            query=self.query,
            state=now.state,
            statistic=now.statistic,
            bound_s=now.bound_s,
            estimate_s=now.estimate_s,
            high_s=now.high_s,
            standing=now.standing,
            unknown=tuple(dict.fromkeys(reason.message for reason in reasons if self._is_unknown(reason))),
            waits_longer=now.bound_s is not None and now.oldest_s > now.bound_s,
        )
        if now.state not in _LATE:
            return made
        remedies = [*self._alternatives(scenario, reasons), *self._parallelisms(), *self._other_plans(), *self._stops()]
        kinds = {remedy.kind for remedy in remedies}
        tried = [self.why[kind] for kind in KINDS if kind in self.why and kind not in kinds]
        return replace(made, remedies=tuple(sorted(remedies, key=_rank)), tried=tuple(tried))

    def _reasons(self, scenario: AdmissionScenario) -> tuple[Reason, ...]:
        return judge_scenario(self.question, scenario, self.evaluator, self.evaluator.before)[1]

    def _is_unknown(self, reason: Reason) -> bool:
        own = {self.query, *(operator.id for operator in self.question.candidate.operators)}
        return reason.code in _UNKNOWN and reason.id in own

    # -- moves, nodes, a rate share, an objective
    def _alternatives(self, scenario: AdmissionScenario, reasons: tuple[Reason, ...]) -> Iterator[Remedy]:
        screen = Screen(self.question, self.evaluator, scenario, self.evaluator.before)
        search = _RemedySearch(
            self.question,
            (),
            self.evaluator,
            scenario,
            self.evaluator.before,
            screen,
            lambda step: self.tell(0.1, step),
        )
        unpinned = judge_unpinned(search)
        found: dict[str, list[Settled]] = {}

        def progress(share: float, step: str) -> None:
            self.tell(0.1 + 0.5 * share, step)

        for offered in find_alternatives(search, reasons, progress, unpinned=unpinned):
            kind = _kind_of(offered.settled.scenario.changes)
            if offered.own.state == "unknown":  # nothing speaks against it, and nobody knows that it helps
                continue
            found.setdefault(kind, []).append(offered.settled)
            yield self._settled(kind, offered.settled)
        best: dict[str, Settled] = {}
        for settled in search.judged:
            kind = _kind_of(settled.scenario.changes)
            if kind not in best or self._own_s(settled.evaluation) < self._own_s(best[kind].evaluation):
                best[kind] = settled
        for kind in ("move", "add_node", "scale_rate", "objective"):
            if kind in found:
                continue
            if kind in best:
                evaluation = self.evaluator.full(best[kind].scenario)
                remedy = self._partial(kind, replace(best[kind], evaluation=evaluation))
                if remedy is not None:
                    yield remedy
            else:
                self._vain(kind, self._why_none(kind, has_move="move" in found))

    def _why_none(self, kind: str, *, has_move: bool) -> Fact:
        """Why nothing of a kind was estimated in full."""
        if kind == "objective":
            return Fact("remedies.no_bound" if self.now.standing.is_endless else "remedies.no_objective")
        if kind == "add_node" and has_move:
            return Fact("remedies.not_needed")
        pinned = [operator.id for operator in self.question.candidate.operators if operator.id in self._pins]
        if kind == "move" and pinned:
            return Fact("remedies.pinned", names=pinned)
        return Fact("remedies.none_by_means")

    @property
    def _pins(self) -> Mapping[str, str]:
        return self.running.constraints.pin

    def _own_s(self, evaluation: Evaluation) -> float:
        own = evaluation.outcomes[self.query]
        return math.inf if own.standing.is_endless else own.upper_s

    def _partial(self, kind: str, settled: Settled) -> Remedy | None:
        """A change that is not enough, where it helps and breaks nobody's objective; else why it is none."""
        remedy = self._settled(kind, settled)
        if self._helps(remedy, settled.evaluation):
            return remedy
        self._note_best(kind, settled.evaluation)
        return None

    def _helps(self, remedy: Remedy, after: Evaluation) -> bool:
        own = after.outcomes[self.query]
        if remedy.breaks or own.standing.is_endless or own.state == "unknown":
            return False
        is_better = _RANKS[own.state] < _RANKS[self.now.state] or self.now.standing.is_endless
        return is_better or own.estimate_s <= self.now.estimate_s * (1.0 - _HELPS)

    def _note_best(self, kind: str, after: Evaluation) -> None:
        own, broken = after.outcomes[self.query], self._broken(after)
        state = own.state
        if own.standing.is_endless:
            state = "never"
        elif own.estimate_s > self.now.estimate_s * (1.0 - _HELPS) and not self.now.standing.is_endless:
            state = "no_gain"
        facts: dict[str, Any] = {"estimate_s": own.estimate_s, "state": state, "broken": broken}
        self._vain(kind, Fact("remedies.best", **facts), own.estimate_s)

    def _vain(self, kind: str, why: Fact, estimate_s: float | None = None) -> None:
        self.why[kind] = TriedRemedy(kind, why, estimate_s)

    def _settled(self, kind: str, settled: Settled) -> Remedy:
        changes, scenario = settled.scenario.changes, settled.scenario
        moved = self._moved(scenario.deployment)
        pause_s = self._pause_s(moved)
        stated: dict[str, Any] = {}
        match kind:
            case "add_node":
                stated = self._nodes(nodes_in(changes))
            case "scale_rate":
                share = rate_share_in(changes)
                lost_per_s = (1.0 - share) * self._rate_per_s
                stated = {
                    "title": Fact("remedies.scale_rate", query=self.query, share=share),
                    "cost": Fact("remedies.rate_cost", lost_per_s=lost_per_s, share=1.0 - share),
                    "risk": Fact("remedies.rate_risk"),
                    "changes": ({"scale_query": self.query, "by": share},),
                }
            case "objective":
                change = next(change for change in changes if isinstance(change, ObjectiveChange))
                asked = {"objective": self.query, "statistic": change.statistic, "bound_s": change.bound_s}
                stated = {
                    "title": Fact("remedies.objective", bound_s=change.bound_s, was_s=self.now.bound_s or 0.0),
                    "cost": Fact("remedies.objective_cost"),
                    "risk": Fact("remedies.objective_risk"),
                    "changes": (asked,),
                }
            case _:
                cores = {name: _cores(scenario.deployment, new) for name, (_, new) in moved.items()}
                operators = [self._operator(name) for name in moved]
                state_bytes = math.fsum(operator.state_bytes or 0.0 for operator in operators)
                queries = list(dict.fromkeys(operator.query or operator.id for operator in operators))
                is_known = pause_s is not None
                stated = {
                    "title": Fact("remedies.move", cores=cores),
                    "cost": Fact("remedies.moved_cost", state_bytes=state_bytes, is_known=is_known),
                    "risk": Fact("remedies.moved_risk", queries=queries, pause_s=pause_s),
                }
        placement = {name: new for name, (_, new) in moved.items()}
        known_from = None if kind == "add_node" else 0.0 if kind == "objective" else pause_s
        return self._remedy(kind, settled.evaluation, known_from, placement=placement, **stated)

    def _moved(self, after: Deployment) -> dict[str, tuple[tuple[Replica, ...], tuple[Replica, ...]]]:
        """Operators that are elsewhere then, with their old and new replicas."""
        there = {operator.id: operator.replicas for operator in after.operators}
        return changes_of(self.running, there)

    def _operator(self, name: str) -> Operator:
        return self.running.operators[self.running.operator_index[name]]

    def _pause_s(self, moved: Mapping[str, tuple[tuple[Replica, ...], tuple[Replica, ...]]]) -> float | None:
        """Seconds for which state travels, one operator after the other; None where nobody knows how much it is."""
        total_s = 0.0
        for name, (old, new) in moved.items():
            operator = self._operator(name)
            if operator.state_bytes is None and operator.stateless is not True:
                return None
            total_s += duration_s(self.running, MigrationStep(operator, old, new, 0.0))
        return total_s

    @cached_property
    def _rate_per_s(self) -> float:
        """Events per second that its sources send it."""
        read = {entry.source for operator in self.question.candidate.operators for entry in operator.inputs}
        width_s = self.running.subinterval_s
        return math.fsum(
            float(source.arrivals.mean()) / width_s for source in self.running.sources if source.id in read
        )

    def _nodes(self, added: Sequence[NewNode]) -> dict[str, Any]:
        first = added[0]
        like = self.running.nodes[self.running.node_index[first.like]]
        share = first.capacity_cps * (first.cores or like.cores) / node_capacity_cps(like)
        price = None if like.price_per_hour is None else like.price_per_hour * len(added)
        asked = {"add_nodes": len(added), "like": first.like, "capacity_cps": first.capacity_cps, "cores": first.cores}
        cost = Fact("remedies.node_cost", price_per_hour=price, count=len(added), currency=self.question.currency)
        return {
            "title": Fact("remedies.add_node", count=len(added), like=like.id, share=share),
            "cost": cost,
            "risk": Fact("remedies.node_risk"),
            "changes": ({name: value for name, value in asked.items() if value is not None},),
            "price_per_hour": price,
        }

    def _remedy(self, kind: str, after: Evaluation, begins_s: float | None, **stated: Any) -> Remedy:
        """A remedy with what it does to everybody; it begins to help after some seconds, None: nobody knows."""
        own, number = after.outcomes[self.query], self.counts.get(kind, 0) + 1
        self.counts[kind] = number
        effects = tuple(self._effects(after))
        preview = "scenario" if stated.get("changes") else "placement"
        values: dict[str, Any] = {
            "id": f"{kind}-{number}",
            "kind": kind,
            "estimate_s": own.estimate_s,
            "low_s": own.low_s,
            "high_s": own.high_s,
            "state": own.state,
            "won_s": None if self.now.standing.is_endless else self.now.estimate_s - own.estimate_s,
            "ready_s": _ready_s(begins_s, own),
            "breaks": self._broken(after),
            "mends": tuple(e.query for e in effects if _mends(e) and e.query != self.query),
            "effects": effects,
            "preview": preview,
            **stated,
        }
        return Remedy(**values)

    def _effects(self, after: Evaluation) -> Iterator[RemedyEffect]:
        """The query first, then others whose latency or state is another."""
        others = [query for query in self.before if query != self.query]
        for query in (self.query, *others):
            was, now = self.before[query], after.outcomes.get(query)
            if now is was:
                continue
            if now is None:
                yield RemedyEffect(query, was.bound_s, was.estimate_s, None, was.state, "stopped")
            elif query == self.query or now.state != was.state or _differs(was.estimate_s, now.estimate_s):
                yield RemedyEffect(query, now.bound_s, was.estimate_s, now.estimate_s, was.state, now.state)

    def _broken(self, after: Evaluation) -> tuple[str, ...]:
        """Others whose objectives break, may break, or are missed by more; or of which nobody can say any more."""
        return tuple(
            query
            for query, was in self.before.items()
            if query != self.query and (now := after.outcomes.get(query)) is not None and _is_harmed(was, now)
        )

    # -- parallelism
    def _parallelisms(self) -> Iterator[Remedy]:
        if self.job is None:
            return
        self.tell(0.65, "Trying other parallelisms")
        plan = plan_parallelism(self.base, self.job, ParallelismQuestion(), closed=self.hosts.closed)
        others = [choice for choice in plan.choices if choice.parallelism > plan.now]
        if not plan.scaled:
            row = next((row for row in plan.operators if row.grounds is not None), None)
            why = "" if row is None else f"{row.operator}: {row.grounds}"
            self._vain("parallelism", Fact("remedies.not_scalable", why=why))
            return
        possible = [c for c in others if c.state not in (NO_SLOTS, NO_HOST) and c.estimate_s is not None]
        if not possible:
            is_kept_off = any(choice.state == NO_HOST for choice in others)
            self._vain("parallelism", Fact("remedies.not_allowed" if is_kept_off else "remedies.no_slots"))
            return
        choice = min(possible, key=lambda c: (bool(c.breaks), _RANKS[c.latency_state], c.parallelism))
        deployment = with_subtasks(self.running, choice.placement)
        after = self.evaluator.full(self._scenario(deployment, {self.query}))
        remedy = self._spread(plan, choice, after)
        if self._helps(remedy, after):
            yield remedy
        else:
            self._note_best("parallelism", after)

    def _spread(self, plan: ParallelismPlan, choice: ParallelismChoice, after: Evaluation) -> Remedy:
        restart, present = choice.restart, plan.choice(plan.now)
        is_even = choice.skew == "assumed_even"
        state = after.outcomes[self.query].state
        span: dict[str, Any] = {"low_s": None, "high_s": None, "basis": ""}
        if restart is not None:
            span = {"low_s": restart.low_s, "high_s": restart.high_s, "basis": restart.basis}
        title = Fact("remedies.parallelism", query=self.query, count=choice.parallelism, now=plan.now)
        stated = {
            "title": title,
            "cost": Fact("remedies.slots_cost", slots=choice.slots, now=present.slots if present else choice.slots),
            "risk": Fact("remedies.restart_risk", is_even=is_even, **span),
            "state": "at_risk" if is_even and state == "holds" else state,
            "placement": choice.placement,
            "parallelism": choice.parallelism,
            "preview": "parallelism",
            "ready_s": None if restart is None else restart.back_s,
        }
        return self._remedy("parallelism", after, None, **stated)

    def _scenario(self, deployment: Deployment, touched: set[str]) -> AdmissionScenario:
        return AdmissionScenario(deployment, (), {}, frozenset(touched), 1)

    # -- another plan
    def _other_plans(self) -> Iterator[Remedy]:
        for key, deployment in self.plans.items():
            own = (deployment.operators[j] for j in deployment.operators_of(self.query))
            if not all(self.hosts.take(operator.id, operator.replicas) for operator in own):
                self._vain("plan", Fact("remedies.plan_not_allowed"))
                continue
            self.tell(0.8, f"Estimating plan {key}")
            after = self.evaluator.full(self._scenario(deployment, {self.query}))
            remedy = self._remedy(
                "plan",
                after,
                None,
                title=Fact("remedies.plan", query=self.query, plan=key),
                cost=Fact("remedies.plan_cost"),
                risk=Fact("remedies.plan_risk"),
                plan=key,
                preview="plans",
            )
            if self._helps(remedy, after):
                yield remedy
            else:
                self._note_best("plan", after)

    # -- queries of lower priority
    def _stops(self) -> Iterator[Remedy]:
        """Stopping one of lower priority, or the first few together, that load the server that makes it late."""
        server = self.now.bottleneck.server if self.now.bottleneck else ""
        lower = self._lower(server)
        best: tuple[Remedy, Evaluation] | None = None
        for number, stopped in enumerate(
            [*combinations(lower, 1), *(tuple(lower[:n]) for n in range(2, len(lower) + 1))]
        ):
            self.tell(0.85 + 0.02 * number, f"Estimating it without {len(stopped)} of lower priority")
            deployment = self.running
            for query in stopped:
                deployment = deployment.without_query(query)
            after = self.evaluator.full(self._scenario(deployment, set(stopped)))
            remedy = self._stop(stopped, after)
            if remedy.is_enough:
                yield remedy
                return
            if best is None or self._own_s(after) < self._own_s(best[1]):
                best = remedy, after
        if best is None:
            self._vain("stop", Fact("remedies.no_lower", server=server))
        elif self._helps(*best):
            yield best[0]
        else:
            self._note_best("stop", best[1])

    def _stop(self, stopped: Sequence[str], after: Evaluation) -> Remedy:
        own, known = self.question.candidate.priority, self.running.priorities
        priorities = [str(known.get(query, 0)) for query in stopped]
        return self._remedy(
            "stop",
            after,
            0.0,
            title=Fact("remedies.stop", queries=list(stopped)),
            cost=Fact("remedies.stop_cost", queries=list(stopped), priorities=priorities, own=own),
            risk=Fact("remedies.stop_risk", queries=list(stopped)),
            changes=tuple({"remove_query": query} for query in stopped),
        )

    def _lower(self, server: str) -> list[str]:
        """Queries of lower priority at a server that nobody reads, those that load its node most first."""
        deployment, own = self.running, self.question.candidate.priority
        index = next((i for i, found in enumerate(deployment.servers) if found.name == server), None)
        if index is None:
            return []
        loads, found = loads_of(deployment), list[tuple[float, str]]()
        for query in deployment.queries:
            if query == self.query or not self.may_stop(own, deployment.priorities.get(query, 0)):
                continue
            if index not in servers_of_query(deployment, query):
                continue
            try:
                deployment.without_query(query)
            except DocumentError:  # others read it
                continue
            found.append((-float(loads.operator(np.array(deployment.operators_of(query))).load.mean()), query))
        return [query for _, query in sorted(found)[:_MAX_STOPPED]]


def _kind_of(changes: Sequence[Change]) -> str:
    """Kind of remedy that some changes of an alternative are."""
    if nodes_in(changes):
        return "add_node"
    if any(isinstance(change, RateChange) for change in changes):
        return "scale_rate"
    return "objective" if any(isinstance(change, ObjectiveChange) for change in changes) else "move"


def _cores(deployment: Deployment, replicas: Sequence[Replica]) -> str:
    """Servers that replicas are on."""
    names = {(deployment.nodes[s.node].id, s.core): s.name for s in deployment.servers if s.node is not None}
    return " and ".join(names[replica.node, replica.core] for replica in replicas)


def _ready_s(begins_s: float | None, own: QueryOutcome) -> float | None:
    """Seconds until a change that begins to help after some has helped: what waits is processed by then."""
    if begins_s is None or own.catch_up is None:
        return begins_s
    if own.catch_up.state != WITHIN or own.catch_up.at_s is None:
        return None
    return begins_s + own.catch_up.at_s


def _differs(before_s: float, after_s: float) -> bool:
    """Whether a latency is another one, by more than anybody would read."""
    return abs(after_s - before_s) > max(_SEEN_S, _SEEN * before_s)


def _mends(effect: RemedyEffect) -> bool:
    return effect.before_state in _LATE and effect.after_state == "holds"


def _is_harmed(was: QueryOutcome, now: QueryOutcome) -> bool:
    """Whether a query's state is worse than before, or it misses its objective by more than rounding."""
    if _RANKS[now.state] > _RANKS[was.state]:
        return True
    is_later = now.estimate_s - was.estimate_s > tolerance_s(now)
    return now.state == "breached" and (is_later or (now.standing.is_endless and not was.standing.is_endless))


def _rank(remedy: Remedy) -> tuple[Any, ...]:
    return (
        remedy.kind == "objective",
        len(remedy.breaks),
        _RANKS[remedy.state],
        KINDS.index(remedy.kind),
        len(remedy.placement) if remedy.state == "holds" else 0,
        -(remedy.won_s if remedy.won_s is not None else -remedy.estimate_s),
        math.inf if remedy.ready_s is None else remedy.ready_s,
        remedy.id,
    )
