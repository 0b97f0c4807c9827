"""Simulated sources, and plans for trees of nodes."""
