"""Decisions as Flink's settings, calls and patches, and the way back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from engine.connectors.picture import Place
from engine.document.elements import Replica
from engine.exports.export import FORMATS, DecidedJob, DecidedOperator, KubernetesTarget, export_text
from engine.exports.flink import flink_export

SOURCE, JOIN, SINK = "bc764cd8ddf7a0cff126f51c16239658", "20ba6b65f97481d5570070de90e4e791", "0a" * 16
PLACES = {name: Place(name, name, cores=2.0, slots=2, memory_bytes=2 * 2**30) for name in ("tm-1", "tm-2", "tm-3")}
JOB = DecidedJob(
    id="bb8f15efbb8f15efbb8f15efbb8f15ef",
    name="Orders: all",
    operators=(
        DecidedOperator("read", SOURCE, (Replica("tm-1"),), (Replica("tm-1"),), is_source=True),
        DecidedOperator("join", JOIN, (Replica("tm-1", 1),), (Replica("tm-1", 1, 0.5), Replica("tm-2", 0, 0.5))),
        DecidedOperator("write", SINK, (Replica("tm-1"),), (Replica("tm-2"),)),
    ),
    places=PLACES,
    target=KubernetesTarget("orders", "streams"),
)


def _codes(job: DecidedJob) -> set[str]:
    return {note.code for note in flink_export(job).notes}


def _merge(target: Any, patch: Any) -> Any:
    """A JSON merge patch, as RFC 7396 says it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def test_replicas_become_parallelism_of_every_vertex() -> None:
    export = flink_export(JOB)
    assert export.apply.settings == {"pipeline.jobvertex-parallelism-overrides": f"{SOURCE}:1,{JOIN}:2,{SINK}:1"}
    assert export.apply.patch["spec"]["job"] == {"parallelism": 2}
    assert export.apply.patch["metadata"] == {"name": "orders", "namespace": "streams"}


def test_the_call_asks_for_exactly_what_was_decided_of_all_vertices() -> None:
    (call,) = flink_export(replace(JOB, parallelism_now={"cd" * 16: 4})).apply.calls
    assert (call.method, call.path) == ("PUT", f"/jobs/{JOB.id}/resource-requirements")
    assert call.body[JOIN] == {"parallelism": {"lowerBound": 2, "upperBound": 2}}
    assert call.body["cd" * 16] == {"parallelism": {"lowerBound": 4, "upperBound": 4}}, "Flink refuses a part of them"


def test_the_reverse_puts_back_what_ran() -> None:
    export = flink_export(JOB)
    before = flink_export(
        replace(JOB, operators=tuple(replace(operator, after=operator.before) for operator in JOB.operators))
    )
    assert export.reverse.settings == before.apply.settings
    assert export.reverse.calls == before.apply.calls
    deployed = _merge({}, before.apply.patch)
    assert _merge(_merge(deployed, export.apply.patch), export.reverse.patch)["spec"]["job"] == {"parallelism": 1}
    assert export.reverse.patch["spec"]["taskManager"]["replicas"] == 1


def test_where_it_ran_before_is_not_known_the_parallelism_that_the_engine_told_is_put_back() -> None:
    operators = tuple(replace(operator, before=()) for operator in JOB.operators)
    export = flink_export(replace(JOB, operators=operators, parallelism_now={SOURCE: 3, JOIN: 4, SINK: 5}))
    assert export.reverse.settings == {"pipeline.jobvertex-parallelism-overrides": f"{SOURCE}:3,{JOIN}:4,{SINK}:5"}
    assert export.apply.settings == {"pipeline.jobvertex-parallelism-overrides": f"{SOURCE}:1,{JOIN}:2,{SINK}:1"}
    assert "before_unknown" not in {note.code for note in export.notes}


def test_operator_that_stays_keeps_the_subtasks_that_share_its_server() -> None:
    export = flink_export(replace(JOB, parallelism_now={SOURCE: 4, JOIN: 1, SINK: 1}))
    assert export.apply.calls[0].body[SOURCE]["parallelism"]["upperBound"] == 4
    assert export.reverse.calls[0].body[SOURCE]["parallelism"]["upperBound"] == 4
    assert [row.parallelism for row in export.operators] == [4, 2, 1]


def test_more_slots_than_there_are_grow_a_task_manager_in_proportion() -> None:
    crowded = tuple(Replica("tm-1", core, 0.25) for core in range(4))
    export = flink_export(replace(JOB, operators=(replace(JOB.operators[1], after=crowded),)))
    assert export.apply.settings["taskmanager.numberOfTaskSlots"] == "4"
    assert export.apply.patch["spec"]["taskManager"]["resource"] == {"cpu": 4.0, "memory": "4096m"}
    assert export.reverse.settings["taskmanager.numberOfTaskSlots"] == "2"
    assert export.reverse.patch["spec"]["taskManager"]["resource"] == {"cpu": 2.0, "memory": "2048m"}


def test_operators_on_nodes_apart_get_slot_sharing_groups_that_only_the_program_sets() -> None:
    apart = (
        replace(JOB.operators[0], after=(Replica("tm-1"),)),
        replace(JOB.operators[1], after=(Replica("tm-2"),)),
    )
    export = flink_export(replace(JOB, operators=apart))
    groups = [export.apply.program[name]["slotSharingGroup"] for name in ("read", "join")]
    assert groups[0] != groups[1]
    assert export.reverse.program == {name: {"slotSharingGroup": "default"} for name in ("read", "join")}
    assert any(note.level == "program" and "slotSharingGroup" in str(note.message) for note in export.notes)


def test_operators_that_share_nodes_keep_their_slot_sharing_group() -> None:
    assert flink_export(JOB).apply.program == {}


def test_groups_that_keep_operators_apart_already_stay() -> None:
    apart = (
        replace(JOB.operators[0], after=(Replica("tm-1"),), slot_group="in"),
        replace(JOB.operators[1], after=(Replica("tm-2"),), slot_group="out"),
    )
    assert flink_export(replace(JOB, operators=apart)).apply.program == {}


def test_groups_told_by_id_are_numbered_and_put_back() -> None:
    operators = tuple(
        replace(operator, after=(Replica(f"tm-{number}"),), slot_group=group)
        for number, (operator, group) in enumerate(zip(JOB.operators, ("f0e1", "9c2b", "9c2b"), strict=True), start=1)
    )
    export = flink_export(replace(JOB, operators=operators))
    assert len({fields["slotSharingGroup"] for fields in export.apply.program.values()}) == 3
    before = [export.reverse.program[operator.name]["slotSharingGroup"] for operator in operators]
    assert before == ["group-1", "group-2", "group-2"]
    note = next(str(note.message) for note in export.notes if note.code == "slot_sharing_groups")
    assert "2 groups now: Flink tells ids" in note


def test_nothing_that_flink_cannot_express_is_lost_without_a_note() -> None:
    uneven = replace(JOB.operators[1], after=(Replica("tm-1", 0, 0.7), Replica("tm-2", 0, 0.3)))
    foreign = replace(JOB.operators[2], vertex=None)
    job = replace(JOB, operators=(JOB.operators[0], uneven, foreign), rate_share=0.8, start_s=60.0)
    assert {"fractions", "no_vertex", "nodes", "rate_share", "start"} <= _codes(job)


@pytest.mark.parametrize(("scheduler", "level"), [("default", "lost"), ("adaptive", "info"), ("", "info")])
def test_scheduler_that_refuses_the_call_is_named(scheduler: str, level: str) -> None:
    export = flink_export(replace(JOB, settings={"jobmanager.scheduler": scheduler}))
    note = next(note for note in export.notes if note.code == "adaptive_scheduler")
    assert (note.level, "adaptive scheduler alone" in str(note.message)) == (level, not scheduler)


def test_chained_operators_get_the_larger_parallelism_and_a_note() -> None:
    chained = replace(JOB.operators[2], vertex=JOIN)
    export = flink_export(replace(JOB, operators=(JOB.operators[1], chained)))
    assert export.apply.settings["pipeline.jobvertex-parallelism-overrides"] == f"{JOIN}:2"
    assert "chained" in {note.code for note in export.notes}


def test_a_vertex_id_that_is_none_never_reaches_a_setting() -> None:
    export = flink_export(replace(JOB, operators=(replace(JOB.operators[0], vertex="a:1,b"),)))
    assert export.apply.settings == {} and export.apply.calls == ()
    assert "vertex_id" in {note.code for note in export.notes}


def test_a_job_without_a_known_object_gets_a_valid_name_that_is_called_assumed() -> None:
    export = flink_export(replace(JOB, target=None, name="Größe: \n- {all}" * 9))
    name = export.apply.patch["metadata"]["name"]
    assert name and len(name) <= 45 and all(letter.isalnum() or letter == "-" for letter in name) and name.isascii()
    assert "object_name" in {note.code for note in export.notes}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["yes", "- a: b", "'\"#{}[]&*!|>%@`", "two\nlines", "1e3", "größe ✓", "null", " x "])
def test_text_reads_back_as_it_was_whatever_the_names(form: str, name: str) -> None:
    job = replace(JOB, name=name, operators=(replace(JOB.operators[0], name=name),), target=None)
    document = flink_export(job).to_dict()
    text = export_text(document, form)
    assert (json.loads(text) if form == "json" else yaml.safe_load(text)) == json.loads(json.dumps(document))


def _with_state(need: float | None, left: dict[str, float]) -> DecidedJob:
    operators = (replace(op, need_bytes=need if op.name == "join" else 0.0) for op in JOB.operators)
    return replace(JOB, operators=tuple(operators), memory_left=left)


def _notes(job: DecidedJob) -> dict[str, tuple[str, str]]:
    return {note.code: (note.level, str(note.message).replace("\u00a0", " ")) for note in flink_export(job).notes}


def test_export_says_the_memory_that_state_needs_and_has_on_each_node() -> None:
    """Half of 200 MiB on each of two TaskManagers."""
    left = {"tm-1": 256 * 2.0**20, "tm-2": 128 * 2.0**20}
    level, message = _notes(_with_state(200 * 2.0**20, left))["memory"]
    assert level == "info"
    assert message == "Memory for state: tm-1 100 MiB of 256 MiB and tm-2 100 MiB of 128 MiB that other queries leave."


def test_export_of_more_state_than_memory_says_so_first_of_all() -> None:
    level, message = _notes(_with_state(400 * 2.0**20, {"tm-1": 256 * 2.0**20, "tm-2": 128 * 2.0**20}))["memory"]
    assert level == "lost"
    assert "tm-2 200 MiB of 128 MiB" in message


def test_export_says_what_of_memory_nobody_knows() -> None:
    assert "the state of join" in _notes(_with_state(None, {}))["memory_unknown"][1]
    assert "the memory of tm-1 and tm-2" in _notes(_with_state(1e6, {}))["memory_unknown"][1]
    assert "memory_unknown" not in _notes(_with_state(0.0, {}))
