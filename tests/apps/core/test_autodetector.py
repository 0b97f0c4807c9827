"""Migrations hold tables; words and bounds change without one."""

from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.core.management import get_commands, load_command_class
from django.core.validators import MinValueValidator
from django.db import models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.questioner import NonInteractiveMigrationQuestioner
from django.db.migrations.state import ModelState, ProjectState
from django.db.migrations.writer import MigrationWriter

from apps.core.layout import TableAutodetector


def _state(**options: Any) -> ProjectState:
    """A project of one model, whose text field has these options."""
    meta = {key: options.pop(key) for key in ("verbose_name_plural",) if key in options}
    fields = [
        ("id", models.BigAutoField(primary_key=True)),
        ("note", models.CharField(**({"max_length": 20} | options))),
        ("links", models.ManyToManyField("core.Note", **{k: v for k, v in options.items() if k == "help_text"})),
    ]
    state = ProjectState()
    state.add_model(ModelState("core", "Note", fields, options=meta))
    return state


def _changes(before: ProjectState, after: ProjectState, detector: type[MigrationAutodetector]) -> list[Any]:
    questioner = NonInteractiveMigrationQuestioner(defaults={"ask_initial": True})
    graph = MigrationLoader(None).graph
    changed = detector(before, after, questioner).changes(graph, trim_to_apps={"core"})
    return [operation for migration in changed.get("core", ()) for operation in migration.operations]


@pytest.mark.parametrize(
    "words",
    [
        {"help_text": "Why it is so."},
        {"verbose_name": "remark"},
        {"choices": [("a", "First")]},
        {"validators": [MinValueValidator(1)]},
        {"error_messages": {"blank": "say something"}},
        {"verbose_name_plural": "remarks"},
    ],
)
def test_changed_word_makes_no_migration(words: dict[str, Any]) -> None:
    assert _changes(_state(), _state(**words), MigrationAutodetector) != []
    assert _changes(_state(), _state(**words), TableAutodetector) == []
    assert _changes(_state(**words), _state(), TableAutodetector) == []


@pytest.mark.parametrize("change", [{"max_length": 30}, {"null": True}, {"db_index": True}, {"default": "x"}])
def test_changed_column_makes_a_migration(change: dict[str, Any]) -> None:
    (operation,) = _changes(_state(), _state(help_text="New as well.", **change), TableAutodetector)
    assert operation.field.help_text == ""


def test_new_model_is_written_without_words() -> None:
    words = {"help_text": "Why it is so.", "verbose_name": "remark", "choices": [("a", "First")]}
    operations = _changes(ProjectState(), _state(**words), TableAutodetector)
    text = "".join(MigrationWriter.serialize(operation)[0] for operation in operations)
    assert "note" in text
    assert not any(word in text for word in ("Why it is so", "remark", "First"))


def test_models_keep_their_words() -> None:
    field = apps.get_model("fleet", "Cluster")._meta.get_field("horizon_s")
    before = (field.help_text, list(field.validators), field.verbose_name)
    assert before[0] and before[1]
    TableAutodetector(ProjectState(), ProjectState.from_apps(apps))
    assert (field.help_text, list(field.validators), field.verbose_name) == before


def test_commands_use_the_autodetector_of_tables() -> None:
    for name in ("makemigrations", "migrate"):
        assert load_command_class(get_commands()[name], name).autodetector is TableAutodetector
