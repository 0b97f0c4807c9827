"""Statistics of a version's inputs: selectivity, cycles per event, the sample behind them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar

from django.db import transaction
from django.utils import timezone

from apps.core.errors import Fault, Malformed, fault_count
from apps.core.limits import MAX_SAMPLE_EVENTS
from apps.fleet.choices import CostEvidence
from apps.queries.bodies import COST_NOISE_NAMES
from apps.queries.models import OperatorInput, Query, QueryVersion
from apps.queries.services import query_announce
from engine.arrays import FloatArray
from engine.document.cycles import CYCLE_UNITS, cycle_unit_words, is_of_clock
from engine.document.elements import Batch, cost_noise_faults
from engine.document.kinds import COST_CV2, ID, NOT_NEGATIVE, CostCv2, CostDispersion, CostDispersionEvents
from engine.errors import Fault as EngineFault
from engine.kinds import Enumeration, Number, NumberSeries, String
from engine.measurement.variation import measure_events
from engine.records import Record, Words

__all__ = ["statistics_of", "statistics_update"]

_MAX_EVENT_CYCLES = 200_000
_RATIOS = ("selectivity", "cycles_per_event")
_OF_SAMPLE = (
    "cycles_per_event",
    "events",
    "batches",
    *COST_NOISE_NAMES,
)  # what single events' costs tell by themselves

_FIRST_MEASURED = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class InputStatistics(Record):
    """Statistics of one input of a version."""

    TITLE: ClassVar[str] = "a statistic"

    operator: Annotated[str, ID]
    input: Annotated[
        str | None, String(), Words("what the input reads; needed where the operator has several inputs")
    ] = None
    position: Annotated[
        int | None,
        Number(least=0, whole=True),
        Words("which input, where the operator reads the same thing twice"),
    ] = None
    selectivity: Annotated[float | None, NOT_NEGATIVE] = None
    cycles_per_event: Annotated[float | None, NOT_NEGATIVE] = None
    events: Annotated[int | None, Number(least=0, whole=True)] = None
    batches: tuple[Batch, ...] | None = None
    event_cycles: Annotated[FloatArray | None, NumberSeries(), Words("cycles of single events in their order")] = None
    cost_cv2: CostCv2 = None
    cost_dispersion: CostDispersion = None
    cost_dispersion_events: CostDispersionEvents = None
    evidence: Annotated[str | None, Enumeration(tuple(CostEvidence.values))] = None
    cycle_unit: Annotated[
        str | None, Enumeration(CYCLE_UNITS), Words("what its cycles count; as before unless given")
    ] = None
    measured_at: Annotated[str | None, String()] = None


def statistics_of(version: QueryVersion) -> list[dict[str, Any]]:
    """Every input of a version with what is known of it, in listing order."""
    return [
        {
            "operator": entry.operator.name,
            "input": entry.upstream.name if entry.upstream else entry.source_id,
            "position": entry.position,
            "selectivity": entry.selectivity,
            "cycles_per_event": entry.cycles_per_event,
            "evidence": entry.evidence,
            "events": entry.events,
            "cycle_unit": entry.cycle_unit,
            "measured_at": entry.measured_at,
            "batches": entry.batches,
            **{name: getattr(entry, name) for name in COST_NOISE_NAMES},
        }
        for entry in _inputs(version)
    ]


@transaction.atomic
def statistics_update(*, version: QueryVersion, statistics: Any, now: datetime | None = None) -> QueryVersion:
    """Refine the statistics of a version's inputs; those not named keep theirs.

    Parameters
    ----------
    statistics : list of mappings
        `operator`, `input`, then any of `selectivity`, `cycles_per_event`, `events`, `batches`
        (`[{events, outputs, cycles}]`), `cost_cv2`, `cost_dispersion` and `cost_dispersion_events` (as in an input of a
        document), `evidence` (measured unless given; unknown drops the cost), `measured_at` (ISO 8601, now unless
        given). From batches, events, selectivity and cycles per event follow where they are not given. Another
        selectivity or cost without batches drops those of before: an interval of the old sample would not be one of the
        new number. A dispersion goes with its sample; `cost_cv2` stays until another is given, null, or another cost
        without a sample.
        `event_cycles`, the cycles of single events in their order, in place of all of these but the selectivity, tells
        them all.

    Raises
    ------
    Malformed
        With every fault; nothing is changed then.
    """
    if not isinstance(statistics, Sequence) or isinstance(statistics, (str, bytes)) or not statistics:
        raise Malformed("statistics: allowed is a list of objects.", [("statistics", "allowed: a list of objects")])
    Query.objects.select_for_update().get(pk=version.query_id)  # two refinements at once: one after the other
    entries = list(_inputs(version))
    never_ran = any(entry.cycles_per_event is None for entry in entries)
    now = now or timezone.now()
    faults: list[EngineFault] = []
    changed: dict[int, OperatorInput] = {}
    for i, body in enumerate(statistics):
        path = f"statistics[{i}]"
        record = InputStatistics.read(body, "statistics", i, faults)
        if record is None:
            continue
        entry = _named(entries, record, path, faults)
        if entry is None:
            continue
        if entry.pk in changed:
            faults.append(EngineFault(path, f"the input {record.input or ''!r} of {record.operator!r} stands twice"))
        unknown = [name for name in COST_NOISE_NAMES if name in body and body[name] is None]
        _assign(entry, _with_sample(record, entry, path, faults), unknown, path, faults, now)
        changed[entry.pk] = entry
    if faults:
        listed = [Fault(fault.path, fault.message) for fault in faults]
        raise Malformed(f"The statistics have {fault_count(faults)}; first: {faults[0]}", listed)
    for entry in changed.values():
        entry.save()
    if never_ran and all(entry.cycles_per_event is not None for entry in entries):
        version.costs_known_at = now
        version.save(update_fields=["costs_known_at"])
    query_announce(version.query)
    return version


def _inputs(version: QueryVersion) -> Any:
    rows = OperatorInput.objects.filter(operator__version=version).select_related("operator", "upstream")
    return rows.order_by("operator__position", "position")


def _named(
    entries: Sequence[OperatorInput], record: InputStatistics, path: str, faults: list[EngineFault]
) -> OperatorInput | None:
    """The input that a record speaks of; a fault if there is none or more than one."""
    of_operator = [entry for entry in entries if entry.operator.name == record.operator]
    if not of_operator:
        names = ", ".join(dict.fromkeys(entry.operator.name for entry in entries))
        faults.append(EngineFault(f"{path}.operator", f"operator is {record.operator!r}; allowed: {names}"))
        return None
    matches = [
        entry
        for entry in of_operator
        if record.input in (None, entry.upstream.name if entry.upstream else entry.source_id)
        and record.position in (None, entry.position)
    ]
    if len(matches) != 1:
        reads = [entry.upstream.name if entry.upstream else entry.source_id for entry in of_operator]
        allowed = ", ".join(
            f"{name} (position {entry.position})" for name, entry in zip(reads, of_operator, strict=True)
        )
        faults.append(EngineFault(f"{path}.input", f"input is {record.input!r}; allowed: one of {allowed}"))
        return None
    return matches[0]


def _with_sample(
    record: InputStatistics, entry: OperatorInput, path: str, faults: list[EngineFault]
) -> InputStatistics:
    """The record with what its single events' costs tell, in the words of a sample in batches."""
    half = cost_noise_faults(record.cost_dispersion, record.cost_dispersion_events)
    faults += [EngineFault(f"{path}.{fault.path}", fault.message) for fault in half]
    cycles = record.event_cycles
    if cycles is None:
        return record
    others = [name for name in _OF_SAMPLE if getattr(record, name) is not None]
    faults += [
        EngineFault(f"{path}.{name}", f"{name} follows from event_cycles; allowed: one of them") for name in others
    ]
    if len(cycles) > _MAX_EVENT_CYCLES:
        message = f"event_cycles has {len(cycles)} items; allowed: at most {_MAX_EVENT_CYCLES}"
        faults.append(EngineFault(f"{path}.event_cycles", message))
        return record
    try:
        sample = measure_events(cycles, entry.selectivity if record.selectivity is None else record.selectivity)
    except ValueError as error:
        faults.append(EngineFault(f"{path}.event_cycles", f"event_cycles has {error}"))
        return record
    if not COST_CV2.fits(sample.cv2):
        message = f"the costs have a variance of {sample.cv2:g} times their squared mean; allowed: {COST_CV2.allowed()}"
        faults.append(EngineFault(f"{path}.event_cycles", message))
    dispersion = sample.dispersion
    return replace(
        record,
        batches=tuple(sample.batches),
        cost_cv2=sample.cv2,
        cost_dispersion=dispersion.value if dispersion else None,
        cost_dispersion_events=dispersion.scale if dispersion else None,
    )


def _assign(
    entry: OperatorInput,
    record: InputStatistics,
    unknown: Collection[str],
    path: str,
    faults: list[EngineFault],
    now: datetime,
) -> None:
    """Take over what a record says; `unknown` are the names of variations that are known no longer."""
    _change_unit(entry, record, path, faults)
    if record.batches is not None:
        entry.batches = [batch.to_dict() for batch in record.batches]
        events = sum(batch.events for batch in record.batches)
        entry.events = round(events)
        if events > 0:
            entry.selectivity = sum(batch.outputs for batch in record.batches) / events
            entry.cycles_per_event = sum(batch.cycles for batch in record.batches) / events
        entry.cost_dispersion = entry.cost_dispersion_events = None
    elif changed := [name for name in _RATIOS if getattr(record, name) not in (None, getattr(entry, name))]:
        entry.batches = []
        entry.cost_dispersion = entry.cost_dispersion_events = None
        if "cycles_per_event" in changed:
            entry.cost_cv2 = None
    for name in (*COST_NOISE_NAMES, "selectivity", "cycles_per_event", "events"):
        if getattr(record, name) is not None or name in unknown:
            setattr(entry, name, getattr(record, name))
    if entry.events > MAX_SAMPLE_EVENTS:
        faults.append(
            EngineFault(f"{path}.events", f"events is {entry.events:g}; allowed: at most {MAX_SAMPLE_EVENTS:g}")
        )
    entry.evidence = record.evidence or CostEvidence.MEASURED
    if entry.cycles_per_event is None and entry.evidence == CostEvidence.MEASURED:
        if record.evidence is not None:
            message = "evidence is 'measured', but the input has no cycles_per_event; allowed: with cycles_per_event"
            faults.append(EngineFault(f"{path}.evidence", message))
        entry.evidence = CostEvidence.PREDICTED
    if entry.evidence == CostEvidence.UNKNOWN:
        if brought := [name for name in ("cycles_per_event", "batches", "event_cycles") if getattr(record, name)]:
            message = f"evidence is 'unknown' beside {brought[0]}; allowed: assumed, predicted, measured"
            faults.append(EngineFault(f"{path}.evidence", message))
        entry.cycles_per_event, entry.batches = None, []
        entry.cost_cv2 = entry.cost_dispersion = entry.cost_dispersion_events = None
    entry.measured_at = _moment(record.measured_at, path, faults, now)


def _change_unit(entry: OperatorInput, record: InputStatistics, path: str, faults: list[EngineFault]) -> None:
    """Take over the unit of a record; costs of another unit than the nodes they run on count are refused."""
    unit = record.cycle_unit or entry.cycle_unit
    brings_cost = record.cycles_per_event is not None or bool(record.batches)
    is_other = is_of_clock(unit) != is_of_clock(entry.cycle_unit)
    if is_other and not brings_cost and entry.cycles_per_event is not None:
        message = f"cycle_unit is {unit!r} beside a cost in {entry.cycle_unit!r}; allowed: with cycles_per_event"
        faults.append(EngineFault(f"{path}.cycle_unit", message))
    for name, other in entry.operator.placements.values_list("node__name", "node__cycle_unit"):
        if is_of_clock(unit) != is_of_clock(other):
            message = f"cycle_unit is {unit!r}, and it runs on {name}, which counts {cycle_unit_words(other)}"
            faults.append(EngineFault(f"{path}.cycle_unit", f"{message}; allowed: {other!r}"))
            break
    entry.cycle_unit = unit


def _moment(text: str | None, path: str, faults: list[EngineFault], now: datetime) -> datetime:
    if text is None:
        return now
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None or not _FIRST_MEASURED < moment <= now:
        allowed = "a past ISO 8601 time with its zone, from 1970 on, such as 2026-03-01T09:30:00Z"
        faults.append(EngineFault(f"{path}.measured_at", f"measured_at is {text!r}; allowed: {allowed}"))
        return now
    return moment
