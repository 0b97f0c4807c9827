"""Autodetector of migrations that leaves out what only people and forms read.

A help text, a label, a choice or a bound is no part of a table: the database does not hold it. Django's own
autodetector writes them into migrations, so that a new wording makes a migration that does nothing.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.state import ModelState, ProjectState

__all__ = ["TableAutodetector"]

_OPTIONS = ("verbose_name", "verbose_name_plural")


class TableAutodetector(MigrationAutodetector):
    """Compares and writes tables alone."""

    def __init__(self, from_state: ProjectState, to_state: ProjectState, questioner: Any = None) -> None:
        for state in (from_state, to_state):
            for model in state.models.values():
                _strip_words(model)
        super().__init__(from_state, to_state, questioner)


def _strip_words(model: ModelState) -> None:
    """Take the words and bounds out of a model's state, whose fields are clones of the model's own."""
    for option in _OPTIONS:
        model.options.pop(option, None)
    for field in model.fields.values():
        _strip_field(field)


def _strip_field(field: models.Field[Any, Any]) -> None:
    field.help_text = ""
    field.choices = None
    field._verbose_name = None
    field._validators = []
    field._error_messages = None
