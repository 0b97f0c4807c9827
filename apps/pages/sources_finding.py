"""The sentence that the Sources page opens with, from its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.pages.agents_flow import processed_share, saved_share
from apps.pages.agents_rows import AgentLine, since
from apps.pages.sources_stream import StreamCard
from apps.refinement.showing import RolloutView
from apps.telemetry.choices import AgentState
from apps.ui.numbers import counted, percent

__all__ = ["SourcesFinding"]

_WRONG = (
    (AgentState.SPOOL, "keeps more than it gets rid of", "keep more than they get rid of"),
    (AgentState.OVERFLOW, "overflows", "overflow"),
)


class SourcesFinding:
    """What agents do for the cluster, and what is wrong or under way."""

    def __init__(self, lines: Sequence[AgentLine], stream: StreamCard, rollout: RolloutView | None = None) -> None:
        self.lines, self.stream, self.rollout = lines, stream, rollout

    @cached_property
    def sentence(self) -> SafeString:
        if not self.lines:
            return SafeString("No agent has joined yet: nothing is collected near the data.")
        return format_html("{} {}", self._done(), self._news())

    def _done(self) -> SafeString:
        reporting = [line for line in self.lines if line.reports]
        flows = [line.flow for line in reporting if line.flow is not None]
        share, saved = processed_share(flows), saved_share(flows)
        many = counted(len(self.lines), "agent")
        who = many if len(reporting) == len(self.lines) else f"{len(reporting)} of {many}"
        one = len(reporting) == 1
        if share is None or saved is None:
            return format_html("{} {}, and none has sent statistics yet.", who, "reports" if one else "report")
        text = "{} {} <b>{}</b> of records before they leave the edge, which saves <b>{}</b> of the bytes."
        return format_html(text, who, "processes" if one else "process", percent(share), percent(saved))

    def _news(self) -> str:
        found = list(self._all_news())
        if not found:
            return "All report, and the stream processor is ready."
        text = ", and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]
        is_name = text.startswith(tuple(line.agent.name for line in self.lines))
        return f"{text if is_name else text[:1].upper() + text[1:]}."

    def _all_news(self) -> Iterator[str]:
        silent = [line for line in self.lines if line.state == AgentState.SILENT]
        if silent:
            who = silent[0].agent.name if len(silent) == 1 else f"{len(silent)} agents"
            verb = "has" if len(silent) == 1 else "have"
            first = min(line.agent.last_seen for line in silent if line.agent.last_seen)
            yield f"{who} {verb} not reported {since(first)}"
        for state, one, many in _WRONG:
            names = [line.agent.name for line in self.lines if line.state == state]
            if names:
                yield f"{names[0]} {one}" if len(names) == 1 else f"{len(names)} agents {many}"
        if not self.stream.is_ready:
            yield f"the stream processor is {self.stream.mark.label.lower()}"
        if self.rollout is not None:
            yield from _rollout_news(self.rollout)


def _rollout_news(rollout: RolloutView) -> Iterator[str]:
    row, name = rollout.rollout, rollout.config
    if rollout.state == "rolled-back":
        yield f"config {name} was rolled back"
    elif rollout.state == "rolling-back":
        yield f"config {name} is being rolled back"
    elif rollout.state in ("canary", "wave", "paused"):
        where = counted(rollout.given, "canary" if row.stage == 0 else "agent").replace("canarys", "canaries")
        yield f"config {name} is {'paused ' if rollout.state == 'paused' else ''}on {where}"
