"""Resource plans of a mini-batch map-reduce stage: latency model, constrained search, several rounds."""
