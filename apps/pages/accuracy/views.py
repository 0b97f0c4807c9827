"""Accuracy of estimates: predicted against measured, coverage of intervals, bias, trust."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from apps.accounts.permissions import signed_in_user
from apps.estimates.choices import RunOrigin
from apps.estimates.models import AccuracyObservation
from apps.estimates.simulations import simulation_request
from apps.estimates.summary import KindAccuracy, OriginAccuracy, QueryAccuracy
from apps.pages.accuracy.calibration import before_after, scaling_words
from apps.pages.accuracy.facts import AccuracyFacts, accuracy_tabs, bias_text
from apps.pages.accuracy.receipts import BoardFacts, receipts_table
from apps.pages.base import ClusterPage
from apps.ui.feedback import toast
from apps.ui.marks import evidence_mark, icon
from apps.ui.numbers import MISSING, count, factor, percent, ratio, seconds, seconds_range
from apps.ui.tables import Column, Table
from apps.ui.times import exact
from engine.measurement.work_bias import MIN_INSTANTS

__all__ = ["AccuracyPage", "PromisesPage", "SimulateNow"]

_CLAIMED = (0.88, 0.92)  # what 90 % intervals are to hold


def observations_table(request: HttpRequest, facts: AccuracyFacts) -> Table:
    """Every interval, newest first."""
    return Table(
        request,
        _columns(facts.cluster.slug),
        facts.rows,
        caption="Intervals",
        default_sort="-at",
        page_size=25,
        file_name=f"accuracy-{facts.cluster.slug}-{facts.origin}",
        empty={"icon": "accuracy", "title": "No run", "text": "No run of what is chosen was scored."},
    )


def queries_table(request: HttpRequest, facts: AccuracyFacts) -> list[dict[str, object]]:
    """By query: what its estimates were like, and how far the next one is trusted."""
    return [_query_line(query, facts) for query in facts.summary.queries]


def _query_line(accuracy: QueryAccuracy, facts: AccuracyFacts) -> dict[str, object]:
    query = request_of(facts, accuracy.query.name)
    return {
        "name": accuracy.query.name,
        "url": reverse("pages:query-statistics", args=[facts.cluster.slug, accuracy.query.name]),
        "choose": query,
        "chosen": facts.query == accuracy.query.name,
        "outcomes": count(accuracy.judged.outcomes),
        "coverage": percent(accuracy.judged.coverage).html,
        "bias": bias_text(accuracy.judged.bias),
        "error": percent(accuracy.judged.median_error).html,
        "trust": MISSING if accuracy.trust_score is None else ratio(accuracy.trust_score),
        "scaled": _scaled(accuracy),
    }


def origins_table(facts: AccuracyFacts) -> list[dict[str, object]]:
    """By origin of the runs: figures of each apart, and whether 90 % means 90 %."""
    return [_origin_line(origin, facts) for origin in facts.by_origin]


def _origin_line(accuracy: OriginAccuracy, facts: AccuracyFacts) -> dict[str, object]:
    intervals = accuracy.intervals
    return {
        "name": accuracy.origin.label,
        "choose": request_of(facts, facts.query, accuracy.origin),
        "chosen": facts.origin == accuracy.origin,
        "runs": count(accuracy.judged.outcomes),
        "queries": count(accuracy.queries),
        "bias": bias_text(accuracy.judged.bias),
        "error": percent(accuracy.judged.median_error).html,
        "coverage": before_after(intervals.coverage_before, intervals.coverage_after),
        "width": before_after(intervals.width_before, intervals.width_after),
        "instants": f"{min(accuracy.instants, accuracy.instants_needed)} of {accuracy.instants_needed}",
        "claim": claim_words(accuracy),
        "last_at": accuracy.last_at,
    }


def claim_words(accuracy: OriginAccuracy) -> str:
    """Whether 90 % intervals held as often as they claim: between 88 and 92 %."""
    shown = accuracy.intervals.coverage_after
    if shown is None:
        return "no interval"
    if accuracy.instants < accuracy.instants_needed:
        return "too few to say"
    if shown < _CLAIMED[0]:
        return "holds too seldom"
    return "as claimed" if shown <= _CLAIMED[1] else "wider than claimed"


def kinds_table(facts: AccuracyFacts) -> list[dict[str, object]]:
    """By kind of operator: work, its bias as learned, and what that would change."""
    return [_kind_line(row) for row in facts.summary.kinds]


def _kind_line(row: KindAccuracy) -> dict[str, object]:
    learned = row.learned
    known = learned.low is not None and learned.high is not None
    interval = f" ({learned.low:.2f} to {learned.high:.2f})" if known else ""
    return {
        "kind": row.kind.capitalize(),
        "expected": row.expected_cps,
        "measured": row.measured_cps,
        "ratio": MISSING if learned.ratio is None else f"{factor(learned.ratio)}{interval}",
        "runs": count(learned.runs),
        "change": _change_words(row),
    }


def _change_words(row: KindAccuracy) -> str:
    """Effect of the bias on an estimate, were it followed."""
    learned = row.learned
    if learned.ratio is None:
        return "nothing: none was estimated"
    if learned.low is None:
        return f"nothing yet: {learned.instants} of {MIN_INSTANTS} instants"
    if not learned.is_proven:
        return "nothing: within 5% or not proven"
    more = learned.ratio > 1.0
    return f"work of {row.kind}s {percent(abs(learned.ratio - 1.0))} {'more' if more else 'less'}"


def request_of(facts: AccuracyFacts, query: str, origin: str = "") -> str:
    """The present choice, of one query, and of another origin where one is given."""
    kept = {"origin": origin or facts.origin.value, "span": facts.span, "evidence": facts.evidence, "query": query}
    return "?" + "&".join(f"{name}={value}" for name, value in kept.items() if value)


def _scaled(accuracy: QueryAccuracy) -> str:
    row = accuracy.calibration
    if row is None or not row.scope:
        return f"{row.own_runs if row else 0} of 20 runs"
    return scaling_words(row.lower, row.upper)


def _columns(slug: str) -> list[Column]:
    def query(row: AccuracyObservation) -> SafeString:
        url = reverse("pages:query-estimates", args=[slug, row.query.name])
        return format_html('<a class="name" href="{}">{}</a>', url, row.query.name)

    return [
        Column("query", "Query", query, sort="query__name", csv=lambda row: row.query.name),
        Column(
            "at",
            "Measured",
            _moment,
            sort="starts_at",
            csv=lambda row: row.starts_at,
            high_first=True,
        ),
        Column(
            "expected",
            "Estimate",
            lambda row: seconds(row.expected_s, apart_from=row.observed_s).html,
            sort="expected_s",
            csv=lambda row: row.expected_s,
            num=True,
        ),
        Column("interval", "Interval, 90%", _interval, csv=lambda row: row.high_s, num=True, short="Interval"),
        Column(
            "observed",
            "Latency",
            lambda row: seconds(row.observed_s, apart_from=row.expected_s).html,
            sort="observed_s",
            csv=lambda row: row.observed_s,
            num=True,
        ),
        Column("error", "Error", _error, csv=lambda row: row.error_s, num=True),
        Column("held", "Interval held", _held, sort="covered", csv=_held_csv, short="Held"),
        Column(
            "factor", "Scaled, lower and upper", _factors, sort="upper_factor", csv=_factors, num=True, short="Scaled"
        ),
        Column("windows", "Windows", _windows, sort="windows", csv=lambda row: row.windows, num=True),
        Column("evidence", "Evidence", lambda row: evidence_mark(row.evidence), csv=lambda row: row.evidence),
    ]


def _moment(row: AccuracyObservation) -> Any:
    """With its seconds: intervals are half minutes."""
    at, local = row.starts_at, timezone.localtime(row.starts_at)
    day = "" if local.date() == timezone.localdate() else f"{local.day} {local:%b}, "
    return format_html(
        '<time datetime="{}" title="{}">{}{}</time>', at.isoformat(), exact(at), day, f"{local:%H:%M:%S}"
    )


def _interval(row: AccuracyObservation) -> Any:
    return MISSING if row.high_s is None else seconds_range(row.low_s, row.high_s, apart_from=row.observed_s).html


def _error(row: AccuracyObservation) -> Any:
    share = row.error_s / row.observed_s if row.observed_s > 0.0 else None
    if share is None:
        return MISSING
    sign = "+" if share > 0 else "\u2212" if share < 0 else ""
    return format_html("{}{}", sign, percent(abs(share)).html)


def _held(row: AccuracyObservation) -> Any:
    if row.disturbed:
        title = f"The stream processor was {row.get_disturbed_display()}: the interval counts for nothing"
        return format_html('<span class="muted" title="{}">left out: {}</span>', title, row.get_disturbed_display())
    if row.set_aside:
        title = "A person said why a verdict was wrong, and that what was measured then says nothing of estimates"
        return format_html('<span class="muted" title="{}">set aside</span>', title)
    if row.covered is None:
        return MISSING
    mark, tone, word = ("ok", "ok", "held") if row.covered else ("bad", "bad", "missed")
    return format_html('<span class="st">{}{}</span>', icon(mark, tone), word)


def _held_csv(row: AccuracyObservation) -> Any:
    if row.disturbed:
        return f"left out: {row.get_disturbed_display()}"
    return "set aside" if row.set_aside else row.covered


def _factors(row: AccuracyObservation) -> str:
    if row.lower_factor == row.upper_factor == 1.0:
        return "as stated"
    return f"{factor(row.lower_factor)}, {factor(row.upper_factor)}"


def _windows(row: AccuracyObservation) -> Any:
    if not row.left_out:
        return count(row.windows)
    return format_html('{} <small class="muted">{} left out</small>', count(row.windows), row.left_out)


class AccuracyPage(ClusterPage):
    """`/c/<slug>/accuracy/`; `?origin=…&query=…&span=…&evidence=…` choose what is judged."""

    template_name = "pages/accuracy/page.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        facts = AccuracyFacts(self.cluster, request.GET)
        table = observations_table(request, facts)
        context = {
            "facts": facts,
            "table": table,
            "origins": origins_table(facts),
            "queries": queries_table(request, facts),
            "kinds": kinds_table(facts),
            "tabs": accuracy_tabs(slug, "estimates"),
        }
        return self.page(context)


class PromisesPage(ClusterPage):
    """`/c/<slug>/accuracy/promises/`; `?span=…&after=…&outcome=…` choose what is counted and listed."""

    template_name = "pages/accuracy/promises.html"

    def get(self, request: HttpRequest, slug: str) -> HttpResponse:
        facts = BoardFacts(self.cluster, request.GET)
        table, tabs = receipts_table(request, facts), accuracy_tabs(slug, "promises")
        return self.page({"facts": facts, "table": table, "tabs": tabs, "topic": f"promises:{slug}"})


class SimulateNow(ClusterPage):
    """POST: score the estimate of what runs by simulations of it."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        simulation_request(cluster=self.cluster, user=signed_in_user(request))
        toast(request, f"Simulations of {self.cluster.name} are on their way.")
        return redirect(f"{reverse('pages:accuracy', args=[slug])}?origin={RunOrigin.SIMULATED}")
