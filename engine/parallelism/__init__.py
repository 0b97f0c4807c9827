"""Parallelism of running queries: what other numbers of subtasks sustain, cost and break."""
