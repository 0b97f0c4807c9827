"""Tables of placement: runs, queries before and after, moves; and the finding of a run in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from django.db.models import Count
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.overview.tables import objective_text
from apps.pages.saved_views.bar import open_views
from apps.planning.choices import PLACEMENT_STATES, MoveState
from apps.planning.models import PlacementMove, PlacementRun
from apps.planning.placement_search import PLACEMENT, PlacementFacts, TightestQuery, stored_facts
from apps.planning.placements import PlacementFilter
from apps.saved_views.models import SavedList
from apps.ui.marks import STATES, expected_icon, expected_mark, state_icon, state_mark
from apps.ui.numbers import MISSING, Quantity, bytes_size, percent, seconds
from apps.ui.pictures import before_after_bar
from apps.ui.tables import Choice, Column, Filter, Table
from apps.ui.times import time_tag
from engine.document.elements import Replica
from engine.placement.answer import QueryChange
from engine.words import counted, server_words

__all__ = [
    "finding_words",
    "is_optimal",
    "moves_table",
    "queries_table",
    "runs_table",
    "tightest_queries",
    "told_gap",
    "value_words",
    "where_words",
]


_NO_GAP = 0.0005
_FAR_GAP = 1.0  # of twice the bound nobody learns how good it is


def finding_words(run: PlacementRun) -> str:
    """3 moves: worst case 8.1 s → 5.2 s, at most 2% from the best possible."""
    facts = stored_facts(run)
    if facts is None:
        return run.message
    if not facts.moves:
        return "Nothing to move: no better placement was found"
    moves = counted(facts.moves, "move")
    was, now = value_words(facts, "value_before"), value_words(facts, "value_after")
    if tightest := tightest_queries(facts):
        was, now = (str(percent(query.share)) for query in tightest)
        text = f"{moves}: nearest its objective {was} → {now} of it"
    elif facts.objective == "worst":
        text = f"{moves}: worst case {was} → {now}"
    else:
        text = f"{moves}: worst weighted latency over objective {was} → {now}"
    gap = told_gap(facts)
    if gap is None:
        return text
    if is_optimal(facts):
        return f"{text}, nothing better can exist"
    return f"{text}, at most {percent(gap)} from the best possible"


def told_gap(facts: PlacementFacts) -> float | None:
    """Distance from the best possible, at most, as a share; None where the bound is too far below to say anything."""
    return None if facts.gap is None or facts.gap > _FAR_GAP else facts.gap


def tightest_queries(facts: PlacementFacts) -> tuple[TightestQuery, TightestQuery] | None:
    """The query nearest its objective before and after, where the search was for objectives and both are known."""
    was, now = facts.tightest_before, facts.tightest_after
    return (was, now) if facts.objective != "worst" and was and now else None


def is_optimal(facts: PlacementFacts) -> bool:
    """Whether nothing better can exist, by the bound."""
    return facts.gap is not None and facts.gap < _NO_GAP


def value_words(facts: PlacementFacts, name: str) -> str:
    """A value of the search's objective: seconds, or a share of the latency objective."""
    value = getattr(facts, name)
    if facts.objective != "worst":
        return str(percent(value))
    other = facts.value_after if name == "value_before" else facts.value_before
    return str(seconds(value, apart_from=other))


_CHANGED_S = 0.005


# -- runs


def runs_table(request: HttpRequest, cluster: Any, *, page_size: int = 30) -> Table:
    """Newest first."""
    slug = cluster.slug
    runs = PlacementRun.objects.filter(cluster=cluster).order_by()
    counts = dict(runs.values("state").annotate(n=Count("pk")).values_list("state", "n"))
    states = [Choice(state, STATES[state].label, counts[state]) for state, _ in PLACEMENT_STATES if state in counts]
    return Table(
        request,
        [
            Column("created", "Search", partial(_heading, slug), sort="created_at", csv=_created, full=True),
            Column("state", "State", lambda run: state_mark(run.state), sort="state", csv=lambda run: run.state),
            Column("finding", "Finding", _finding, csv=finding_words, full=True),
            Column("by", "Asked by", lambda run: run.requested_by or "a rule", sort="requested_by__username"),
        ],
        PLACEMENT.visible().filter(cluster=cluster),
        caption="Placement runs",
        default_sort="-created",
        filters=[Filter("state", states, all_label="Any state", all_count=sum(counts.values()))],
        filterset=PlacementFilter,
        page_size=page_size,
        views=open_views(request, SavedList.PLACEMENTS),
        file_name=f"placements-{slug}",
        empty={"icon": "placement", "title": "No search yet", "text": "A search proposes moves; nothing moves by it."},
    )


def _heading(slug: str, run: PlacementRun) -> SafeString:
    url = reverse("pages:placement-run", args=[slug, run.pk])
    mark, when = state_icon(run.state), time_tag(run.created_at)
    return format_html('<span class="nm">{}<a class="name" href="{}">{}</a></span>', mark, url, when)


def _created(run: PlacementRun) -> Any:
    return run.created_at


def _finding(run: PlacementRun) -> SafeString:
    return format_html('<span class="finding">{}</span>', finding_words(run) or "–")


# -- queries


def queries_table(request: HttpRequest, slug: str, queries: Sequence[QueryChange], *, page_size: int) -> Table:
    """Rows with the largest change first."""
    rows = sorted(queries, key=lambda row: (-abs(_change(row)), row.query))
    return Table(
        request,
        [
            Column("query", "Query", partial(_query, slug), sort=attrgetter("query"), csv=attrgetter("query")),
            Column("moved", "Moves", _moved, sort=attrgetter("moved"), csv=attrgetter("moved"), num=True),
            Column(
                "objective", "Objective", _objective, sort=attrgetter("bound_s"), csv=attrgetter("bound_s"), num=True
            ),
            Column("bar", "Before and after", _bar, csv=attrgetter("statistic"), full=True),
            Column("before", "Before", partial(_latency, "before_s"), sort=attrgetter("before_s"), num=True),
            Column("after", "After", partial(_latency, "after_s"), sort=attrgetter("after_s"), num=True, css=_tone),
            Column("change", "Change", _change_words, sort=_change, csv=_change, num=True),
            Column("state", "State after", _state, short="State", csv=attrgetter("after_state")),
        ],
        rows,
        caption="Queries before and after",
        search=attrgetter("query"),
        search_label="Query",
        page_size=page_size,
        file_name="placement-queries",
        identify=attrgetter("query"),
    )


def _query(slug: str, row: QueryChange) -> SafeString:
    url = reverse("pages:query", args=[slug, row.query])
    mark = expected_icon(row.after_state)
    return format_html('<span class="nm">{}<a class="name" href="{}">{}</a></span>', mark, url, row.query)


def _moved(row: QueryChange) -> str:
    return str(row.moved or MISSING)


def _objective(row: QueryChange) -> SafeString:
    if row.statistic == "worst" and row.bound_s:
        return seconds(row.bound_s).html
    return objective_text(row.statistic, row.bound_s)


def _bar(row: QueryChange) -> SafeString:
    figures = row.before_s, row.after_s, row.bound_s
    return before_after_bar(*figures, row.query, row.low_s, row.high_s)


def _latency(moment: str, row: QueryChange) -> SafeString:
    return seconds(getattr(row, moment), apart_from=row.bound_s).html


def _tone(row: QueryChange) -> str:
    return {"breached": "bad", "at_risk": "watch", "unknown": "watch"}.get(row.after_state, "")


def _change(row: QueryChange) -> float:
    return (row.after_s or 0.0) - (row.before_s or 0.0)


def _change_words(row: QueryChange) -> SafeString | str:
    change = _change(row)
    if row.before_s is None or row.after_s is None:
        return MISSING
    if abs(change) < _CHANGED_S:
        return Quantity("0", "s").html
    quantity = seconds(change)
    return Quantity(f"+{quantity.text}" if change > 0 else quantity.text, quantity.unit).html


def _state(row: QueryChange) -> SafeString:
    return expected_mark(row.after_state, "" if row.before_state == row.after_state else _turned(row))


def _turned(row: QueryChange) -> str:
    """Said where the state changes."""
    return {
        "holds": "Would hold again",
        "breached": "Would be late",
        "at_risk": "Would be at risk",
        "unknown": "Would not be known",
    }.get(row.after_state, "")


# -- moves


def moves_table(request: HttpRequest, slug: str, run: PlacementRun, *, page_size: int) -> Table:
    """In order."""
    rows = [
        Column("batch", "Batch", lambda move: move.batch, num=True),
        Column("made", "Made", _progress, sort="state", csv=lambda move: move.state, css=lambda move: "nw"),
    ]
    return Table(
        request,
        [
            Column("operator", "Operator", partial(_operator, slug), sort="operator", csv=lambda move: move.operator),
            Column("number", "Order", lambda move: move.number, sort="number", num=True),
            Column("kind", "What", lambda move: move.get_kind_display(), sort="kind", csv=lambda move: move.kind),
            Column("from", "From", lambda move: where_words(move.before), css=lambda move: "nw"),
            Column("to", "To", lambda move: where_words(move.after), css=lambda move: "nw"),
            Column("size", "State", _state_bytes, sort="state_bytes", csv=lambda move: move.state_bytes, num=True),
            Column("duration", "Takes", _duration, sort="duration_s", csv=lambda move: move.duration_s, num=True),
            Column("bump", "Delays", _pause, sort="bump_s", csv=lambda move: move.bump_s, num=True),
            Column("why", "Why", _why, csv=lambda move: move.why, full=True),
            *(rows if run.batches else []),
        ],
        run.moves.all(),
        caption="Moves in order",
        default_sort="number",
        search=["operator", "why"],
        search_label="Operator or reason",
        page_size=page_size,
        file_name=f"moves-{str(run.pk)[:8]}",
        empty={"icon": "ok", "title": "Nothing to move", "text": "What runs now is the best placement that was found."},
    )


def where_words(parts: Sequence[Any]) -> str:
    """Core 1 of n04, or 60% on core 1 of n04, 40% on core 0 of n05."""
    replicas = [Replica(**part) for part in parts]
    if not replicas:
        return "nowhere"
    if len(replicas) == 1 and replicas[0].fraction >= 1:
        return _server(replicas[0])
    return ", ".join(f"{percent(replica.fraction)} on {_server(replica)}" for replica in replicas)


def _server(replica: Replica) -> str:
    return server_words(f"{replica.node}#{replica.core}")


def _operator(slug: str, move: PlacementMove) -> SafeString:
    url = reverse("pages:query", args=[slug, move.query])
    name = move.operator.removeprefix(f"{move.query}/")
    link = '<span class="pair"><a class="name" href="{}">{}</a><small>{}</small></span>'
    return format_html(link, url, name, move.query)


def _state_bytes(move: PlacementMove) -> SafeString | str:
    return "none" if not move.state_bytes else bytes_size(move.state_bytes).html


def _duration(move: PlacementMove) -> SafeString:
    return seconds(move.duration_s).html


def _pause(move: PlacementMove) -> SafeString | str:
    if move.bump_s < _CHANGED_S:
        return "nobody"
    delay = seconds(move.bump_s).html
    return format_html('<span class="pair"><span>+{}</span><small>{}</small></span>', delay, move.bump_query)


def _why(move: PlacementMove) -> SafeString:
    return format_html('<span class="finding">{}</span>', move.why)


def _progress(move: PlacementMove) -> SafeString | str:
    return _PROGRESS[MoveState(move.state)](move)


def _when(mark: SafeString, move: PlacementMove) -> SafeString:
    return format_html('<span class="pair">{}<small>{}</small></span>', mark, time_tag(move.applied_at))


_PROGRESS = {
    MoveState.PENDING: lambda move: format_html('<span class="muted">{}</span>', "not yet"),
    MoveState.DONE: lambda move: _when(state_mark("applied", "Moved"), move),
    MoveState.UNDONE: lambda move: _when(state_mark("undone", "Moved back"), move),
    MoveState.SKIPPED: lambda move: format_html('<span class="muted">{}</span>', "not made"),
}
