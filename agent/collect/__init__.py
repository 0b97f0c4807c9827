"""Collectors: where an agent's records come from."""
