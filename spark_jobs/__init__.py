"""The stream processor: PySpark jobs over the telemetry streams."""
