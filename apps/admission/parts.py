"""Parts of a decision that follow its verdict: their states, what each adds to the answer, and how they end early."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from django.db import transaction

from apps.admission.choices import PARTS_UNDER_WAY, PartState
from apps.admission.effects import decision_stored
from apps.admission.models import AdmissionRequest
from apps.core.errors import Conflict
from apps.core.events import announce
from apps.jobs.models import Job
from apps.jobs.services import job_cancel
from engine.admission.answer import PARTS, AdmissionDecision, PartName
from engine.records import Record, Words
from engine.words.admission import part_words

__all__ = [
    "DecisionPart",
    "part_keep",
    "parts_announce",
    "parts_begin",
    "parts_end",
    "parts_job_stop",
    "parts_of",
    "parts_topic",
    "parts_under_way",
    "parts_write",
]


@dataclass(frozen=True)
class DecisionPart(Record):
    """A part of a decision: its state, why it is not there, and the seconds that it took."""

    TITLE: ClassVar[str] = "a part"

    state: Annotated[
        Literal["pending", "running", "done", "out_of_budget", "cancelled", "failed", "does_not_apply"],
        Words("Its own state: the verdict stands whatever becomes of it."),
    ]
    message: Annotated[str, Words("Why it does not apply, was cut or failed; empty otherwise.")] = ""
    seconds: Annotated[float | None, Words("It took so long; null of one that has not ended.")] = None

    @property
    def is_under_way(self) -> bool:
        """Whether something still becomes of it."""
        return self.state in PARTS_UNDER_WAY

    @property
    def label(self) -> str:
        """Name of its state."""
        return PartState(self.state).label

    @property
    def can_be_retried(self) -> bool:
        """Whether it was cut, cancelled or failed."""
        return self.state in {PartState.OUT_OF_BUDGET, PartState.CANCELLED, PartState.FAILED}


#: Keys of an answer that a part writes.
_WRITTEN: Mapping[PartName, tuple[str, ...]] = {
    "alternatives": ("choices", "reasons", "searched"),
    "robustness": ("robustness", "thin", "finding", "headline"),
}


def parts_of(request: AdmissionRequest) -> dict[PartName, DecisionPart]:
    """Parts of a request's decision in the order in which they are computed; empty while there is no verdict."""
    return {name: DecisionPart.parse(request.parts[name]) for name in PARTS if name in request.parts}


def parts_under_way(request: AdmissionRequest) -> list[PartName]:
    """Parts that are still to come."""
    return [name for name, part in parts_of(request).items() if part.is_under_way]


def parts_topic(request: AdmissionRequest) -> str:
    """The topic of a request's parts: their panels fetch themselves again, the rest of the page stays."""
    return f"admission-parts:{request.pk}"


def parts_announce(request: AdmissionRequest) -> None:
    """Tell open pages that a part has changed."""
    announce(parts_topic(request))


def parts_write(request: AdmissionRequest, parts: Mapping[PartName, DecisionPart]) -> None:
    """Set the states of some parts; the caller holds the request's lock and saves it.

    A verdict whose room is pending is known to be thin or not once that is there, and unknown where it ends without.
    """
    request.parts = {**request.parts, **{name: part.to_dict() for name, part in parts.items()}}
    room, thin = parts.get("robustness"), (request.result or {}).get("thin")
    if room is not None and thin in ("pending", "unknown"):
        request.result = {**(request.result or {}), "thin": "pending" if room.is_under_way else "unknown"}


def part_keep(request: AdmissionRequest, name: PartName, part: DecisionPart, decision: AdmissionDecision) -> None:
    """Add what a part has found to the answer; the caller holds the request's lock and saves it."""
    document = decision_stored(decision).to_dict()
    curves = document.pop("curves")
    request.result = {**(request.result or {}), **{key: document[key] for key in _WRITTEN[name]}}
    if name == "alternatives":
        request.curves = curves
    parts_write(request, {name: part})


def parts_begin(request: AdmissionRequest, without: Mapping[PartName, str]) -> None:
    """Set the states of the parts of a new decision; `without` says of those that do not apply why. The caller saves.

    A cluster that gives parts no time has none.
    """
    first = DecisionPart(PartState.PENDING)
    if not request.cluster.parts_budget_s:
        first = DecisionPart(PartState.OUT_OF_BUDGET, "The settings of the cluster give parts of previews no time.")
    none = {name: DecisionPart(PartState.DOES_NOT_APPLY, part_words(why)) for name, why in without.items() if why}
    parts_write(request, dict.fromkeys(without, first) | none)


def parts_end(request: AdmissionRequest, state: PartState, message: str, among: Iterable[str] = PARTS) -> None:
    """End the parts that are under way; the caller holds the request's lock. Their job stops at its next step."""
    ended = [name for name in parts_under_way(request) if name in among]
    if not ended:
        return
    parts_write(request, dict.fromkeys(ended, DecisionPart(state, message)))
    request.save(update_fields=["parts", "result", "updated_at"])
    parts_announce(request)
    if request.parts_job is not None:
        parts_job_stop(request.parts_job)


def parts_job_stop(job: Job) -> None:
    """Stop the job of parts once this transaction, which has locked their request, is committed.

    The end of a job locks it before its request: the other way round the two would block each other.
    """
    if not job.is_finished:
        transaction.on_commit(lambda: _cancel(job), robust=True)


def _cancel(job: Job) -> None:
    with contextlib.suppress(Conflict):  # it has ended in this moment
        job_cancel(job)
