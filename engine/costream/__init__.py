"""Costream: costs of a query that never ran, predicted for placements on heterogeneous hosts (ICDE 2024)."""
