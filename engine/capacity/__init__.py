"""Capacity: the largest rate that a query, or a cluster, sustains, what limits it, and when that is reached."""
