"""Estimates of latency: Mace and its bounds, Flow, a report and an interval for every query."""
