"""Slacks of many queries at once."""
