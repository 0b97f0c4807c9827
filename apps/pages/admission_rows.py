"""A decision's parts as its page shows them: choices, effects, reasons, nodes, placement, changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.objectives import objective_text, statistic_text
from apps.ui.marks import STATES
from apps.ui.numbers import MISSING, Quantity, cps, percent, ratio, seconds
from apps.ui.pictures import before_after_bar, load_bar

__all__ = [
    "ChoiceRow",
    "EffectRow",
    "NodeRow",
    "PlaceRow",
    "ReasonRow",
    "change_words",
    "choice_rows",
    "effect_rows",
    "node_rows",
    "place_rows",
    "reason_rows",
    "split_sentence",
]

_SEVERITY = {"bad": ("bad", "bad"), "watch": ("watch", "watch"), "ok": ("ok", "ok"), "info": ("info", "muted")}
_CHANGED_S = 0.005  # a smaller change would be written as 0 s


def split_sentence(text: str) -> tuple[str, str]:
    """`x would miss its objective: its worst case …` as consequence and reason, the reason as a sentence."""
    first, _, rest = text.partition(": ")
    if rest.startswith(("its ", "the ")):  # names are written as they are
        rest = rest[:1].upper() + rest[1:]
    return first, f"{rest}." if rest else ""


@dataclass(frozen=True)
class ChoiceRow:
    """A choice that would pass."""

    id: str
    title: str
    detail: str
    verdict: str
    statistic: str
    estimate: Quantity
    bound: Quantity


def choice_rows(decision: Mapping[str, Any]) -> list[ChoiceRow]:
    """In the engine's order."""
    rows = []
    for choice in decision.get("choices") or []:
        own = next((effect for effect in choice["effects"] if effect["is_candidate"]), {})
        estimate = _latency(own, "after_s") if own else seconds(choice["estimate_s"])
        words = statistic_text(own.get("statistic", "worst"))
        bound = seconds(own.get("bound_s"))
        rows.append(
            ChoiceRow(choice["id"], choice["title"], choice["detail"], choice["verdict"], words, estimate, bound)
        )
    return rows


@dataclass(frozen=True)
class EffectRow:
    """A query before and after."""

    effect: Mapping[str, Any]
    url: str

    @property
    def name(self) -> str:
        return str(self.effect["query"])

    @property
    def is_candidate(self) -> bool:
        return bool(self.effect["is_candidate"])

    @property
    def state(self) -> str:
        """Its mark; of a candidate that fits nowhere nothing is known."""
        return str(self.effect["after_state"]) if self.effect["after_s"] is not None else "no_estimate"

    @property
    def tone(self) -> str:
        return {"breached": "bad", "at_risk": "watch"}.get(self.state, "")

    @property
    def objective(self) -> SafeString:
        """Its bound; the statistic only where it is not the worst case."""
        if self.effect["statistic"] == "worst" and self.effect["bound_s"]:
            return seconds(self.effect["bound_s"]).html
        return objective_text(self.effect["statistic"], self.effect["bound_s"])

    @property
    def shares(self) -> str:
        """Nodes it has in common with the candidate; for the candidate those it goes to."""
        return _few(self.effect["shares"])

    @property
    def bar(self) -> SafeString:
        return before_after_bar(self.effect["before_s"], self.effect["after_s"], self.effect["bound_s"], self.name)

    @property
    def before(self) -> SafeString:
        return _latency(self.effect, "before_s").html

    @property
    def after(self) -> SafeString:
        return _latency(self.effect, "after_s").html

    @property
    def is_changed(self) -> bool:
        return abs(self.effect["change_s"] or 0.0) >= _CHANGED_S

    @property
    def change(self) -> SafeString | str:
        if self.effect["change_s"] is None:
            return MISSING
        if not self.is_changed:
            return Quantity("0", "s").html
        found = seconds(self.effect["change_s"])
        return Quantity(f"+{found.text}" if self.effect["change_s"] > 0 else found.text, found.unit).html

    @property
    def words(self) -> str:
        """The state after, in a word or two."""
        before, after = self.effect["before_state"], self.state
        if after == "breached":
            return "Already over" if before == "breached" else "Breaches"
        return STATES[after].label


def effect_rows(slug: str, decision: Mapping[str, Any]) -> list[EffectRow]:
    """The candidate first, then its neighbours, those that change most on top."""
    rows = [
        EffectRow(effect, reverse("pages:query", args=[slug, effect["query"]]))
        for effect in decision.get("effects") or []
    ]
    return sorted(rows, key=lambda row: (not row.is_candidate, -abs(row.effect["change_s"] or 0.0), row.name))


@dataclass(frozen=True)
class ReasonRow:
    """A finding; `bar` draws a load that is above capacity."""

    drawing: str
    tone: str
    title: str
    text: str
    bar: SafeString


def reason_rows(decision: Mapping[str, Any]) -> list[ReasonRow]:
    """The most serious first."""
    rows = []
    for reason in decision.get("reasons") or []:
        drawing, tone = _SEVERITY[reason["severity"]]
        title, text = split_sentence(reason["message"])
        is_load = reason["code"] == "node_overloaded"
        bar = _overload_bar(reason["value"], tone) if is_load else SafeString("")
        rows.append(ReasonRow(drawing, tone, title, text, bar))
    return rows


def _overload_bar(load: float, tone: str) -> SafeString:
    """A load against capacity, which is marked by a line."""
    scale = max(load, 1.0)
    return format_html(
        '<div class="mini overload" role="img" aria-label="Load {} of capacity">'
        '<i class="{}" style="width:{}%"></i><b style="left:{}%"></b></div>',
        ratio(load),
        "over" if tone == "bad" else "watch",
        f"{100 * load / scale:.0f}",
        f"{99 / scale:.0f}",
    )


@dataclass(frozen=True)
class NodeRow:
    """A node's peak load before and after."""

    name: str
    url: str
    before: SafeString | str
    after: SafeString
    is_changed: bool


def node_rows(slug: str, decision: Mapping[str, Any]) -> list[NodeRow]:
    """The busiest after it first. A node that would be added has no page yet."""
    nodes = sorted(decision.get("nodes") or [], key=lambda node: -(node["after_peak"] or 0.0))
    rows = []
    for node in nodes:
        before, after = node["before_peak"], node["after_peak"]
        url = reverse("pages:node", args=[slug, node["node"]]) if before is not None else ""
        was = load_bar(before) if before is not None else "new"
        rows.append(NodeRow(node["node"], url, was, load_bar(after), ratio(before) != ratio(after)))
    return rows


@dataclass(frozen=True)
class PlaceRow:
    """Where an operator goes."""

    operator: str
    query: str
    where: str
    note: str


def place_rows(query: str, decision: Mapping[str, Any], asked: Mapping[str, str]) -> list[PlaceRow]:
    """The query's operators in their order, then operators of others that would be moved."""
    rows = []
    for identity, replicas in (decision.get("placement") or {}).items():
        owner, _, name = identity.partition("/")
        where = ", ".join(_server(part) for part in replicas)
        wanted = asked.get(name) or asked.get(identity) if owner == query else None
        note = "moved" if owner != query else ""
        if wanted:
            is_kept = any(wanted in {part["node"], f"{part['node']}#{part['core']}"} for part in replicas)
            note = "as asked" if is_kept else f"asked for {wanted}"
        rows.append(PlaceRow(name, owner, where, note))
    return rows


def change_words(change: Mapping[str, Any]) -> str:
    """What a change of a choice does, as a phrase."""
    kind = change["kind"]
    if kind == "scale_rate":
        return f"{change['query']} reads {percent(change['share'])} of its events; its sources must hold back the rest"
    if kind == "add_node":
        cores = change.get("cores", 1)
        size = f"{cores} core{'s' if cores != 1 else ''} of {cps(change['capacity_cps'])}"
        return f"the node {change['id']} is added, like {change['like']}, with {size}"
    if kind == "objective":
        bound = f"{statistic_text(change['statistic'])} at most {seconds(change['bound_s'])}"
        return f"the objective of {change['query']} becomes {bound}"
    if kind == "move":
        return f"{change['operator']} goes to {change['node']}#{change.get('core', 0)}"
    if kind == "start_at":
        return f"it starts {seconds(change['seconds'])} after the preview"
    return kind.replace("_", " ")


def _latency(effect: Mapping[str, Any], key: str) -> Quantity:
    under = effect.get("resolution_s")
    return seconds(effect[key], apart_from=effect["bound_s"], under=under)


def _server(part: Mapping[str, Any]) -> str:
    share = f" ({percent(part['fraction'])})" if part["fraction"] < 1 else ""
    return f"{part['node']}#{part['core']}{share}"


def _few(names: Sequence[str]) -> str:
    """One or two names whole, of more the first and how many follow: the column is narrow."""
    return f"{names[0]} +{len(names) - 1}" if len(names) > 2 else ", ".join(names) or "none"
