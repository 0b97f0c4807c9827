"""Micro-batches of Spark Structured Streaming: reading their progress, the latency model, and sizes."""
