"""Fine-tuning of a cluster's model as a job: requested, trained, judged by the guard, stored."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from django.utils import timezone

from apps.accounts.models import User
from apps.core.errors import Conflict, Impossible
from apps.fleet.models import Cluster
from apps.jobs.models import Job, JobKind
from apps.jobs.runner import JobReporter
from apps.jobs.runs import RunKind, register
from apps.predictions.choices import FineTuningState, ModelOrigin, ModelState
from apps.predictions.ensembles import ensemble_of, model_in_force, next_number
from apps.predictions.models import FineTuning, ModelVersion, ObservedExecution
from apps.predictions.services import predictions_announce
from engine.costream.adaptation import (
    MIN_OBSERVED,
    GuardJudgement,
    Observation,
    fit_executions,
    judge,
    observation_of,
    of_one_processor,
    recalibrated,
    split_observations,
)
from engine.costream.documents import read_trace
from engine.costream.prediction import Ensemble
from engine.costream.weights import ModelCard, pack_weights
from engine.errors import DocumentError
from engine.words import counted

__all__ = ["FINE_TUNING", "fine_tuning_obstacle", "observations_of"]

_log = logging.getLogger(__name__)

_MAX_OBSERVED = 5000  # the newest executions
_JUDGED = 400  # of another seed, which no model has seen, for the guard


def fine_tuning_obstacle(cluster: Cluster) -> str:
    """Sentence on why the executions of a cluster do not suffice for a fine-tuning; empty if they do."""
    rows = ObservedExecution.objects.filter(cluster=cluster)
    count, queries = rows.count(), rows.values("query").distinct().count()
    if count < MIN_OBSERVED:
        observed = f"{counted(count, 'execution')} of {cluster.slug} {'was' if count == 1 else 'were'} observed"
        return f"{observed}; fine-tuning needs {MIN_OBSERVED}."
    if queries < 2:
        return f"Fine-tuning is not possible: all {count} executions are of one query; the guard needs others."
    return ""


def observations_of(cluster: Cluster) -> tuple[list[Observation], int]:
    """The newest observed executions of a cluster, those of a query as one group; and how many cannot be read."""
    rows = ObservedExecution.objects.filter(cluster=cluster).order_by("-ends_at", "-pk")[:_MAX_OBSERVED]
    observations, unreadable = [], 0
    for row in rows:
        try:
            trace = read_trace(row.trace)
        except DocumentError as error:
            _log.warning("execution %s is left out of the fine-tuning: %s", row.pk, error)
            unreadable += 1
            continue
        costs = (row.throughput_eps, row.processing_latency_s, row.end_to_end_latency_s)
        observations.append(Observation(trace, costs, row.backpressure, row.success, str(row.query_id)))
    return observations, unreadable


@dataclass(frozen=True)
class _Tuned:
    """A fine-tuned model as it is stored, and the guard's judgement of it."""

    weights: bytes
    card: ModelCard
    judgement: GuardJudgement
    trained: int
    held_out: int
    others: int = 0  # executions on another stream processor than most ran on
    unreadable: int = 0

    @property
    def message(self) -> str:
        others = f" {counted(self.others, 'execution')} on another stream processor left out." if self.others else ""
        left_out = f" {counted(self.unreadable, 'execution')} could not be read." if self.unreadable else ""
        return self.judgement.reason + others + left_out


def _simulated(seed: int, count: int) -> list[Observation]:
    """Traces of a corpus of this seed, as the shipped model was trained on; always the same."""
    from engine.simulation.cohort import simulate_trace, trace_seed  # numba with it: only this job pays for it

    return [observation_of(simulate_trace(trace_seed(seed, i)).trace) for i in range(count)]


def _tune(base: Ensemble, observations: Sequence[Observation], judged: Sequence[Observation], version: str) -> _Tuned:
    kept = of_one_processor(observations)
    others, observations = len(observations) - len(kept), kept
    trained, held = split_observations(observations)
    held_out = [observations[i] for i in held]
    fitted = fit_executions(base, [observations[i] for i in trained])
    after = recalibrated(fitted, version, len(trained), held_out, judged)
    weights, card = pack_weights(after.arrays, after.card)
    return _Tuned(weights, card, judge(base, after, held_out, judged), len(trained), len(held_out), others)


class FineTuningKind(RunKind[FineTuning]):
    """Fit of a cluster's model to its observed executions; in force at once if the guard accepts it."""

    model, job, name, path = FineTuning, JobKind.FINE_TUNING, "fine_tuning", "fine-tunings"
    asked, failed, cancelled = FineTuningState.RUNNING, FineTuningState.FAILED, FineTuningState.FAILED
    cancel_message = "The job was cancelled."
    related = ("cluster", "base", "model", "job", "requested_by")
    bulk = ("base__weights", "model__weights")

    def title(self, run: FineTuning) -> str:
        return f"Fine-tune the model of {run.cluster.slug}"

    def page(self, run: FineTuning) -> str:
        return f"/c/{run.cluster.slug}/accuracy/model/"

    def announce(self, run: FineTuning) -> None:
        predictions_announce(run.cluster)

    def create(self, *, cluster: Cluster, user: User | None, note: str = "") -> FineTuning:
        """Write a fine-tuning without a job.

        Raises
        ------
        Impossible
            There are too few executions, of too few queries, or there is no model.
        Conflict
            A fine-tuning of the cluster is under way.
        """
        Cluster.objects.select_for_update().get(pk=cluster.pk)
        if FineTuning.objects.filter(cluster=cluster, state=FineTuningState.RUNNING).exists():
            raise Conflict(f"A fine-tuning of {cluster.slug} is under way; wait until it has ended.", code="under_way")
        obstacle = fine_tuning_obstacle(cluster)
        if obstacle:
            raise Impossible(obstacle, [("cluster", obstacle)], code="too_few")
        base = model_in_force(cluster).version
        return FineTuning.objects.create(cluster=cluster, requested_by=user, base=base, note=note)

    def answer(self, run: FineTuning, report: JobReporter) -> _Tuned:
        """Fit and judge the model."""
        assert run.base is not None
        report(0.0, "Reading executions")
        observations, unreadable = observations_of(run.cluster)
        if len(observations) < MIN_OBSERVED:
            left = f"{len(observations)} are left, {MIN_OBSERVED} needed"
            message = f"{counted(unreadable, 'execution')} cannot be read; {left}"
            raise Impossible(f"{message}.", code="unreadable")
        base = ensemble_of(ModelVersion.objects.get(pk=run.base_id))
        report(0.1, "Simulating traces for the guard")
        judged = _simulated((base.card.seed or 0) + 1, _JUDGED)
        report(0.3, "Fitting")
        tuned = _tune(base, observations, judged, f"{run.cluster.slug}-{next_number(run.cluster)}")
        report(0.95, "Storing")
        return replace(tuned, unreadable=unreadable)

    def keep(self, run: FineTuning, answer: _Tuned, job: Job) -> FineTuning:
        """Store the model; in force if accepted and no other has taken the place of the one it was made from."""
        cluster = Cluster.objects.select_for_update().get(pk=run.cluster_id)
        judgement = answer.judgement
        accepted, message = judgement.accepted, answer.message
        own = ModelVersion.objects.select_for_update().filter(cluster=cluster, state=ModelState.IN_FORCE).first()
        was_own = run.base is not None and run.base.origin == ModelOrigin.FINE_TUNED
        if accepted and (own.pk if own else None) != (run.base_id if was_own else None):
            accepted, message = False, "Refused: another model was put in force meanwhile; ask again."
        if accepted and own is not None:
            own.state = ModelState.AVAILABLE
            own.save(update_fields=["state"])
        run.model = ModelVersion.objects.create(
            cluster=cluster,
            number=next_number(cluster),
            origin=ModelOrigin.FINE_TUNED,
            state=ModelState.IN_FORCE if accepted else ModelState.REFUSED,
            digest=answer.card.sha256,
            card=answer.card.to_dict(),
            weights=answer.weights,
            parent_id=run.base_id,
            created_by=run.requested_by,
            in_force_at=timezone.now() if accepted else None,
        )
        run.state = FineTuningState.ACCEPTED if accepted else FineTuningState.REFUSED
        run.message, run.observations, run.held_out = message[:500], answer.trained, answer.held_out
        run.result = {"before": dict(judgement.before), "after": dict(judgement.after)}
        run.save()
        self.announce(run)
        return run

    def facts(self, run: FineTuning) -> Mapping[str, object]:
        return {"state": run.state, "model": run.model_id, "message": run.message}


FINE_TUNING = register(FineTuningKind())
