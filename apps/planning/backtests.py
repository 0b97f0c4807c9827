"""Backtests: recorded periods replayed through another policy of admission and placement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from django.utils import timezone
from rest_framework import serializers

from apps.accounts.models import User
from apps.core.errors import Fault, Impossible, Malformed, fault_count, from_engine
from apps.core.filters import ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.rest.api import StrictSerializer
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField
from apps.jobs.models import JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.jobs.viewsets import RunDeletion, RunRowSerializer, RunViewSet, describe_create
from apps.planning.backtest_records import recorded_reaches, segment_grid
from apps.planning.choices import ANSWER_STATES, RequestTiming
from apps.planning.models import BacktestRun
from apps.policies.selectors import policy_of
from engine.backtest.policy import read_policy
from engine.backtest.result import BacktestResult
from engine.errors import EngineError, InfeasibleError
from engine.policies.rules import ADMIT

__all__ = ["BACKTEST", "BacktestFilter", "BacktestViewSet", "policy_default"]

WEEK = timedelta(days=7)
MAX_DAYS = 366
_FIRST = datetime(1970, 1, 1, tzinfo=UTC)


class BacktestKind(RunKind[BacktestRun]):
    """Replay of a cluster's records through another policy."""

    model, job, name, path = BacktestRun, JobKind.BACKTEST, "backtest", "backtests"
    topics = ("backtest", "backtests")
    bulk = ("result",)
    columns = ("result", "facts", "duration_s")
    retention = timedelta(days=180)

    def title(self, run: BacktestRun) -> str:
        return f"Backtest of {run.cluster.slug}"

    def page(self, run: BacktestRun) -> str:
        return f"/c/{run.cluster.slug}/backtests/{run.pk}/"

    def create(
        self,
        *,
        cluster: Cluster,
        user: User | None,
        since: datetime | None = None,
        until: datetime | None = None,
        policy: Mapping[str, object] | None = None,
        ask: str = RequestTiming.RECORDED,
    ) -> BacktestRun:
        """Write a backtest, not sent to a worker yet.

        Parameters
        ----------
        since, until : datetime, optional
            The period; by default the week up to now. Only what records reach of it is replayed.
        policy : mapping, optional
            As `engine.backtest.policy` reads it; fields left out are as the cluster decides now.
        ask : str
            A value of `RequestTiming`.

        Raises
        ------
        Malformed
            With every fault of the policy and the period.
        Impossible
            Nothing was recorded in the period.
        """
        end = until or timezone.now()
        begin = since or max(end, _FIRST + WEEK) - WEEK
        faults = _period_faults(begin, end)
        if ask not in RequestTiming.values:
            faults.append(Fault("ask", f"ask is {ask!r}; allowed: {', '.join(RequestTiming.values)}"))
        rules = None
        try:
            rules = read_policy({**policy_default(cluster), **(policy or {})})
        except EngineError as error:
            faults += from_engine(error).faults
        if faults or rules is None:
            raise Malformed(f"The backtest has {fault_count(faults)}; first: {faults[0].message}", faults)
        _require_records(cluster, begin, end)
        asked = {"since": begin, "until": end, "policy": rules.to_dict(), "ask": ask}
        return BacktestRun.objects.create(cluster=cluster, requested_by=user, **asked)

    def answer(self, run: BacktestRun, report: JobReporter) -> None:
        from apps.planning.backtest_period import load_period  # and with it the engine, which only workers load
        from engine.backtest.comparison import backtest_policies

        report(0.0, "Reading what was recorded")
        grid = segment_grid(recorded_reaches(run.cluster), run.since, run.until)
        if grid is None:
            message = "the records of the period are gone"
            raise InfeasibleError(f"No backtest: {message}", [Fault("since", message)])
        period = load_period(run, grid)
        started = time.perf_counter()
        progress = lambda share, step: report(0.02 + 0.97 * share, step)  # noqa: E731
        result = backtest_policies(period, read_policy(run.policy), progress)
        run.result, run.facts, run.duration_s = result.to_dict(), _facts(result), time.perf_counter() - started

    def facts(self, run: BacktestRun) -> Mapping[str, object]:
        return {"backtest": str(run.pk), **run.facts}


BACKTEST = register(BacktestKind())


def policy_default(cluster: Cluster) -> dict[str, str]:
    """The cluster's own policy for queries at risk and for assumed statistics."""
    evidence = policy_of(cluster).evidence
    return {
        "at_risk": "admit" if evidence.at_risk == ADMIT else "review",
        "assumed": "admit" if evidence.assumed == ADMIT else "review",
    }


def _facts(result: BacktestResult) -> Mapping[str, object]:
    """The answer in a few numbers, for lists."""
    return {
        "headline": result.headline,
        "asked": result.tested.asked,
        "admitted": result.tested.admitted,
        "admitted_recorded": result.recorded.admitted,
        "seconds_over": result.tested.seconds_over,
        "seconds_over_recorded": result.recorded.seconds_over,
        "moves": result.tested.moves,
        "segments": result.segments,
        "width_s": result.width_s,
        "since_s": result.since_s,
        "until_s": result.until_s,
    }


def _period_faults(since: datetime, until: datetime) -> list[Fault]:
    if until <= since:
        return [Fault("until", f"until is {until:%Y-%m-%d %H:%M}; allowed: after since, {since:%Y-%m-%d %H:%M}")]
    if since < _FIRST:
        return [Fault("since", f"since is {since:%Y-%m-%d %H:%M}; allowed: from 1970 on")]
    if until - since > timedelta(days=MAX_DAYS):
        days = (until - since).days
        return [Fault("since", f"the period has {days} days; allowed: at most {MAX_DAYS}")]
    return []


def _require_records(cluster: Cluster, since: datetime, until: datetime) -> None:
    reaches = recorded_reaches(cluster)
    if not reaches:
        message = f"nothing was recorded of the arrivals of {cluster.slug} yet: no telemetry and no load history"
        raise Impossible(f"No backtest: {message}.", [("cluster", message)])
    if segment_grid(reaches, since, until) is None:
        first, last = min(reach.first for reach in reaches), max(reach.last for reach in reaches)
        message = (
            f"nothing was recorded from {since:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC; records of "
            f"{cluster.slug} reach from {first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"
        )
        raise Impossible(f"No backtest: {message}.", [("since", message)])


class BacktestFilter(ListFilter):
    """`?cluster=eu-1&state=answered`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    state = ChoiceFilter(choices=ANSWER_STATES)
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "since", "until", "state", cluster="cluster__slug", answered_at="finished_at")


class BacktestCreateSerializer(StrictSerializer):
    """Request for a backtest: a period and a policy."""

    cluster = ClusterField()
    since = serializers.DateTimeField(required=False, help_text="Default: a week before until.")
    until = serializers.DateTimeField(required=False, help_text="Default: now.")
    policy = serializers.DictField(
        required=False,
        help_text="admission, at_risk, assumed, headroom, placement, max_moves; see the API guide.",
    )
    ask = serializers.ChoiceField(
        choices=RequestTiming.choices, required=False, help_text="When requests are asked; default recorded."
    )


class BacktestSerializer(RunRowSerializer):
    """A backtest in a list: its parameters, and its result in a few numbers."""

    policy = serializers.JSONField()
    facts = serializers.JSONField(help_text="headline, admitted, seconds_over and others; empty while not answered.")

    class Meta:
        model = BacktestRun
        fields = ["id", "cluster", "since", "until", "policy", "ask", "state", "job", "facts", "requested_by"]
        fields += ["created_at", "answered_at", "duration_s"]


class BacktestDetailSerializer(BacktestSerializer):
    """A backtest with its result."""

    class Meta(BacktestSerializer.Meta):
        fields = [*BacktestSerializer.Meta.fields, "result"]


@describe_create(
    "Replay a recorded period through another policy. 202 with a job, or the answer with `Prefer: wait=N`."
)
class BacktestViewSet(RunDeletion, RunViewSet):
    """Recorded periods replayed through another policy of admission and placement. POST asks: 202 with a job, or the
    answer with `Prefer: wait=N`.
    """

    kind = BACKTEST
    queryset = BacktestRun.objects.none()
    filterset_class = BacktestFilter
    serializer_class, detail_class = BacktestSerializer, BacktestDetailSerializer
    question_class = BacktestCreateSerializer
