"""Renderings of a report's blocks: HTML, PDF, CSV, JSON."""
