"""The command that seeds the demo."""

from __future__ import annotations

import io

from django.core.management import call_command

__all__ = ["seed"]


def seed() -> str:
    """Seed the demo; what the command said."""
    out = io.StringIO()
    call_command("seed_demo", stdout=out)
    return out.getvalue()
