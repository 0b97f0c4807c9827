"""The laboratory: what measures, trains and compares. It stands on the product; the product knows nothing of it."""
