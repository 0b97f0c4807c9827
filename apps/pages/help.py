"""Help: the glossary, the guides, and the API's entry page."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from apps.core.reach import AskedOn
from apps.pages.base import Page
from apps.ui.marks import EVIDENCE, STATES, VERDICTS

__all__ = ["ApiPage", "GuidePage", "HelpPage"]

_VERDICTS = {
    "admit": "Every objective holds, its own and every neighbour's.",
    "admit_with_changes": "It holds with the changes shown, such as another placement.",
    "queue": "It does not fit now, but a later start within its longest time in queue passes.",
    "review": "A person decides: an interval exceeds an objective, or the verdict rests on assumed statistics.",
    "reject": "An objective would be missed, and no allowed change prevents it.",
}
_STATES = {
    "holds": "What is measured and the whole interval of the estimate are within the objective.",
    "at_risk": "The upper end of the estimate's interval is above the objective, or the estimate is, but what is "
    "measured is not.",
    "breached": "What was measured lately is above the objective.",
    "expected_breached": "The estimate is above the objective, or never catches up; nothing that counts was measured.",
    "unknown": "Nobody knows whether it holds: its chain cannot be observed and nothing was measured, nothing comes "
    "out in the horizon, the cost of an event is not told, statistics cover too little time, or nobody knows how much "
    "higher it ends under the policies of its nodes. What an "
    "event meets by what is known is within the objective.",
    "none": "The query has no objective.",
}
_EVIDENCE = {
    "assumed": "Entered by a person.",
    "predicted": "Computed by a model.",
    "measured": "Counted on a running system.",
    "unknown": "It runs, and nothing tells what an event costs it: what rests on it is for a person.",
    "never_ran": "Predicted by a model of a query that nobody has seen run, with an interval.",
}
_WORDS = (
    ("Query", "A continuous query: operators that read streams and never end."),
    ("Source", "The origin of events. Its arrivals give the number of events in each subinterval."),
    ("Operator", "A part of a query that processes events, placed on a core of a node."),
    ("Selectivity", "Output events of an operator per input event."),
    ("Cycles per event", "CPU cycles an operator spends on one event."),
    (
        "Node, core, capacity",
        "A machine, one of its processors, and the cycles per second that it offers to queries.",
    ),
    ("Subinterval", "The step in which load is counted. Arrivals are kept four times finer."),
    ("Load", "Cycles that events of a subinterval need on a core, as a share of its capacity."),
    ("Excess", "Work that waits because load was above capacity, in seconds to clear it."),
    ("Mace", "Maximum cumulative excess: the most work that waits on any core. It bounds the latency of events."),
    ("Flow", "The same by stimulus time: the latency of the events that arrived in a subinterval."),
    ("Objective", "The allowed latency of a query: worst, mean, or a quantile such as p99, and a bound in seconds."),
    (
        "Headroom",
        "Objective minus the larger of measurement and estimate. Its share of the objective is comparable between "
        "queries.",
    ),
    (
        "Sustains, rate headroom",
        "The largest rate at which every server that a query loads keeps up, and how much more that is than now. In "
        "lists: until a server is full or its objective breaks, whichever is first.",
    ),
    ("Measured", "The objective's statistic of the results of the last ten minutes. It decides before the estimate."),
    (
        "Connection",
        "An engine that runs elsewhere, such as Flink. Its jobs are queries here, with statistics from differences of "
        "its counters over many polls.",
    ),
    ("Incident", "Queries that are late by one cause, from the first to be late until the last is well again."),
    ("Interval", "The range of the estimate at the 90% level, from the batches of its statistics."),
    ("Watermark", "A promise that no earlier record follows. One that passes the end of a window sweeps it."),
    ("Slack", "The time a query can wait without its next window being late. Least slack runs first."),
    (
        "Preview",
        "The verdict on a request, from a snapshot of the cluster. Only a passing preview can be applied.",
    ),
)
_BAR = [("bar", "Estimate"), ("band", "Interval, 90%"), ("objective", "Objective")]


class HelpPage(Page):
    """`/help/`"""

    asked_on = AskedOn.OWN
    template_name = "pages/help/page.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        verdicts = [(key, VERDICTS[key].label, text) for key, text in _VERDICTS.items()]
        states = [(key, STATES[key].label, text) for key, text in _STATES.items()]
        evidence = [(key, EVIDENCE[key].label, text) for key, text in _EVIDENCE.items()]
        return self.page({"verdicts": verdicts, "states": states, "kinds": evidence, "words": _WORDS, "bar_key": _BAR})


class ApiPage(Page):
    """`/help/api/`: how to call Sluice from a program."""

    asked_on = AskedOn.OWN
    template_name = "pages/help/api.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page({})


_DOCS = Path(settings.BASE_DIR) / "docs"
_FILES = {
    ".json": "application/json",
    ".py": "text/plain; charset=utf-8",
    ".sql": "text/plain; charset=utf-8",
    ".yaml": "text/plain; charset=utf-8",
    ".yml": "text/plain; charset=utf-8",
    ".csv": "text/csv; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class GuidePage(Page):
    """`/help/docs/user-guide`, with `.md` or without: a page of the documentation, or a file that one of them names."""

    asked_on = AskedOn.OWN
    template_name = "pages/help/guide.html"

    def get(self, request: HttpRequest, path: str) -> HttpResponse:
        file = _files().get(path) or _files().get(f"{path}.md")
        if file is None:
            raise Http404(f"There is no page {path} in the documentation.")
        if file.suffix in _FILES:
            return HttpResponse(file.read_bytes(), content_type=_FILES[file.suffix])
        title, html = _rendered(file)
        return self.page({"title": title, "html": html})


@cache
def _files() -> dict[str, Path]:
    """Every page and example by its path below `docs/`: what is not listed here cannot be asked for."""
    kinds = {".md", *_FILES}
    return {path.relative_to(_DOCS).as_posix(): path for path in _DOCS.rglob("*") if path.suffix in kinds}


@cache
def _rendered(path: Path) -> tuple[str, SafeString]:
    """Title and HTML of a page. HTML inside the Markdown stays text; the files are the product's own."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parsed = parser.parse(path.read_text())
    heading, tokens = parsed[1], parsed[3:]  # every page begins with its h1, which the frame shows
    for token, text in pairwise(tokens):
        _prepare(token, text)
    html = parser.renderer.render(tokens, parser.options, {})
    # wide tables and code scroll by themselves and can be reached by keyboard
    html = html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
    return heading.content, mark_safe(html.replace("<pre>", '<pre tabindex="0">'))


def _prepare(token: Token, text: Token) -> None:
    """Headings get the anchors that links between pages name."""
    if token.type == "heading_open":
        token.attrSet("id", re.sub(r"[^\w -]", "", text.content.lower()).replace(" ", "-"))
