"""One configuration in words: what it sets and holds, its check on recorded traffic, and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.adapting_forms import setting_told
from apps.pages.configs_table import config_badge, made_by
from apps.pages.schedule_forms import schedule_told
from apps.refinement.choices import ConfigState
from apps.refinement.showing import ConfigView, PartView
from apps.ui.numbers import MISSING, bytes_size, count, counted, percent, ratio, seconds, significant
from apps.ui.times import time_tag
from engine.jarvis.settings import SETTINGS

__all__ = ["CheckPanel", "ConfigPanel", "Part", "configs_sentence"]

_MOST_PARTS = 60
_SETTINGS = {field.name for field in SETTINGS.fields}


def configs_sentence(held: Mapping[int, int]) -> str:
    """`46 agents have 2 different configs; 1 has none.`"""
    total, none = sum(held.values()), held.get(0, 0)
    kinds = len([number for number in held if number])
    if not total:
        return "No agent has joined yet; a config tells agents how to adapt and what Spark knows of their operators."
    if not kinds:
        return "No agent has a config yet: all find their load factors by themselves."
    newest = max(held)
    text = f"{counted(held[newest], 'agent')} of {total} {'has' if held[newest] == 1 else 'have'} c-{newest}"
    others = total - none - held[newest]
    text += f", {others} an older one" if others else ""
    return f"{text}{f', {none} none' if none else ''}."


class CheckPanel:
    """What a configuration would have done with recorded epochs."""

    def __init__(self, checked: Mapping[str, Any]) -> None:
        self.checked = checked

    def __bool__(self) -> bool:
        return bool(self.checked)

    @property
    def health(self) -> str:
        return str(self.checked.get("health", ""))

    @property
    def is_worse(self) -> bool:
        return self.health == "worse"

    @property
    def tone(self) -> str:
        return {"good": "ok", "worse": "bad"}.get(self.health, "")

    @property
    def drawing(self) -> str:
        return {"good": "ok", "worse": "reject"}.get(self.health, "unknown")

    @property
    def badge(self) -> str:
        return {"good": "Within the limits", "worse": "Worse than allowed"}.get(self.health, "Nothing to check it on")

    @property
    def reasons(self) -> list[str]:
        return [str(one) for one in self.checked.get("reasons") or []]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A line for each query, before and after."""
        return [self._row(query, one) for query, one in (self.checked.get("queries") or {}).items()]

    def _row(self, query: str, one: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "query": query,
            "agents": one.get("agents"),
            "bytes": f"{bytes_size(one.get('bytes_before'))} → {bytes_size(one.get('bytes_after'))}",
            "bytes_rel": _signed(one.get("bytes_rel")),
            "is_less": (one.get("bytes_rel") or 0.0) < 0,
            "cpu": f"{seconds(one.get('cpu_before_s'))} → {seconds(one.get('cpu_after_s'))}",
            "overflow": f"{_plus(one.get('overflow_pp'))} points",
        }

    @property
    def basis(self) -> str:
        epochs, parts = self.checked.get("epochs") or 0, self.checked.get("parts") or 0
        known = self.checked.get("predicted_parts") or 0
        return f"Replayed on {counted(epochs, 'recorded epoch')} of {known} of {counted(parts, 'part')}."


@dataclass(frozen=True)
class Part:
    """What a configuration holds for a query at an agent."""

    view: PartView

    @property
    def title(self) -> str:
        return f"{self.view.query} at {self.view.agent}"

    @property
    def changes(self) -> list[tuple[str, str, str]]:
        """Of what it holds of the operators; settings are the configuration's."""
        return [row for row in self.view.changes if row[0] not in _SETTINGS]

    @property
    def operators(self) -> list[dict[str, str]]:
        """A line for each, with the evidence behind it."""
        document = self.view.document
        factors = (document.get("plan_prior") or {}).get("load_factors") or []
        return [_operator(one, factors[k] if k < len(factors) else None)
                for k, one in enumerate(document.get("operators") or [])]  # fmt: skip

    @property
    def fitted(self) -> str:
        """`Seen at 40 to 120 records an epoch and 0.1 to 0.4 cores.`"""
        found = self.view.document.get("fitted")
        if not found:
            return ""
        (low, high), (least, most) = found["records"], found["cores"]
        cores = f"{ratio(least)} to {ratio(most)} cores" if least != most else f"{ratio(least)} cores"
        return f"Seen at {count(low)} to {count(high)} records an epoch and {cores}."


def _operator(one: Mapping[str, Any], factor: float | None) -> dict[str, str]:
    error, groups = one.get("standard_error"), one.get("groups")
    cost = str(seconds(one.get("cost_s")))
    return {
        "id": str(one.get("id")),
        "cost": f"{cost} ± {percent(error)}" if error is not None else cost,
        "group_cost": str(seconds(one.get("group_cost_s"))) if one.get("group_cost_s") is not None else MISSING,
        "groups": count(groups) if groups is not None else MISSING,
        "relay": significant(one.get("relay")),
        "records": count(one.get("records")),
        "factor": ratio(factor),
    }


def _plus(value: Any) -> str:
    number = float(value or 0.0)
    text = significant(abs(number)) if abs(number) >= 0.005 else "0"
    return text if text == "0" else f"{'+' if number > 0 else '−'}{text}"


def _signed(share: Any) -> str:
    if share is None:
        return MISSING
    text = str(percent(abs(share)))
    return text if text == "0%" else f"{'+' if share > 0 else '−'}{text}"


def _scheduling(name: str, before: str, after: str) -> tuple[str, str, str]:
    """A setting of scheduling as people read it."""
    label, now = schedule_told(name, after)
    return label, schedule_told(name, before)[1], now


class ConfigPanel:
    """A configuration as its page shows it."""

    def __init__(self, view: ConfigView, held: int, agents: int) -> None:
        self.view, self.held, self.agents = view, held, agents
        self.config = view.config
        self.check = CheckPanel(view.config.checked)

    @property
    def badge(self) -> SafeString:
        return config_badge(self.config, "badge")

    @property
    def sentence(self) -> SafeString:
        made = format_html("Made by {} {}", made_by(self.config), time_tag(self.config.created_at))
        where = f"on {self.held} of {counted(self.agents, 'agent')}" if self.held else "on no agent"
        words = format_html("{}. ", self.config.words.rstrip(".")) if self.config.words else ""
        return format_html("{}{}, now {}.", words, made, where)

    @property
    def settings(self) -> list[tuple[str, str, str]]:
        """(what, before, now) of what it sets."""
        rows = []
        for name, before, after in self.view.settings:
            label, now = setting_told(name, after)
            rows.append((label, setting_told(name, before)[1], now))
        return [*rows, *(_scheduling(*change) for change in self.view.schedule)]

    @property
    def schedules(self) -> list[tuple[str, list[tuple[str, str, str]]]]:
        """(agent, [(what, before, now)]) of how agents share their cores by it."""
        return [(one.agent, [_scheduling(*change) for change in one.changes]) for one in self.view.schedules]

    @property
    def parts(self) -> list[Part]:
        return [Part(one) for one in self.view.parts[:_MOST_PARTS]]

    @property
    def left_out(self) -> int:
        return max(0, len(self.view.parts) - _MOST_PARTS)

    @property
    def can_start(self) -> bool:
        return self.view.rollout is None and self.config.state in (ConfigState.DRAFT, ConfigState.REFUSED)

    @property
    def needs_force(self) -> bool:
        return self.config.state == ConfigState.REFUSED
