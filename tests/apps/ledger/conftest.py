"""Browsers of people with every role."""

from __future__ import annotations

from tests.apps.pages.conftest import browser, browser_of

__all__ = ["browser", "browser_of"]
