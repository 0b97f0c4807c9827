"""Waits that no queue makes: windows that fill, watermarks, triggers of micro-batches, buffers of exchanges."""
