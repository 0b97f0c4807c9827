"""From sums of telemetry to statistics, their evidence, and what became of the estimates made with them.

References: the terms and decisions are in docs/models/measurement.md and docs/models/accuracy.md.
"""
