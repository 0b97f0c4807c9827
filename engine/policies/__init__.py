"""Policies of a cluster and its teams: evidence, freezes, quotas, priority classes, and the order of the queue."""
