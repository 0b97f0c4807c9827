"""Help, and the way to the API's documentation."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse

from apps.pages.base import Page
from apps.ui.marks import EVIDENCE, STATES, VERDICTS

__all__ = ["ApiPage", "HelpPage"]

_VERDICTS = {
    "admit": "Every objective holds, its own and every neighbour's.",
    "admit_with_changes": "It holds with the changes shown, such as another placement.",
    "queue": "It does not fit now, but a later start inside the time it may wait passes.",
    "review": "A person decides: an interval reaches over an objective, or the verdict rests on assumed statistics.",
    "reject": "An objective would be missed, and nothing that was allowed mends it.",
}
_STATES = {
    "holds": "The whole interval of the estimate is within the objective.",
    "at_risk": "The estimate is within, the upper end of its interval is over.",
    "breached": "The estimate itself is over.",
    "none": "There is nothing to hold it against.",
}
_EVIDENCE = {
    "assumed": "A person entered it.",
    "predicted": "A model says so.",
    "measured": "Counted on a running system.",
}
_WORDS = (
    ("Query", "A continuous query: operators that read streams and never end."),
    ("Source", "Where events come from. Its arrivals say how many come in each slice of time."),
    ("Operator", "One step of a query, placed on a core of a node."),
    ("Selectivity", "Events an operator gives per event it takes."),
    ("Cycles per event", "CPU cycles an operator spends on one event."),
    (
        "Node, core, capacity",
        "A machine, one of its processors, and the cycles per second it has for queries.",
    ),
    ("Subinterval", "The step in which load is counted. Arrivals are kept four times finer."),
    ("Load", "Cycles that events of a subinterval need on a core, as a share of its capacity."),
    ("Excess", "Work that waits because load was above capacity, in seconds to clear it."),
    ("Mace", "Maximum cumulative excess: the most work that waits on any core. It bounds how late an event may be."),
    ("Flow", "The same by stimulus time: how late the events that came in a slice are when they leave."),
    ("Objective", "How late a query may be: worst, mean, or a quantile such as p99, and a bound in seconds."),
    ("Headroom", "Objective minus estimate. As a share of the objective it compares queries."),
    ("Interval", "Where the estimate may lie, at the 90% level, judged from the batches statistics were taken from."),
    ("Watermark", "A statement that no earlier record comes any more. One that passes a window's end sweeps it."),
    ("Slack", "How much later a query can run without its next window being late. Least slack runs first."),
    (
        "Preview",
        "The verdict on a request, from a snapshot of the cluster. Only a passing preview can be applied.",
    ),
)
_BAR = [("bar", "Estimate"), ("band", "Interval, 90%"), ("objective", "Objective")]


class HelpPage(Page):
    """`/help/`"""

    template_name = "pages/help.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        verdicts = [(key, VERDICTS[key].label, text) for key, text in _VERDICTS.items()]
        states = [(key, STATES[key].label, text) for key, text in _STATES.items()]
        evidence = [(key, EVIDENCE[key].label, text) for key, text in _EVIDENCE.items()]
        return self.page({"verdicts": verdicts, "states": states, "kinds": evidence, "words": _WORDS, "bar_key": _BAR})


class ApiPage(Page):
    """`/help/api/`: how to call Sluice from a program."""

    template_name = "pages/api.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.page({})
