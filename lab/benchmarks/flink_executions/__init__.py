"""Executions of random queries on a real Flink across hosts, labelled as a corpus is."""
