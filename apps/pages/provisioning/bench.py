"""The bench: how many nodes are enough, for which load and which objectives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from django.core.exceptions import ValidationError
from django.urls import reverse

from apps.accounts.permissions import signed_in_user
from apps.core.errors import Malformed
from apps.fleet.models import NodePool
from apps.pages.base import ClusterPage
from apps.pages.provisioning.answer import BenchAnswer
from apps.pages.provisioning.forms import SOURCE_PREFIX, inputs_query, inputs_read, types_offered
from apps.planning.choices import Find, RunState, ScenarioPlacement
from apps.planning.evacuations import failure_domain_labels
from apps.planning.models import WhatIf
from apps.planning.sweeps import BenchQuestion, bench_question, bench_snapshot
from apps.planning.what_if_options import MAX_FACTOR, MIN_FACTOR, Inputs, resized_pool, sweep_sizes
from apps.planning.what_ifs import WHAT_IF, question_fingerprint, stored_answer, what_if_same
from apps.queries.selectors import queries_waiting
from apps.queries.snapshots.cluster import Snapshot
from apps.ui.numbers import rate
from engine.provisioning.answers.scenarios import ComparedScenario
from engine.words import counted

__all__ = ["BenchFacts"]

MAX_FIELDS = 24  # of sources
_PATIENCE_S = 0.3  # how long a page waits for a bench before it says that it is being prepared
_TYPE_FIELDS = (
    ("name", "Type"),
    ("capacity_cps", "Cycles per second of a core"),
    ("cores", "Cores"),
    ("memory_bytes", "Bytes of memory for state"),
    ("price_per_hour", "Price per hour"),
    ("max", "At most"),
)


class BenchFacts:
    """Facts of the bench for the inputs of an address, each computed when it is first read."""

    def __init__(self, page: ClusterPage) -> None:
        self.cluster, self.request = page.cluster, page.request
        self.inputs, self.faults = inputs_read(self.given)
        self.can_ask = "operate" in signed_in_user(self.request).scopes
        self._rows: dict[str, WhatIf | None] = {}

    @property
    def given(self) -> Any:
        return self.request.POST if self.request.method == "POST" else self.request.GET

    @cached_property
    def _taken(self) -> tuple[Snapshot, bool]:
        return bench_snapshot(self.cluster)

    @property
    def snapshot(self) -> Snapshot:
        return self._taken[0]

    @property
    def domains(self) -> list[str]:
        """Labels that may stand for what fails together."""
        return failure_domain_labels(self.cluster)

    @cached_property
    def uncounted(self) -> list[str]:
        """Queries that wait to be admitted, which no number of the bench is for."""
        return queries_waiting(self.cluster)

    @property
    def is_empty(self) -> bool:
        return not self.snapshot.deployment.nodes or not self.snapshot.deployment.operators

    @cached_property
    def question(self) -> BenchQuestion:
        """The question; inputs that do not fit the cluster are said and left out."""
        try:
            return bench_question(self.cluster, self.inputs, self.snapshot, is_sketch=self._taken[1])
        except Malformed as error:
            self.faults += [f"{fault.message[:1].upper()}{fault.message[1:]}." for fault in error.faults]
            self.inputs = Inputs(factor=self.inputs.factor, lose_one=self.inputs.lose_one)
            return bench_question(self.cluster, self.inputs, self.snapshot, is_sketch=self._taken[1])

    # -- the answer

    @cached_property
    def answer(self) -> BenchAnswer | None:
        """None while the bench is prepared, or a job is at work."""
        question = self.question
        if question.is_quick:
            bench = question.bench(_PATIENCE_S)
            sweep = question.answered_by(bench) if bench is not None else None
        else:
            swept = self.swept
            sweep = question.read(stored_answer(swept).sizes) if swept and self.is_answered(swept) else None
        if sweep is None:
            return None
        return BenchAnswer(self.cluster, question, sweep, self._refinement)

    @staticmethod
    def is_answered(row: WhatIf) -> bool:
        return row.state == RunState.ANSWERED

    # -- what a job does

    @property
    def sweep_options(self) -> dict[str, object]:
        return {**self.inputs.options, "sizes": list(sweep_sizes(self.question.deployment, self.inputs))}

    @cached_property
    def swept(self) -> WhatIf | None:
        """The sweep that a job has done, or is at, for a cluster too large for the web process."""
        scenarios = [{"name": "Now", "changes": [], "place": str(ScenarioPlacement.KEEP)}]
        digest = question_fingerprint(Find.SWEEP, scenarios, self.sweep_options, self.snapshot)
        return what_if_same(self.cluster, digest, self.snapshot.digest)

    @property
    def refined_question(self) -> dict[str, object]:
        """Flow, intervals and probabilities of the chosen number of nodes."""
        nodes = self.answer.chosen.nodes if self.answer is not None else self.question.now
        return self._refinement_of(nodes)

    def _refinement_of(self, nodes: int) -> dict[str, Any]:
        name = f"{counted(nodes, 'node')} on the bench"
        scenario = {"name": name, "changes": self.question.changes(nodes), "place": str(ScenarioPlacement.SEARCH)}
        return {"scenarios": [scenario], "find": Find.COMPARE, "options": {}}

    @cached_property
    def refined(self) -> WhatIf | None:
        """The what-if that estimates the chosen number of nodes, if it was asked."""
        return self._asked(self.refined_question)

    def _asked(self, question: Mapping[str, Any]) -> WhatIf | None:
        """Looked up once: answered between two looks, it would neither be shown nor be waited for."""
        digest = question_fingerprint(question["find"], question["scenarios"], question["options"], self.snapshot)
        if digest not in self._rows:
            self._rows[digest] = what_if_same(self.cluster, digest, self.snapshot.digest)
        return self._rows[digest]

    def _refinement(self, nodes: int) -> ComparedScenario | None:
        """Answer of a job for a number of nodes."""
        row = self._asked(self._refinement_of(nodes)) if self.question.is_quick else None
        if row is None or not self.is_answered(row):
            return None
        return next(iter(stored_answer(row).scenarios), None)

    # -- the inputs as fields

    @property
    def pools(self) -> list[tuple[str, NodePool, bool]]:
        """(name, pool, chosen)."""
        chosen = self.inputs.pool or resized_pool(self.question.deployment, "")
        return [(pool.name, pool, pool.name == chosen) for pool in self.cluster.pools.all()]

    @cached_property
    def sources(self) -> list[tuple[str, float]]:
        """(source, its own factor): those with a factor, and the first others."""
        names = [source.id for source in self.question.deployment.sources]
        shown = [*self.inputs.sources, *(name for name in names if name not in self.inputs.sources)]
        return [
            (name, self.inputs.sources.get(name, 1.0)) for name in shown[: max(MAX_FIELDS, len(self.inputs.sources))]
        ]

    @property
    def more_sources(self) -> int:
        """Number of sources that have no field; the address names theirs as well."""
        return len(self.question.deployment.sources) - len(self.sources)

    @property
    def rate_hint(self) -> str:
        """33.4 k/s now is 1.0 ×."""
        deployment = self.question.deployment
        seconds = deployment.subinterval_s * deployment.subintervals
        events = sum(float(source.arrivals.sum()) for source in deployment.sources) / seconds
        return f"{rate(events)} now, as a mean, is 1.0 ×"

    @property
    def objective_hint(self) -> str:
        bounds = [objective.bound_s for objective in self.snapshot.deployment.objectives]
        queries = len(self.snapshot.deployment.queries)
        if not bounds:
            return "No query has one"
        if len(bounds) == 1:
            return f"Empty: each its own; 1 of {counted(queries, 'query', 'queries')} has one"
        return f"Empty: each its own; {len(bounds)} of {counted(queries, 'query', 'queries')} have one"

    @property
    def source_prefix(self) -> str:
        return SOURCE_PREFIX

    @property
    def slider(self) -> tuple[float, float]:
        return min(MIN_FACTOR, self.inputs.factor), max(MAX_FACTOR, self.inputs.factor)

    @property
    def types(self) -> list[list[tuple[str, str, Any]]]:
        """Rows of node types: (field, label, value) each."""
        return [[(name, label, row[name]) for name, label in _TYPE_FIELDS] for row in types_offered(self.cluster)]

    @property
    def query(self) -> str:
        return inputs_query(self.inputs, find=self.given.get("find") or None)

    @property
    def page(self) -> str:
        """The address of the page with these inputs."""
        return reverse("pages:provisioning", args=[self.cluster.slug]) + self.query

    @property
    def rest_body(self) -> dict[str, object]:
        return {"cluster": self.cluster.slug, "options": self.inputs.options}

    @property
    def rest_sweep(self) -> dict[str, object]:
        return {"cluster": self.cluster.slug, "find": str(Find.SWEEP), "options": self.sweep_options}

    @cached_property
    def found(self) -> WhatIf | None:
        """The search whose result is shown: `?find=`."""
        pk = self.given.get("find", "")
        if not pk:
            return None
        try:
            return WHAT_IF.visible().filter(cluster=self.cluster, pk=pk).first()
        except ValidationError:  # not the form of an identity
            return None
