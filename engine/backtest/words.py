"""Durations in words. Pages use it too, so nothing that computes is imported here."""

from __future__ import annotations

__all__ = []
