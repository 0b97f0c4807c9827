"""History of the stream processor's output as Parquet files by day, and the batch jobs that read it."""
