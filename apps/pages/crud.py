"""Crud."""

from __future__ import annotations

from django import forms


class RowForm(forms.ModelForm):
    """A form of a row whose service checks everything at once; checking it here too would say some faults twice."""

    def _post_clean(self) -> None:
        """The instance is left alone: services assign and check it."""
