"""Predictions against a real Flink: jobs of known load, their counters, and the latencies that they come to."""
