"""What would follow for each of several agents, reckoned before anything is changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from apps.fleet.models import Cluster
from apps.pages.agents_predict import Forecast, operator_cores
from apps.pages.agents_rows import AgentLine, factors_of
from apps.refinement.models import Learned, Rollout
from apps.telemetry.adapting import fixed
from apps.telemetry.epochs import EpochRow, epochs_since
from apps.telemetry.models import Assignment
from apps.ui.numbers import bytes_size, counted, percent, ratio

__all__ = ["BulkPlan", "BulkQuery", "bulk_queries"]

_EPOCHS_S = 180.0  # as long as an agent's own page looks back


@dataclass(frozen=True)
class BulkQuery:
    """A live query at those of the chosen agents that run it."""

    name: str
    parts: Sequence[Assignment]

    @property
    def operators(self) -> list[tuple[str, float | None]]:
        """(id, load factor where all agents have the same)."""
        rows = [factors_of(part) for part in self.parts]
        columns = zip(*rows, strict=True)
        return [
            (column[0][0], column[0][1] if len({value for _, value in column}) == 1 else None) for column in columns
        ]


def bulk_queries(lines: Sequence[AgentLine]) -> list[BulkQuery]:
    """Queries that some of these agents run, by name."""
    found: dict[str, list[Assignment]] = {}
    for line in lines:
        for part in line.assignments:
            found.setdefault(part.live.query.name, []).append(part)
    return [BulkQuery(name, parts) for name, parts in sorted(found.items())]


class BulkPlan:
    """The preview: a line for each agent, and a sentence for all."""

    def __init__(
        self,
        cluster: Cluster,
        what: str,
        lines: Sequence[AgentLine],
        form: Any,
        query: BulkQuery | None,
        rollout: Rollout | None,
    ) -> None:
        self.cluster, self.what, self.lines, self.form = cluster, what, lines, form
        self.query, self.rollout = query, rollout

    @property
    def refusal(self) -> str:
        """Why there is nothing to do."""
        if not self.lines:
            return "No agent is chosen. Tick some in the list first."
        if self.what == "canary" and self.rollout is None:
            return "No rollout takes canaries now: none waits or is at its canaries."
        if self.what == "factors" and self.query is None:
            return "None of these agents runs a live query."
        return ""

    @cached_property
    def rows(self) -> list[tuple[AgentLine, Forecast]]:
        """(agent, what would follow) once the form is filled in."""
        learned: dict[Any, dict[int, Mapping[str, Any]]] = {}
        for row in Learned.objects.filter(agent__in=[line.agent.pk for line in self.lines]):
            learned.setdefault(row.agent_id, {})[row.live_id] = row.document
        now_s = time.time()
        since = {
            str(one.agent.pk): round((now_s + (one.agent.clock_offset_s or 0.0) - _EPOCHS_S) * 1e6)  # by its clock
            for one in self.lines
        }
        epochs = epochs_since(since)
        return [
            (line, self._forecast(line, learned.get(line.agent.pk, {}), epochs.get(str(line.agent.pk), {})))
            for line in self.lines
        ]

    def _forecast(
        self,
        line: AgentLine,
        learned: Mapping[int, Mapping[str, Any]],
        epochs: Mapping[str, Sequence[EpochRow]],
    ) -> Forecast:
        flows = line.flow.queries if line.flow is not None else {}
        parts = [(one, flows.get(one.live.query_id), learned.get(one.live_id)) for one in line.assignments]
        used, own = line.agent.heartbeat.get("cpu_cores"), operator_cores(line.assignments, epochs)
        if self.what == "budget":
            return Forecast(self.form.cleaned_data["budget_cores"], parts, used_cores=used, operator_cores=own)
        settings = {}
        if self.what == "factors" and self.query is not None:
            settings = {part.pk: fixed(self.form.values) for part in self.query.parts}
        return Forecast(line.agent.budget_cores, parts, used_cores=used, operator_cores=own, settings=settings)

    @property
    def table(self) -> list[tuple[AgentLine, dict[str, str], bool]]:
        """(agent, what stands in its cells, would it overflow)."""
        return [(line, _cells(found), found.overflow > 0.005) for line, found in self.rows]

    @property
    def words(self) -> str:
        """All of them together."""
        known = [found for _, found in self.rows if found.parts]
        if not known:
            return "What would follow can be reckoned once their operators have taken records."
        now, then = sum(one.sent_now for one in known), sum(one.sent_then for one in known)
        over = sum(one.overflow > 0.005 for one in known)
        text = f"Together they would send {bytes_size(then, '/s')} instead of {bytes_size(now, '/s')}."
        if over:
            text += f" {counted(over, 'agent')} would overflow: what does not fit is sent on unprocessed."
        missing = len(self.rows) - len(known)
        return text + (f" Of {counted(missing, 'agent')} nothing is known yet." if missing else "")


def _cells(found: Forecast) -> dict[str, str]:
    if not found.parts:
        return {}
    return {
        "sent": f"{bytes_size(found.sent_now, '/s')} → {bytes_size(found.sent_then, '/s')}",
        "saved": f"{percent(found.saved_now)} → {percent(found.saved_then)}",
        "cpu": f"{ratio(found.cpu_now)} → {ratio(found.cpu_then)}",
        "overflow": str(percent(found.overflow)) if found.overflow > 0.005 else "none",
    }
