"""Facts of a placement run: its search while it runs, then its proposal."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.exports.services import placement_export, placement_queries
from apps.pages.exports import ExportFacts, export_facts
from apps.pages.overview.findings import Stat
from apps.pages.placement.charts import search_curve
from apps.pages.placement.nodes import NodesChanged
from apps.pages.placement.tables import is_optimal, moves_table, queries_table, tightest_queries, told_gap, value_words
from apps.planning.choices import APPLYING_STATES, ENDED_STATES, MoveState, RunState
from apps.planning.models import PlacementRun
from apps.planning.placement_moves import BATCH_SIZE, batch_pause_s, is_driven, plan_batches
from apps.planning.placement_search import (
    LiveSearch,
    PlacementFacts,
    PlacementProposal,
    TightestQuery,
    live_topic,
    stored_facts,
    stored_proposal,
)
from apps.planning.placements import PlacementStanding, placement_standing
from apps.queries.selectors import queries_waiting
from apps.ui.numbers import MISSING, Quantity, bytes_size, percent, seconds
from apps.ui.sentences import sentence
from apps.ui.tables import Table
from apps.ui.times import time_tag
from engine.words import counted, listed
from engine.words.placement import NOTHING_BETTER

__all__ = ["PlacementRunFacts", "SearchProgress"]


class SearchProgress:
    """The best so far of `run`, against its bound."""

    run: PlacementRun

    @property
    def is_searching(self) -> bool:
        return self.run.state == RunState.SEARCHING

    @cached_property
    def live(self) -> LiveSearch | None:
        return LiveSearch.parse(self.run.live) if self.run.live else None

    @cached_property
    def proposal(self) -> PlacementProposal | None:
        return stored_proposal(self.run)

    @property
    def live_curve(self) -> SafeString:
        return search_curve(self.live.trace if self.live else (), self._bound, self.run.budget_s, share=self.is_share)

    @property
    def live_sentence(self) -> SafeString:
        return sentence("pages/placement/sentences/searching.html", facts=self)

    @property
    def live_value(self) -> str:
        """The best so far; empty before the first placement is estimated."""
        return "" if self.live is None or self.live.value_s is None else self._value(self.live.value_s)

    @property
    def live_cores(self) -> str:
        """The best by the cores alone, where it is better than what links leave of it."""
        if self.live is None:
            return ""
        value, cores = self.live.value_s, self.live.cores_s
        return self._value(cores) if cores is not None and (value is None or cores < value) else ""

    @property
    def bound(self) -> str:
        """Value that no placement can be below; empty if none is known."""
        return self._value(self._bound) if self._bound else ""

    @property
    def live_gap(self) -> str:
        value, bound = self.live.value_s if self.live else None, self._bound
        return str(percent(value / bound - 1)) if value and bound else MISSING

    @property
    def _bound(self) -> float | None:
        told = self.live if self.is_searching else self.facts
        return told.bound_s or None if told else None

    @cached_property
    def facts(self) -> PlacementFacts | None:
        """Figures of the proposal."""
        return stored_facts(self.run)

    @property
    def is_share(self) -> bool:
        return self.run.objective != "worst"

    def _value(self, value: Any) -> str:
        return str(percent(value) if self.is_share else seconds(value))


_PARTS = {"": "Proposal", "queries": "Queries", "nodes": "Nodes", "moves": "Moves"}
_SHORT = {"queries": 12, "nodes": 8, "moves": 15}
_LARGE = 1000  # operators
_MAX_EXPORTS = 10
_LONG = {"queries": 50, "nodes": 20, "moves": 100}


class PlacementRunFacts(SearchProgress):
    """Facts of the page; every property is computed when the template reads it."""

    def __init__(self, request: HttpRequest, run: PlacementRun, user: User, *, compares: bool = False) -> None:
        self.request, self.run, self.user = request, run, user
        self.compares = compares or not self.is_large
        self.slug = run.cluster.slug
        tab = request.GET.get("show", "")
        self.show = tab if tab in _PARTS else ""

    @cached_property
    def is_driven(self) -> bool:
        """Whether agents and stream processor execute a query that moves: else it moves in the books alone."""
        return is_driven(self.run)

    @cached_property
    def exports(self) -> list[ExportFacts]:
        """The proposal in terms of its engines, for each imported query that it moves."""
        moved = set(self.run.moves.values_list("query", flat=True))
        base = f"/api/v1/placements/{self.run.pk}/export"
        found = [
            export_facts(partial(placement_export, self.run, query=name), base, query=name)
            for name in placement_queries(self.run)
            if name in moved
        ]
        return [facts for facts in found if facts is not None][:_MAX_EXPORTS]

    # -- where it is in its life

    @property
    def live_topic(self) -> str:
        return live_topic(self.run)

    @property
    def is_busy(self) -> bool:
        return self.run.state in APPLYING_STATES

    @property
    def can_operate(self) -> bool:
        return Scope.OPERATE in self.user.scopes

    @property
    def can_search_again(self) -> bool:
        return self.can_operate and self.run.state in ENDED_STATES

    @property
    def is_large(self) -> bool:
        """Whether a snapshot takes so long that the page does not wait for what has moved since."""
        return self.facts is not None and self.facts.operators > _LARGE

    @cached_property
    def standing(self) -> PlacementStanding:
        return placement_standing(self.run, compare=self.compares)

    @property
    def crumb(self) -> str:
        return f"Run {str(self.run.pk)[:4]}"

    @property
    def asked(self) -> SafeString:
        """Asked by ann 3 min ago: …"""
        run = self.run
        requester = run.requested_by or "a rule"
        if not self.limits:
            return format_html("Asked by {} {}.", requester, time_tag(run.created_at))
        return format_html("Asked by {} {}, {}.", requester, time_tag(run.created_at), ", ".join(self.limits))

    @property
    def limits(self) -> list[str]:
        """Constraints of the search in words."""
        said = self.run.constraints
        words = []
        if "max_moves" in said:
            words.append(f"at most {counted(said['max_moves'], 'move')}")
        if said.get("pin"):
            words.append(counted(len(said["pin"]), "pin"))
        if said.get("forbid"):
            words.append(counted(sum(map(len, said["forbid"].values())), "forbidden place"))
        if said.get("apart"):
            words.append(counted(len(said["apart"]), "pair kept apart", "pairs kept apart"))
        if said.get("may_split"):
            words.append("operators without state, or with state by key, may be split")
        return words

    @property
    def rules(self) -> list[str]:
        said = self.run.constraints
        rows = [f"{name} stays on {node}" for name, node in said.get("pin", {}).items()]
        rows += [f"{counted(len(self.run.fixed), 'other operator')} not moved"] if self.run.fixed else []
        rows += [f"{name} must not be on {', '.join(nodes)}" for name, nodes in said.get("forbid", {}).items()]
        return rows + [f"{listed(group, len(group))} on different nodes" for group in said.get("apart", ())]

    # -- the proposal

    @property
    def has_proposal(self) -> bool:
        return self.facts is not None

    @property
    def finding(self) -> SafeString:
        """Moving 3 operators takes the worst case from 8.1 s to 5.2 s; no placement can be below 5.1 s."""
        return sentence("pages/placement/sentences/finding.html", facts=self)

    @property
    def waiting(self) -> list[str]:
        """Queries of the cluster that wait to be admitted, which a search of what runs does not place."""
        return queries_waiting(self.run.cluster)

    @property
    def tightest(self) -> tuple[TightestQuery, TightestQuery] | None:
        return tightest_queries(self.facts)

    @property
    def gap(self) -> float | None:
        return told_gap(self.facts)

    @property
    def is_optimal(self) -> bool:
        return is_optimal(self.facts)

    @property
    def value_before(self) -> str | None:
        return None if self.facts.value_before is None else value_words(self.facts, "value_before")

    @property
    def value_after(self) -> str:
        return value_words(self.facts, "value_after")

    @property
    def messages(self) -> list[str]:
        """Remarks of the engine; that nothing moves is said already."""
        return [text for text in self.proposal.messages if text != NOTHING_BETTER]

    @property
    def apart(self) -> list[str]:
        """Sentences on operators that are not beside those they exchange events with; not where others are nearer."""
        return [entry.sentence for entry in self.proposal.apart if entry.why != "company"]

    @property
    def newly_breached(self) -> list[str]:
        """Queries that hold or are at risk now and would miss their objective afterwards."""
        return [
            query.query
            for query in self.proposal.queries
            if query.after_state == "breached" and query.before_state != "breached"
        ]

    @property
    def warning(self) -> SafeString:
        return sentence("pages/placement/sentences/late.html", facts=self)

    @property
    def stats(self) -> list[Stat]:
        facts, queries = self.facts, self.proposal.queries
        gap = facts.gap
        ended = {"optimal": "nothing better can exist", "budget": "time was up", "stopped": "stopped by hand"}
        note = ended.get(facts.stopped, "rounds were up")
        held = sum(query.after_state == "holds" for query in queries)
        judged = sum(query.after_state != "none" for query in queries)
        was = sum(query.before_state == "holds" for query in queries)
        longest = max((move.bump_s or 0.0 for move in self.proposal.moves), default=0.0)
        return [
            Stat("Above the bound", percent(gap) if gap is not None else Quantity(MISSING), self._bound_note),
            Stat("Objectives that hold", Quantity(str(held), f"of {judged}"), f"{was} now"),
            Stat("Moves", Quantity(str(facts.moves)), f"state travels {seconds(facts.duration_s)} in all"),
            Stat("Longest delay while moving", seconds(longest), "by Flow, of one query"),
            Stat("Searched", seconds(facts.elapsed_s), f"{note}, {counted(facts.rounds, 'round')}"),
        ]

    @property
    def _bound_note(self) -> str:
        facts = self.facts
        if facts.gap is None:
            return "no bound is known"
        return f"{self._value(facts.bound_s)}, {facts.bound_kind}"

    @property
    def curve(self) -> SafeString:
        return search_curve(self.proposal.trace, self._bound, self.facts.elapsed_s, share=self.is_share)

    @property
    def curve_rows(self) -> list[tuple[str, str]]:
        """(after, best value), thinned."""
        trace = self.proposal.trace
        every = max(1, -(-len(trace) // 24))
        rows = [*trace[::every], *(trace[-1:] if (len(trace) - 1) % every else ())]
        return [(str(seconds(row[0])), self._value(row[1])) for row in rows]

    # -- its parts

    key = (("before", "Before"), ("after", "After"), ("band", "Interval, 90%"), ("objective", "Objective"))

    @property
    def tabs(self) -> list[tuple[str, str, bool]]:
        here = reverse("pages:placement-run", args=[self.slug, self.run.pk])
        counts = {"queries": len(self.proposal.queries), "moves": len(self.proposal.moves)}
        counts["nodes"] = self.nodes.total
        return [
            (f"{words} {counts[part]}" if part else words, f"{here}?show={part}" if part else here, part == self.show)
            for part, words in _PARTS.items()
        ]

    def _size(self, part: str) -> int:
        return _LONG[part] if self.show == part else _SHORT[part]

    @cached_property
    def queries(self) -> Table:
        return queries_table(self.request, self.slug, self.proposal.queries, page_size=self._size("queries"))

    @cached_property
    def nodes(self) -> NodesChanged:
        return NodesChanged(self.request, self.run.cluster, self.proposal, per_page=self._size("nodes"))

    @cached_property
    def moves(self) -> Table:
        return moves_table(self.request, self.slug, self.run, page_size=self._size("moves"))

    @property
    def table(self) -> Table | None:
        """The table that a part of its own shows."""
        if not self.has_proposal:
            return None
        return {"queries": lambda: self.queries, "moves": lambda: self.moves}.get(self.show, lambda: None)()

    # -- applying

    @cached_property
    def move_states(self) -> dict[str, int]:
        states = list(self.run.moves.order_by().values_list("state", flat=True))
        return {state: states.count(state) for state in MoveState.values}

    @property
    def done_count(self) -> int:
        return self.move_states[MoveState.DONE]

    @property
    def plan(self) -> list[str]:
        """Consequences of applying it, with the usual pace and size of batches."""
        moves = list(self.run.moves.all())
        batches = plan_batches(moves, BATCH_SIZE)
        pauses_s = sum(batch_pause_s(batch, pace=1.0, batches=len(batches)) for batch in batches[:-1])
        size_bytes = sum(move.state_bytes or 0.0 for move in moves)
        worst = max(moves, key=lambda move: move.bump_s)
        words = [
            f"{counted(len(moves), 'move')} in {counted(len(batches), 'batch', 'batches')}, "
            f"about {seconds(pauses_s)} at the usual pace",
            f"{bytes_size(size_bytes)} of state travel" if size_bytes else "no state has to travel",
        ]
        if worst.bump_s >= 0.005:
            words.append(
                f"the longest delay: {worst.bump_query} by {seconds(worst.bump_s)} while {worst.operator} moves"
            )
        return [*words, "stops by itself, after a whole batch, if anything else changes in the cluster"]

    @property
    def progress_words(self) -> str:
        states = self.move_states
        total = sum(states.values())
        if self.run.state == RunState.UNDOING:
            return f"{states[MoveState.UNDONE]} of {states[MoveState.UNDONE] + states[MoveState.DONE]} moves taken back"
        return f"{states[MoveState.DONE]} of {counted(total, 'move')} made"

    @property
    def progress(self) -> float:
        states = self.move_states
        if self.run.state == RunState.UNDOING:
            return states[MoveState.UNDONE] / max(states[MoveState.UNDONE] + states[MoveState.DONE], 1)
        return states[MoveState.DONE] / max(sum(states.values()), 1)

    # -- the calls behind the page

    @property
    def rest_body(self) -> dict[str, object]:
        run = self.run
        body: dict[str, object] = {"cluster": self.slug, "objective": run.objective, "budget_s": run.budget_s}
        body |= {"seed": run.seed} if run.seed else {}
        body |= {"algorithm": run.algorithm} if run.algorithm != "search" else {}
        limits = {name: value for name, value in run.constraints.items() if name != "may_split" or len(value) <= 20}
        return body | ({"constraints": limits} if limits else {})
