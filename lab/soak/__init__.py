"""Soak of a whole console: actors, faults, and whether both sides tell the same story in the end (ADR 0167)."""
