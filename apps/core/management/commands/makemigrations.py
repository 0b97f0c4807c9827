"""`./sluice manage makemigrations`: Django's, without help texts, labels, choices and bounds."""

from __future__ import annotations

from django.core.management.commands import makemigrations

from apps.core.layout import TableAutodetector

__all__ = ["Command"]


class Command(makemigrations.Command):
    autodetector = TableAutodetector
