"""Decisions as an engine's operator applies them: settings, patches and calls, with their reverse."""
