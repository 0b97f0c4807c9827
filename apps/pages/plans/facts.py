"""Facts of a plan comparison: the finding, plans as rows with their graphs, applied rules, drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from apps.planning.choices import RunState
from apps.planning.models import PlanComparison
from apps.queries.choices import QueryState
from apps.ui.dag import DagEdge, DagNode, dag_picture
from apps.ui.numbers import Quantity, count, cps, percent, seconds, seconds_range, significant
from apps.ui.svg.shapes import path, picture
from engine.document.elements import Operator, Replica
from engine.plans.answer import OneNode, PlanDifference, PlanRanking, RankedPlan
from engine.plans.samples import Drift
from engine.words import counted, statistic_text

__all__ = [
    "ComparisonFacts",
    "PlanRow",
    "changed_operators",
    "code_words",
    "finding_words",
    "history_words",
    "interval_dots",
    "plan_graph",
]


_WIDTH = 300.0


def interval_dots(plan: RankedPlan, most_s: float, bound_s: float | None, name: str) -> SafeString:
    """One plan on the scale of all: a line from low to high, a dot at the estimate, the objective as an upright."""

    def x(value_s: float) -> float:
        return round(min(value_s / most_s, 1.0) * (_WIDTH - 12) + 6, 1) if most_s else 6.0

    shapes = [path("M", 0, 10, "H", _WIDTH, stroke="line", fixed=True)]
    if bound_s is not None and bound_s <= most_s:
        shapes.append(path("M", x(bound_s), 0, "V", 20, stroke="c-objective", stroke_width=1.5, fixed=True))
    if plan.low_s is not None and plan.high_s is not None:
        low, high = x(plan.low_s), x(plan.high_s)
        ends: dict[str, str | float] = {"stroke": "c-estimate", "stroke_width": 1.5, "fixed": True}
        shapes.append(path("M", low, 10, "H", high, stroke="c-band", stroke_width=8, fixed=True))
        shapes.append(path("M", low, 5, "V", 15, "M", high, 5, "V", 15, **ends))
    dot: dict[str, str | float] = {"stroke": "c-estimate", "stroke_width": 9, "stroke_linecap": "round", "fixed": True}
    shapes.append(path("M", x(plan.estimate_s), 10, "h", 0.01, **dot))
    words = f"{name}: estimate {seconds(plan.estimate_s)}"
    if plan.low_s is not None:
        words += f", interval {seconds(plan.low_s)} to {seconds(plan.high_s)}"
    if bound_s is not None:
        words += f", objective {seconds(bound_s)}"
    return picture(_WIDTH, 20, words, shapes, css="dots", stretched=True)


def changed_operators(plan: RankedPlan, other: RankedPlan | None) -> set[str]:
    """Ids of the plan's operators that are new, or read something else than in the other plan."""
    if other is None:
        return set()
    before = {operator.id: _sources(operator) for operator in other.dataflow}
    return {operator.id for operator in plan.dataflow if before.get(operator.id) != _sources(operator)}


def _sources(operator: Operator) -> list[str]:
    return [entry.source for entry in operator.inputs]


def plan_graph(plan: RankedPlan, query: str, other: RankedPlan | None, label: str) -> SafeString:
    """The plan from left to right; what differs from the other plan stands out."""
    changed, prefix = changed_operators(plan, other), f"{query}/"
    names = {operator.id for operator in plan.dataflow}
    # an operator of kind source stands for what it reads
    readers = [operator for operator in plan.dataflow if operator.kind != "source"]
    sources = dict.fromkeys(name for operator in readers for name in _sources(operator) if name not in names)
    # an operator's name has no NUL, so a source of the same name stays another block
    keys = {name: f"source\0{name}" for name in sources}
    nodes = [DagNode(keys[name], name.partition("@")[0], detail="source") for name in sources]
    nodes += [
        DagNode(
            operator.id,
            operator.id.removeprefix(prefix),
            place=_place(plan.placement.get(operator.id, ())),
            detail=_detail(operator),
            on_path=operator.id in changed,
        )
        for operator in plan.dataflow
    ]
    edges = [
        DagEdge(keys.get(name, name), operator.id, on_path=operator.id in changed)
        for operator in plan.dataflow
        for name in _sources(operator)
        if name in names or name in keys
    ]
    changed_names = ", ".join(sorted(name.removeprefix(prefix) for name in changed))
    return dag_picture(nodes, edges, f"{label}. Differs in {changed_names}." if changed_names else label)


def _place(replicas: Sequence[Replica]) -> str:
    nodes = list(dict.fromkeys(replica.node for replica in replicas))
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes" if nodes else ""


def _detail(operator: Operator) -> str:
    entries = operator.inputs
    statistics = f"selectivity {significant(entries[0].selectivity)}" if len(entries) == 1 else f"{len(entries)} inputs"
    return statistics if operator.kind in (None, "other") else f"{operator.kind}, {statistics}"


_MAX_GRAPHS = 3


def code_words(text: str) -> SafeString:
    """Names between backticks in the type of code."""
    parts = text.split("`")
    pieces = [(format_html("<code>{}</code>", part) if i % 2 else part) for i, part in enumerate(parts)]
    return format_html_join("", "{}", ((piece,) for piece in pieces))


@dataclass(frozen=True)
class PlanRow:
    """One plan of the ranking."""

    key: str
    title: str
    version: int | None
    runs: bool
    recommended: bool
    notes: list[SafeString]
    assumed: list[SafeString]
    dots: SafeString
    estimate: Quantity
    interval: str
    mace: Quantity
    cost: Quantity
    against: str
    tone: str
    adopted: bool


@dataclass(frozen=True)
class DriftRow:
    """One test of a statistic."""

    operator: str
    input: str
    what: str
    before: str
    after: str
    p: str
    adjusted_p: str
    significant: bool


class ComparisonFacts:
    """A comparison that has a ranking."""

    def __init__(self, comparison: PlanComparison, notes: Mapping[int, str]) -> None:
        self.comparison = comparison
        self.result = PlanRanking.parse(comparison.result)
        self.notes = notes
        self.plans = {plan.key: plan for plan in self.result.plans}

    @property
    def running(self) -> str | None:
        return self.result.running

    def title(self, key: str) -> str:
        """Version 2, or: Rewriting of version 1 where there is one, with its number where there are several."""
        plan = self.plans[key]
        if plan.base is None:
            return f"Version {key.removeprefix('v')}"
        return f"Rewriting {key.removeprefix('r')} of version {plan.base.removeprefix('v')}"

    @cached_property
    def sentence(self) -> str:
        return finding_words(self)

    @property
    def setting(self) -> str:
        """By which statistic, and where, it was judged."""
        latency = f"{capfirst(statistic_text(self.result.statistic))} latency"
        setting = self.result.setting
        if isinstance(setting, OneNode):
            return f"{latency}, alone on one node of {cps(setting.capacity_cps)}; 90% intervals"
        if setting.places == "free":
            return f"{latency}, beside everything that runs, every operator placed anew; 90% intervals"
        return f"{latency}, beside everything that runs; 90% intervals"

    @cached_property
    def most_s(self) -> float:
        highest = max(plan.high_s or plan.estimate_s for plan in self.result.plans)
        bound_s = self.result.bound_s or 0.0
        return max(highest, bound_s if bound_s < 3 * highest else 0.0, self.result.resolution_s)

    @cached_property
    def rows(self) -> list[PlanRow]:
        return [self._row(plan) for plan in self.result.plans]

    def _row(self, plan: RankedPlan) -> PlanRow:
        key, title = plan.key, self.title(plan.key)
        version = int(key.removeprefix("v")) if plan.origin == "entered" else None
        steps = [code_words(capfirst(str(step.words))) for step in plan.steps]
        note = self.notes.get(version, "") if version else ""
        against, tone = self._against(key)
        return PlanRow(
            key=key,
            title=title,
            version=version,
            runs=key == self.running,
            recommended=key == self.result.recommended,
            notes=[*steps, *(format_html("{}", text) for text in (note, _lacking(plan)) if text)],
            assumed=[code_words(capfirst(str(text))) for text in plan.assumed],
            dots=interval_dots(plan, self.most_s, self.result.bound_s, title),
            estimate=seconds(plan.estimate_s),
            interval=str(seconds_range(plan.low_s, plan.high_s)) if plan.low_s is not None else "no sample",
            mace=seconds(plan.mace_s),
            cost=cps(plan.cost_cps),
            against=against,
            tone=tone,
            adopted=bool(self.comparison.adopted_id) and self.comparison.adopted_key == key,
        )

    def _against(self, key: str) -> tuple[str, str]:
        """A plan against the one that runs, or against the first where none runs."""
        if key == self.running:
            return "", ""
        other = "what runs" if self.running else self.title(self.result.plans[0].key)
        against = self.result.against_running if self.running else self.result.against_best
        return _difference_words(against[key], other) if key in against else ("", "")

    # -- pictures
    @cached_property
    def graphs(self) -> list[tuple[str, str, SafeString]]:
        """The running plan, then the fastest others: title, what differs, picture."""
        base = self.plans.get(self.running or "")
        order = ([base] if base else []) + [plan for plan in self.result.plans if plan is not base]
        return [self._graph(plan, base) for plan in order[:_MAX_GRAPHS]]

    def _graph(self, plan: RankedPlan, base: RankedPlan | None) -> tuple[str, str, SafeString]:
        title, query = self.title(plan.key), self.comparison.query.name
        if plan is base:
            return title, "runs now", plan_graph(plan, query, None, f"{title}, which runs")
        changed = sorted(name.removeprefix(f"{query}/") for name in changed_operators(plan, base))
        differs = f"other than what runs: {', '.join(changed)}" if changed else ""
        return title, differs, plan_graph(plan, query, base, title)

    # -- rules
    @cached_property
    def refused(self) -> list[tuple[str, list[SafeString]]]:
        """Rewritings that the rules refused, by version."""
        return [
            (f"Version {key.removeprefix('v')}", [code_words(capfirst(refusal.words)) for refusal in rewriting.refused])
            for key, rewriting in self.result.rewriting.items()
            if rewriting.refused
        ]

    @cached_property
    def search_words(self) -> str:
        """Share of the space that was searched."""
        looked = list(self.result.rewriting.values())
        plans = counted(sum(rewriting.examined for rewriting in looked), "plan")
        caps = [rewriting.cap for rewriting in looked if rewriting.capped]
        if not caps:
            return f"{plans} looked at, all there are"
        return f"{plans} looked at; the cap of {caps[0]} was reached, so there are more"

    # -- drift
    @cached_property
    def drift(self) -> Drift | None:
        """The newest test of its statistics."""
        return Drift.parse(self.comparison.drift) if self.comparison.drift else None

    @cached_property
    def drift_words(self) -> str:
        drift = self.drift
        if self.comparison.running is None:
            return "Nothing ran, so there are no statistics to watch."
        if drift is None:
            return "The statistics are still those this comparison rests on."
        tests, alpha = len(drift.changes), str(percent(drift.alpha))
        if not tests:
            return "The statistics have changed, but no input has a sample on both sides to test."
        if drift.significant:
            drifted = sum(change.significant for change in drift.changes)
            words = f"{drifted} of {tests} tests are significant at a false-alarm rate of {alpha} per check"
            return f"The statistics have drifted: {words}."
        smallest_p = min(change.adjusted_p for change in drift.changes)
        words = f"the smallest p is {smallest_p:.2g} after Holm's correction, the limit {alpha}"
        return f"No significant change in {tests} tests: {words}."

    @cached_property
    def drift_rows(self) -> list[DriftRow]:
        return [
            DriftRow(
                change.operator,
                change.input,
                change.what.replace("_", " "),
                significant(change.before, apart_from=change.after),
                significant(change.after, apart_from=change.before),
                f"{change.p:.2g}",
                f"{change.adjusted_p:.2g}",
                change.significant,
            )
            for change in (self.drift.changes[:8] if self.drift else ())
        ]

    @property
    def sample_words(self) -> str:
        """Size of the samples behind the numbers."""
        largest = max((plan.sample_events for plan in self.result.plans), default=0)
        return (
            f"samples of up to {count(largest)} events per input" if largest else "no samples: statistics are assumed"
        )

    @property
    def is_overtaken(self) -> bool:
        """Whether another version runs than the one that plans were compared with."""
        query = self.comparison.query
        now = query.running_version.number if query.running_version and query.state == QueryState.RUNNING else None
        return now != self.comparison.running


def _lacking(plan: RankedPlan) -> str:
    """Lack of a plan's estimate where servers run other policies than stimulus time, and its state."""
    if plan.scheduling is None:
        return ""
    risk = "; its objective is at risk" if plan.state == "at_risk" else ""
    return f"{capfirst(str(plan.scheduling.lacking))}{risk}."


def _difference_words(difference: PlanDifference, other: str) -> tuple[str, str]:
    size = seconds(abs(difference.seconds))
    if difference.equal:
        return f"as good as {other}", ""
    if not difference.told_apart and difference.more_events:
        events = count(difference.more_events)
        return f"cannot be told apart from {other} yet: {events} more events are needed", "watch"
    if not difference.told_apart:
        return f"cannot be told apart from {other} yet: a sample is needed", "watch"
    if difference.seconds < 0:
        return f"{size} faster than {other}", "ok"
    return f"{size} slower than {other}", "bad"


def finding_words(view: ComparisonFacts) -> str:
    """The finding with the names and numbers of the page."""
    finding, result = view.result.finding, view.result
    title = view.title(finding.key)
    by = seconds(abs(finding.seconds))
    if finding.kind == "better" and result.running is not None:
        now, then = (seconds(view.plans[key].flow_s) for key in (result.running, finding.key))
        return f"{title} would be {by} faster than what runs: {then} instead of {now} by mean costs."
    if finding.kind == "best":
        plans = counted(len(view.plans), "plan")
        if finding.key == result.running:
            return f"{title}, which runs, is the fastest of {plans}, by {by}."
        return f"{title} is the fastest of {plans}, by {by}."
    if finding.kind == "unclear":
        more = count(finding.more_events)
        return f"{title} may be the fastest, by {by}, but cannot be told apart yet: {more} more events of the sample."
    if finding.kind == "equal":
        resolution = seconds(result.resolution_s)
        return f"The plans are as good as each other: they differ by less than the resolution of {resolution}."
    return f"{title} is the only plan: nobody entered another, and the rules found none that costs less."


def history_words(row: PlanComparison) -> str:
    """A comparison in a line of the history."""
    if row.state != RunState.DONE:
        return row.message or row.get_state_display()
    return finding_words(ComparisonFacts(row, {}))
