"""Real engines on this machine, to try connections on, to test with and to measure against: Flink and Prometheus.

They are fetched once into a folder of their own and are no requirement of Sluice.
"""
