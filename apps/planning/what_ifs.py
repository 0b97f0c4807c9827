"""What-ifs: questions about other nodes, loads, objectives or queries, and the engine's answers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, NotRequired, TypedDict

from django.db import transaction
from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from apps.accounts.choices import Scope
from apps.accounts.models import User
from apps.core.body_sizes import DOCUMENT
from apps.core.errors import Fault, Impossible, Malformed, fault_count
from apps.core.filters import BooleanFilter, ChoiceFilter, ListFilter, TextFilter, TimeFilter, sort_paths
from apps.core.rest.api import StrictSerializer
from apps.core.rest.serializers import field_type, read_body
from apps.fleet.models import Cluster
from apps.fleet.serializers import ClusterField
from apps.jobs.models import JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.jobs.services import job_cancel
from apps.jobs.viewsets import RunRowSerializer, RunViewSet, describe_create
from apps.planning.choices import ANSWER_STATES, Find, RunState, ScenarioPlacement
from apps.planning.models import Scenario, WhatIf
from apps.planning.scenarios import read_changes
from apps.planning.sweeps import BenchFigures, bench_snapshot, bench_sweep
from apps.planning.what_if_options import Inputs, given_options, read_options
from apps.queries.snapshots.cluster import Snapshot, cluster_snapshot, snapshot_changes
from apps.queries.snapshots.parts import PartsRead, is_large, parts_shown, snapshot_take
from engine.provisioning.answers.pools import MixAnswer, ParetoFront, PoolAnswer, PoolSize
from engine.provisioning.answers.scenarios import ComparedScenario, Growth, ScenarioComparison, SurvivalAnswer
from engine.records import Record

__all__ = [
    "MAX_SCENARIOS",
    "WHAT_IF",
    "SweepAnswer",
    "WhatIfFilter",
    "WhatIfViewSet",
    "question_fingerprint",
    "scenario_answers",
    "stored_answer",
    "what_if_changes",
    "what_if_same",
]

MAX_SCENARIOS = 12  # of one comparison
_LOOKED_AT = 20  # newest comparisons in which a scenario's values are looked for
_PATIENCE_S = 20.0


@dataclass(frozen=True)
class SweepAnswer(Record):
    """Sizes that a job has looked at; `lacking` and `is_unproven` as of `BenchQuestion`."""

    TITLE: ClassVar[str] = "a sweep"

    now: int
    sizes: tuple[PoolSize, ...]
    lacking: str = ""
    is_unproven: bool = False


_RECORDS: dict[Find, type[Record]] = {
    Find.COMPARE: ScenarioComparison,
    Find.SWEEP: SweepAnswer,
    Find.SMALLEST_POOL: PoolAnswer,
    Find.CHEAPEST_MIX: MixAnswer,
    Find.PARETO: ParetoFront,
    Find.SURVIVAL: SurvivalAnswer,
    Find.GROWTH: Growth,
}


def stored_answer(row: WhatIf) -> Any:
    """The answer of a what-if, the record of its kind; None while there is none."""
    return None if row.result is None else _RECORDS[Find(row.find)].parse(row.result)


class AskedScenario(TypedDict):
    """A scenario as it was when it was asked about; `id` of a saved one."""

    id: NotRequired[int]
    name: str
    changes: list[dict[str, object]]
    place: str


class WhatIfKind(RunKind[WhatIf]):
    """Question about a cluster as it is when a worker takes it. The same one on the same snapshot is asked once."""

    model, job, name, path = WhatIf, JobKind.WHAT_IF, "what_if", "what-ifs"
    topics = ("what-if", "scenarios")
    columns = ("result", "snapshot", "snapshot_parts", "duration_s")
    retention, old = timedelta(days=1), Q(from_bench=True) & ~Q(state=RunState.ASKED)

    def title(self, run: WhatIf) -> str:
        return f"{Find(run.find).label}, {run.cluster.slug}"

    def page(self, run: WhatIf) -> str:
        return f"/c/{run.cluster.slug}/provisioning/what-ifs/{run.pk}/"

    def is_long(self, run: WhatIf) -> bool:
        return is_large(run.cluster)

    @transaction.atomic
    def create(
        self,
        *,
        cluster: Cluster,
        user: User | None,
        scenarios: Sequence[object] = (),
        find: str = Find.COMPARE,
        options: Mapping[str, object] | None = None,
        from_bench: bool = False,
    ) -> WhatIf:
        """Create a what-if without a job; the same question on the same snapshot gives the one that is there.

        Parameters
        ----------
        scenarios : sequence
            Saved scenarios by number, or ``{name, changes, place}``. A search takes at most one, which it starts
            from; a comparison without any compares what is.
        find : str
            What to look for, a value of `Find`.
        options : mapping, optional
            Parameters of the search.
        from_bench : bool
            Asked by moving the bench: the same person's last such question is cancelled if it is still at work.
        """
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)
        snapshot = bench_snapshot(cluster)[0] if from_bench else cluster_snapshot(cluster)
        if not snapshot.deployment.nodes:
            raise Impossible(
                f"Cluster {cluster.slug} has no nodes; register at least one before asking what if.",
                [("cluster", f"{cluster.slug} has no nodes")],
            )
        asked = _read_scenarios(cluster, scenarios, snapshot, find)
        parameters = given_options(find, dict(options or {}))
        digest = question_fingerprint(find, asked, parameters, snapshot)
        if from_bench:
            _cancel_overtaken(cluster, user, digest)
        same = what_if_same(cluster, digest, snapshot.digest)
        if same is not None and (from_bench or not same.from_bench):
            return same
        return WhatIf.objects.create(
            cluster=cluster,
            find=find,
            scenarios=asked,
            options=parameters,
            fingerprint=digest,
            from_bench=from_bench,
            requested_by=user,
        )

    def answer(self, run: WhatIf, report: JobReporter) -> None:
        from apps.planning.what_if_work import find_answer  # and with it the engine, which only workers load

        report(0.0, "Taking a snapshot")
        snapshot = snapshot_take(run.cluster)
        started = time.perf_counter()
        run.result = find_answer(run, snapshot, lambda share, step: report(0.02 + 0.97 * share, step))
        run.duration_s = time.perf_counter() - started
        run.snapshot, run.snapshot_parts = snapshot.digest, snapshot.parts

    def facts(self, run: WhatIf) -> Mapping[str, object]:
        return {"what_if": str(run.pk), "find": run.find}


WHAT_IF = register(WhatIfKind())


def what_if_same(cluster: Cluster, fingerprint: str, snapshot: str) -> WhatIf | None:
    """The newest what-if of a question that is asked or answered on this snapshot."""
    rows = WHAT_IF.visible().filter(cluster=cluster, fingerprint=fingerprint)
    answered = rows.filter(state=RunState.ANSWERED, snapshot=snapshot).first()
    return answered or rows.filter(state=RunState.ASKED).first()


def what_if_changes(row: WhatIf, present: Snapshot | PartsRead | None = None) -> Sequence[str] | None:
    """Changes since a what-if was answered, in words; None where nothing has moved, or there is no answer yet."""
    if row.state != RunState.ANSWERED:
        return None
    present = present or parts_shown(row.cluster, lambda: row.job)
    return None if present.digest == row.snapshot else snapshot_changes(row.snapshot_parts, present.parts)


def question_fingerprint(
    find: str, scenarios: Sequence[AskedScenario], options: Mapping[str, object], snapshot: Snapshot
) -> str:
    """SHA-256 of a question. Prices belong to it: they change answers, but not what runs, which a snapshot is about."""
    prices = {node.id: node.price_per_hour for node in snapshot.deployment.nodes}
    text = json.dumps([find, list(scenarios), dict(options), prices], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _cancel_overtaken(cluster: Cluster, user: User | None, digest: str) -> None:
    rows = WhatIf.objects.filter(cluster=cluster, from_bench=True, requested_by=user, state=RunState.ASKED)
    for row in rows.exclude(fingerprint=digest).select_related("job"):
        if row.job is not None and not row.job.is_finished:
            job_cancel(row.job)


def _read_scenarios(cluster: Cluster, entries: Sequence[object], snapshot: Snapshot, find: str) -> list[AskedScenario]:
    """Scenarios of a request, as they are stored with the answer."""
    limit = MAX_SCENARIOS if find == Find.COMPARE else 1
    if len(entries) > limit:
        message = f"scenarios has {len(entries)} entries; allowed: at most {limit}"
        raise Malformed(message[0].upper() + message[1:] + ".", [("scenarios", message)])
    saved = {
        row.pk: row for row in Scenario.objects.filter(cluster=cluster, pk__in=[n for n in entries if _may_be_pk(n)])
    }
    faults: list[Fault] = []
    asked = [_read_scenario(saved, scenario, i, snapshot, faults) for i, scenario in enumerate(entries)]
    names = [scenario["name"] for scenario in asked if scenario]
    for i, name in enumerate(names):
        if name in names[:i]:
            faults.append(Fault(f"scenarios[{i}].name", f"name is {name!r} twice; allowed: each name once"))
    if faults:
        raise Malformed(f"The question has {fault_count(faults)}; first: {faults[0].message}", faults)
    return [scenario for scenario in asked if scenario] or [
        {"name": "Now", "changes": [], "place": str(ScenarioPlacement.KEEP)}
    ]


def _may_be_pk(value: Any) -> bool:
    """Whether a value may be a scenario's number: whole, and within the database's range."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _read_scenario(
    saved: Mapping[int, Scenario], entry: Any, index: int, snapshot: Snapshot, faults: list[Fault]
) -> AskedScenario | None:
    path = f"scenarios[{index}]"
    if _may_be_pk(entry):
        row = saved.get(entry)
        if row is None:
            faults.append(Fault(path, f"{path} is {entry}; this cluster has no scenario of that number"))
            return None
        scenario: AskedScenario = {"id": row.pk, "name": row.name, "changes": row.changes, "place": row.place}
    elif isinstance(entry, Mapping):
        unknown = set(entry) - {"id", "name", "changes", "place"}
        faults += [Fault(f"{path}.{key}", f"{key} is not a field of a scenario") for key in sorted(map(str, unknown))]
        scenario = {
            "name": str(entry.get("name") or f"Scenario {index + 1}")[:80],
            "changes": entry.get("changes", []),
            "place": entry.get("place", str(ScenarioPlacement.FILL)),
        }
        if scenario["place"] not in ScenarioPlacement.values:
            faults.append(
                Fault(
                    f"{path}.place", f"place is {scenario['place']!r}; allowed: {', '.join(ScenarioPlacement.values)}"
                )
            )
    else:
        faults.append(Fault(path, f"{path} is {entry!r}; allowed: the number of a scenario, or one written out"))
        return None
    try:
        scenario["changes"] = read_changes(scenario["changes"], snapshot, f"{path}.changes")
    except Malformed as error:
        faults += error.faults
        return None
    return scenario


def scenario_answers(cluster: Cluster) -> dict[int, tuple[WhatIf, ComparedScenario]]:
    """The newest answer of every saved scenario as it is now: {scenario: (what-if, its part of the answer)}."""
    present = {row.pk: (row.changes, row.place) for row in Scenario.objects.filter(cluster=cluster)}
    answers: dict[int, tuple[WhatIf, ComparedScenario]] = {}
    rows = WhatIf.objects.filter(cluster=cluster, find=Find.COMPARE, state=RunState.ANSWERED, from_bench=False)
    for row in rows.order_by("-created_at")[:_LOOKED_AT]:
        if len(answers) == len(present):
            break
        answer = stored_answer(row)
        for asked, part in zip(row.scenarios, answer.scenarios if answer else (), strict=False):
            key = asked.get("id")
            if key in present and key not in answers and present[key] == (asked["changes"], asked["place"]):
                answers[key] = (row, part)
    return answers


class WhatIfFilter(ListFilter):
    """`?cluster=eu-1&find=survival&state=answered&bench=false`."""

    cluster = TextFilter("cluster__slug", label="Slug of the cluster")
    find = ChoiceFilter(choices=Find.choices)
    state = ChoiceFilter(choices=ANSWER_STATES)
    bench = BooleanFilter("from_bench", label="Asked by moving the bench")
    created_at = TimeFilter()
    sorts = sort_paths("created_at", "duration_s", "find", "state", cluster="cluster__slug", answered_at="finished_at")


class WhatIfCreateSerializer(StrictSerializer):
    """Request for a what-if: scenarios and what to look for."""

    cluster = ClusterField()
    changes = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text="Changes of one scenario without a name; instead of `scenarios`.",
    )
    place = serializers.ChoiceField(
        choices=ScenarioPlacement.choices, required=False, help_text="With `changes`: default fill."
    )
    scenarios = serializers.ListField(
        child=serializers.JSONField(),
        required=False,
        help_text="Numbers of saved scenarios, or {name, changes, place}. At most 12, and 1 with a search.",
    )
    find = serializers.ChoiceField(choices=Find.choices, required=False, help_text="What to look for; default compare.")
    options = serializers.DictField(required=False, help_text="Parameters of what is looked for; see the API guide.")

    def validate(self, attrs: Any) -> Any:
        if "changes" in attrs and "scenarios" in attrs:
            raise serializers.ValidationError({"changes": "give changes or scenarios, not both"})
        if "place" in attrs and "changes" not in attrs:
            raise serializers.ValidationError({"place": "only with changes; a scenario has its own"})
        if "changes" in attrs:
            scenario = {
                "name": "Changed",
                "changes": attrs.pop("changes"),
                "place": attrs.pop("place", str(ScenarioPlacement.FILL)),
            }
            attrs["scenarios"] = [scenario]
        return attrs


class WhatIfSerializer(RunRowSerializer):
    """A what-if in a list: its parameters and state."""

    scenarios = serializers.JSONField()
    options = serializers.JSONField()

    class Meta:
        model = WhatIf
        fields = ["id", "cluster", "find", "scenarios", "options", "state", "job", "snapshot", "requested_by"]
        fields += ["created_at", "answered_at", "duration_s"]


class WhatIfDetailSerializer(WhatIfSerializer):
    """A what-if with the engine's answer and the changes since."""

    stale = serializers.SerializerMethodField()
    changes = serializers.SerializerMethodField(help_text="What has moved since it was answered, in words.")

    class Meta(WhatIfSerializer.Meta):
        fields = [*WhatIfSerializer.Meta.fields, "result", "stale", "changes"]

    def get_stale(self, row: WhatIf) -> bool:
        return what_if_changes(row) is not None

    @field_type(list[str])
    def get_changes(self, row: WhatIf) -> list[str]:
        return list(what_if_changes(row) or ())


class SweepSerializer(StrictSerializer):
    """Inputs of the bench. What is left out is as it is now; `sizes` defaults to numbers around the present one."""

    cluster = ClusterField()
    options = serializers.DictField(
        required=False,
        help_text="factor, sources, pool, sizes, bound_s, objective_factor, lose_one, headroom_s; see the API guide.",
    )


@describe_create(
    "Ask a what-if. 202 with a job, or the answer with `Prefer: wait=N`.\n\n"
    "The same question on an unchanged cluster gives the answer that is there."
)
class WhatIfViewSet(RunViewSet):
    """What-ifs: other nodes, loads, objectives or queries. POST asks: 202 with a job, or the answer with `Prefer:
    wait=N`.

    The same question on an unchanged cluster gives the answer that is there. Answers stay readable; `stale` and
    `changes` say whether the cluster has moved since.
    """

    kind = WHAT_IF
    body_sizes = {"create": DOCUMENT}
    queryset = WhatIf.objects.none()
    filterset_class = WhatIfFilter
    serializer_class, detail_class = WhatIfSerializer, WhatIfDetailSerializer
    question_class = WhatIfCreateSerializer
    scopes = {"GET": Scope.READ, "POST": Scope.OPERATE, "sweep": Scope.READ}

    @extend_schema(request=SweepSerializer, responses=BenchFigures)
    @action(detail=False, methods=["post"])
    def sweep(self, request: Request) -> Response:
        """The bench's answer at once: worst cases by number of nodes, by Mace. Nothing is stored.

        A cluster too large for an answer in about a second is refused with 422 and the code `too_large`: ask a what-if
        with `find: sweep`, which a job answers. 503 while the bench is prepared for a cluster that has moved.
        """
        asked = read_body(SweepSerializer, request)
        inputs = Inputs(**vars(read_options(Find.SWEEP, asked.get("options", {}))))
        question, sweep = bench_sweep(asked["cluster"], inputs, patience_s=_PATIENCE_S)
        figures = BenchFigures(
            snapshot=question.snapshot.digest,
            basis=question.basis,
            now=sweep.now,
            smallest=sweep.smallest.nodes if sweep.smallest else None,
            lacking=question.lacking,
            sizes=tuple(sweep.sizes),
        )
        return Response(figures.to_dict())
