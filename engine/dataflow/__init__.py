"""Executable operators: one meaning, translated to pyarrow for agents and to Spark SQL for the stream processor."""
