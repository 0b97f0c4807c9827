"""Growth with the number of queries: clusters of thousands, decided on and served."""
