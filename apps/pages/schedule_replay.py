"""What another policy would change: recorded arrivals of an agent, run again under each by a worker."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from apps.core.errors import Impossible
from apps.jobs.models import Job
from apps.pages.base import ClusterPage
from apps.pages.schedule_forms import POLICY_NAMES
from apps.pages.schedule_view import policy_said
from apps.refinement.selectors import schedules_of
from apps.scheduling.replaying import Figures, Replay, replay_latest, replay_of, replay_request
from apps.telemetry.models import Agent
from apps.telemetry.selectors import agent_named
from apps.ui.numbers import MISSING, bytes_size, counted, percent, seconds
from engine.klink.settings import POLICIES, ScheduleSettings

__all__ = ["ReplayPanel", "ScheduleReplay"]

_AGAINST = "round-robin"


class ReplayPanel:
    """Policies beside each other; the others are compared with `against`; `in_force` is the agent's now."""

    def __init__(self, found: Replay, against: str, in_force: str = "") -> None:
        self.found = found
        self.against = against if against in found.policies else next(iter(found.policies), against)
        self.in_force = in_force or found.in_force or ScheduleSettings().policy

    @property
    def sentence(self) -> str:
        """`Under Klink results come 0.31 s after their window's end on average, 42% sooner than under round robin.`"""
        now, other = (self.found.policies.get(policy) for policy in (self.in_force, self.against))
        if now is None or other is None:
            return f"{_name(self.in_force).capitalize()} is in force, and not among what was replayed."
        if now.mean_s is None or other.mean_s is None:
            return "No window was swept in what is recorded: nothing can be compared yet."
        if self.in_force == self.against:
            return self._best(now.mean_s)
        mine, name = _name(self.in_force), _name(self.against)
        change = f"{_change(now.mean_s, other.mean_s)} under {name}"
        return f"Under {mine} results come {_after(now.mean_s)}, {change}{_tail(now.p99_s, other.p99_s)}."

    def _best(self, now_s: float) -> str:
        """Of the others, while the one in force is compared with itself."""
        known = {policy: one.mean_s for policy, one in self.found.policies.items() if one.mean_s is not None}
        best = min(known, key=lambda policy: (known[policy], policy != self.in_force))
        if best == self.in_force:
            return f"No other policy would be sooner: results come {_after(now_s)}."
        return f"Under {_name(best)} results would come {_after(known[best])}, {_change(known[best], now_s)} now."

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A line for each policy."""
        return [self._row(policy, one) for policy, one in self.found.policies.items()]

    def _row(self, policy: str, one: Figures) -> dict[str, Any]:
        base = self.found.policies.get(self.against) if policy != self.against else None
        return {
            "policy": policy,
            "name": _name(policy),
            "is_now": policy == self.in_force,
            "mean": seconds(one.mean_s),
            "mean_change": _share(one.mean_s, base.mean_s if base else None),
            "p99": seconds(one.p99_s),
            "p99_change": _share(one.p99_s, base.p99_s if base else None),
            "overflow": percent(one.overflow_share),
            "memory": bytes_size(one.memory_peak_bytes),
        }

    @property
    def policies(self) -> list[tuple[str, str]]:
        """(policy, its name)."""
        return [(policy, _name(policy)) for policy in self.found.policies]

    @property
    def by_query(self) -> list[tuple[str, list[tuple[str, str]]]]:
        """(query, [(mean and p99, policy's name)])."""
        names = sorted({query for one in self.found.policies.values() for query in one.queries})
        return [
            (query, [(_pair(one.queries.get(query)), _name(policy)) for policy, one in self.found.policies.items()])
            for query in names
        ]

    @property
    def basis(self) -> str:
        span = seconds((self.found.until_us - self.found.since_us) / 1e6)
        return (
            f"Arrivals, costs and watermarks of {span} with {counted(self.found.windows, 'window')}, as recorded. "
            "Until a window is done; that results then wait for the end of the epoch comes on top."
        )


def _name(policy: str) -> str:
    return POLICY_NAMES.get(policy, policy)


def _after(latency_s: float) -> str:
    return f"{seconds(latency_s)} after their window's end on average"


def _pair(figures: Figures | None) -> str:
    if figures is None or figures.mean_s is None:
        return MISSING
    return f"{seconds(figures.mean_s)}, {seconds(figures.p99_s)}"


def _share(value: float | None, base: float | None) -> str:
    """`−42%`."""
    if value is None or not base:
        return ""
    share = value / base - 1
    return "the same" if abs(share) < 0.005 else f"{'+' if share > 0 else '−'}{percent(abs(share))}"


def _change(value: float, base: float) -> str:
    """`42% sooner than`."""
    share = value / base - 1 if base else 0.0
    if abs(share) < 0.005:
        return "as soon as"
    return f"{percent(abs(share))} {'later' if share > 0 else 'sooner'} than"


def _tail(value: float | None, base: float | None) -> str:
    """`; p99 is 31% higher`: a mean alone may hide it."""
    if value is None or not base or abs(value / base - 1) < 0.005:
        return ""
    share = value / base - 1
    return f"; p99 is {percent(abs(share))} {'higher' if share > 0 else 'lower'}"


class ScheduleReplay(ClusterPage):
    """`…/schedule/replay/?agent=&against=`: a part of the page Schedule. GET: the newest replay; POST: another one."""

    template_name = "pages/schedule/replay.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        agent = agent_named(self.cluster, request.GET.get("agent", ""))
        return self.part(agent, replay_latest(agent))

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        agent = agent_named(self.cluster, request.POST.get("agent", ""))
        known = schedules_of(self.cluster).get(str(agent.pk))
        settings = known.settings.to_dict() if known is not None else None
        try:
            job = replay_request(agent=agent, schedule=settings, user=request.user)
        except Impossible as refusal:
            return self.part(agent, None, refusal=refusal)
        return self.part(agent, job)

    def part(self, agent: Agent, job: Job | None, **more: Any) -> HttpResponse:
        if not self.request.headers.get("HX-Request"):
            return redirect(f"{reverse('pages:schedule', args=[self.slug])}?agent={agent.name}#replay")
        wanted = self.request.GET.get("against", "")
        against = wanted if wanted in POLICIES else _AGAINST
        found = replay_of(job) if job is not None else None
        panel = ReplayPanel(found, against, policy_said(agent)) if found is not None else None
        return self.page({"agent": agent, "job": job, "panel": panel, **more})
